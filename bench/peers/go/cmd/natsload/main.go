// SPDX-License-Identifier: Apache-2.0

// Command natsload loads NATS JetStream. One stream takes four subjects, which are the queues.
package main

import (
	"context"
	"flag"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"reput/bench/internal/load"
)

const (
	streamName = "bench"
	// ackTimeout ends a load whose server went silent.
	ackTimeout = 30 * time.Second
)

var queues = [...]string{"bench.q0", "bench.q1", "bench.q2", "bench.q3"}

var (
	publish  = flag.String("publish", "async", "how a stream is sent: async, fast (fast ingest) or atomic (atomic batches)")
	pending  = flag.Int("pending", 4000, "most messages that one producer has on their way")
	replicas = flag.Int("replicas", 1, "servers that have the stream")
	persist  = flag.String("persist", "default", "persist mode of the stream: default or async")
)

type system struct {
	arguments load.Arguments
	body      []byte
	// calling is the connection that the next caller shares.
	calling jetstream.JetStream
}

func main() {
	load.Main(func(arguments load.Arguments) (load.System, error) {
		s := &system{arguments: arguments, body: arguments.Body()}
		if arguments.Operation == "read" || arguments.Operation == "receive" {
			return s, nil
		}
		return s, s.createStream()
	})
}

func (s *system) connect() (*nats.Conn, jetstream.JetStream, error) {
	connection, err := nats.Connect(s.arguments.Target, nats.Timeout(ackTimeout), nats.NoReconnect())
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(
		connection,
		jetstream.WithPublishAsyncMaxPending(s.window()),
		jetstream.WithPublishAsyncTimeout(ackTimeout),
		jetstream.WithDefaultTimeout(ackTimeout),
	)
	return connection, js, err
}

func (s *system) createStream() error {
	connection, js, err := s.connect()
	if err != nil {
		return err
	}
	defer connection.Close()
	config := jetstream.StreamConfig{
		Name:               streamName,
		Subjects:           []string{"bench.*"},
		Storage:            jetstream.FileStorage,
		Replicas:           *replicas,
		AllowDirect:        true,
		AllowAtomicPublish: *publish == "atomic",
		AllowBatchPublish:  *publish == "fast",
	}
	if *persist == "async" {
		config.PersistMode = jetstream.AsyncPersistMode
	}
	_, err = js.CreateOrUpdateStream(context.Background(), config)
	return err
}

func (s *system) Producer(int) (load.Producer, error) {
	connection, js, err := s.connect()
	if err != nil {
		return nil, err
	}
	switch *publish {
	case "async":
		return &asyncProducer{js: js, body: s.body}, nil
	case "fast":
		return newFastProducer(connection, s.body, s.window())
	case "atomic":
		return newAtomicProducer(connection, s.body, s.batchMessages())
	}
	return nil, fmt.Errorf("unknown --publish %q; async, fast and atomic are known", *publish)
}

// window is the number of messages that one producer has on their way.
func (s *system) window() int {
	return min(*pending, s.arguments.BatchMessages())
}

// batchMessages is the number of messages in an atomic batch.
func (s *system) batchMessages() int {
	return min(atomicBatchMessagesMax, s.arguments.BatchMessages())
}
