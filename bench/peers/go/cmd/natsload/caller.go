// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/nats-io/nats.go/jetstream"

	"reput/bench/internal/load"
)

// callersPerConnection measured best for 16 callers: a connection's writer takes several messages into one write.
const callersPerConnection = 4

// caller sends single messages with Publish.
type caller struct {
	js    jetstream.JetStream
	queue string
	body  []byte
}

func (s *system) Caller(number int) (load.Caller, error) {
	if number%callersPerConnection == 0 {
		_, js, err := s.connect()
		if err != nil {
			return nil, err
		}
		s.calling = js
	}
	return &caller{js: s.calling, queue: queues[number%len(queues)], body: s.body}, nil
}

func (c *caller) Call() error {
	_, err := c.js.Publish(context.Background(), c.queue, c.body)
	return err
}
