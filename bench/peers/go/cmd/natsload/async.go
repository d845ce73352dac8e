// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// asyncProducer sends with PublishAsync: each message has an acknowledgement of its own.
type asyncProducer struct {
	js   jetstream.JetStream
	body []byte
	next int
}

func (p *asyncProducer) Send(until time.Time) (int64, error) {
	futures := []jetstream.PubAckFuture{}
	for time.Now().Before(until) {
		for range len(queues) {
			p.next++
			future, err := p.js.PublishAsync(queues[p.next%len(queues)], p.body, jetstream.WithStallWait(ackTimeout))
			if err != nil {
				return 0, err
			}
			futures = append(futures, future)
		}
	}
	return int64(len(futures)), p.wait(futures)
}

func (p *asyncProducer) wait(futures []jetstream.PubAckFuture) error {
	select {
	case <-p.js.PublishAsyncComplete():
	case <-time.After(ackTimeout):
		return fmt.Errorf("%d messages have no acknowledgement", p.js.PublishAsyncPending())
	}
	for _, future := range futures {
		select {
		case <-future.Ok():
		case err := <-future.Err():
			return err
		}
	}
	return nil
}
