// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"reput/bench/internal/load"
)

// pullMessages is the number of messages that the reader asks for ahead.
const pullMessages = 10_000

// reader reads all subjects with an ordered consumer, and begins a new one at the end of the stream.
type reader struct {
	stream   jetstream.Stream
	stored   uint64
	left     uint64
	messages jetstream.MessagesContext
}

func (s *system) Reader() (load.Reader, error) {
	_, js, err := s.connect()
	if err != nil {
		return nil, err
	}
	stream, err := js.Stream(context.Background(), streamName)
	if err != nil {
		return nil, err
	}
	stored := stream.CachedInfo().State.Msgs
	if stored == 0 {
		return nil, fmt.Errorf("stream %s is empty", streamName)
	}
	return &reader{stream: stream, stored: stored}, nil
}

func (r *reader) Read(until time.Time) (load.Count, error) {
	count := load.Count{}
	for time.Now().Before(until) {
		if r.left == 0 {
			if err := r.begin(); err != nil {
				return count, err
			}
		}
		message, err := r.messages.Next()
		if err != nil {
			return count, err
		}
		r.left--
		count.Messages++
		count.Bytes += int64(len(message.Data()))
	}
	return count, nil
}

func (r *reader) begin() error {
	if r.messages != nil {
		r.messages.Stop()
	}
	consumer, err := r.stream.OrderedConsumer(context.Background(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		return err
	}
	r.left = r.stored
	r.messages, err = consumer.Messages(jetstream.PullMaxMessages(pullMessages))
	return err
}
