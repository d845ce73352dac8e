// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"reput/bench/internal/load"
)

// fetcherCount fetches are under way at once, each of a part of the messages in work.
const fetcherCount = 4

// receiver is a client of a durable consumer whose messages are acknowledged one by one.
type receiver struct {
	consumer jetstream.Consumer
	batch    int
}

func (s *system) Receiver() (load.Reader, error) {
	_, js, err := s.connect()
	if err != nil {
		return nil, err
	}
	config := jetstream.ConsumerConfig{
		Durable:       streamName,
		AckPolicy:     jetstream.AckExplicitPolicy,
		MaxAckPending: 2 * s.arguments.Callers,
	}
	consumer, err := js.CreateOrUpdateConsumer(context.Background(), streamName, config)
	return &receiver{consumer: consumer, batch: max(1, s.arguments.Callers/fetcherCount)}, err
}

func (r *receiver) Read(until time.Time) (load.Count, error) {
	var messages, bytes atomic.Int64
	var all errgroup.Group
	for range fetcherCount {
		all.Go(func() error {
			for time.Now().Before(until) {
				count, size, err := r.batchDone()
				if err != nil || count == 0 {
					return err
				}
				messages.Add(count)
				bytes.Add(size)
			}
			return nil
		})
	}
	err := all.Wait()
	return load.Count{Messages: messages.Load(), Bytes: bytes.Load()}, err
}

// batchDone receives a batch, and lets a caller for each message acknowledge it and wait for the server's answer.
func (r *receiver) batchDone() (count int64, size int64, err error) {
	batch, err := r.consumer.Fetch(r.batch, jetstream.FetchMaxWait(time.Second))
	if err != nil {
		return 0, 0, err
	}
	var callers errgroup.Group
	for message := range batch.Messages() {
		count++
		size += int64(len(message.Data()))
		callers.Go(func() error { return message.DoubleAck(context.Background()) })
	}
	if err := callers.Wait(); err != nil {
		return count, size, err
	}
	return count, size, batch.Error()
}
