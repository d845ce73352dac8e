// SPDX-License-Identifier: Apache-2.0

// Command reputload sends messages to Reput and reads them. Append, read and lookup go through Reput's own client for
// Go, which makes batches of single messages. Latency is a call for each message, over one connection of grpc-go:
// requests are serialized once for each caller, and of an answer only its status is looked at. With --through producer
// latency goes through the client, too: its callers share a producer, and each waits for its message.
package main

import (
	"context"
	"flag"
	"fmt"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"reput/bench/internal/load"
	reput "reput/clients/go"
)

const (
	method = "/reput.commitlog.v1.AppendService/Append"
	topic  = "bench"
	queues = 4
)

// durabilities are what an acknowledgement waits for, as numbers of reput.common.v1.Durability.
var durabilities = map[string]uint64{"async": 1, "sync": 2}

var (
	durability = flag.String("durability", "async", "what an acknowledgement waits for: async or sync")
	indexer    = flag.String("indexer", "", "HOST:PORT of the Indexer, which read and lookup ask")
	keys       = flag.String("keys", "repeated", "keys of an append: repeated or distinct")
	through    = flag.String("through", "call", "how latency sends: call or producer; an append is always by producer")
)

type system struct {
	arguments  load.Arguments
	connection *grpc.ClientConn
	// shared opens the producer of all goroutines once.
	shared func() (*reput.Producer, error)
}

func main() {
	load.Main(func(arguments load.Arguments) (load.System, error) {
		if _, isKnown := durabilities[*durability]; !isKnown {
			return nil, fmt.Errorf("unknown durability %q: async and sync are known", *durability)
		}
		if *through != "call" && *through != "producer" {
			return nil, fmt.Errorf("unknown way %q: call and producer are known", *through)
		}
		options := []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
		options = append(options, grpc.WithDefaultCallOptions(grpc.ForceCodecV2(rawCodec{})))
		connection, err := grpc.NewClient(arguments.Target, options...)
		made := &system{arguments: arguments, connection: connection}
		made.shared = sync.OnceValues(made.openProducer)
		return made, err
	})
}

func (s *system) Producer(int) (load.Producer, error) { return s.newProducer() }

// caller sends the same request again and again.
type caller struct {
	connection *grpc.ClientConn
	request    []byte
}

func (s *system) Caller(number int) (load.Caller, error) {
	if *through == "producer" {
		return s.newProducer()
	}
	return &caller{connection: s.connection, request: s.request(number)}, nil
}

func (c *caller) Call() error {
	var answer []byte
	return c.connection.Invoke(context.Background(), method, &c.request, &answer)
}

// request is a serialized AppendRequest, with properties as the load generators in other languages send them.
func (s *system) request(number int) []byte {
	properties := fmt.Sprintf("UNIQ_KEY\x01C0A8010A1F9018B4AAC2%012d\x02TAGS\x01tag%d\x02KEYS\x01order-%012d user-%d\x02",
		number, number%8, number, number%997)
	message := field(nil, 1, []byte(topic))
	message = protowire.AppendTag(message, 2, protowire.VarintType)
	message = protowire.AppendVarint(message, uint64(number%queues))
	message = field(message, 3, s.arguments.Body())
	message = field(message, 5, []byte(properties))
	request := field(nil, 1, message)
	request = protowire.AppendTag(request, 2, protowire.VarintType)
	return protowire.AppendVarint(request, durabilities[*durability])
}

func field(to []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(to, number, protowire.BytesType), value)
}

// rawCodec passes bytes on as they are.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(value any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(*value.(*[]byte))}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, value any) error {
	*value.(*[]byte) = data.Materialize()
	return nil
}
