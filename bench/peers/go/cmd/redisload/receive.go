// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"golang.org/x/sync/errgroup"

	"reput/bench/internal/load"
)

const group = "bench"

// receiver reads all streams as a consumer of a group.
type receiver struct {
	system *system
	client rueidis.Client
}

func (s *system) Receiver() (load.Reader, error) {
	client, err := s.connect()
	if err != nil {
		return nil, err
	}
	for _, queue := range queues {
		err := client.Do(context.Background(), client.B().XgroupCreate().Key(queue).Group(group).Id("0").Build()).Error()
		if err != nil && !strings.Contains(err.Error(), "BUSYGROUP") {
			return nil, err
		}
	}
	return &receiver{system: s, client: client}, nil
}

// Read lets each stream have its part of the messages in work.
func (r *receiver) Read(until time.Time) (load.Count, error) {
	var messages, bytes atomic.Int64
	var all errgroup.Group
	for _, queue := range queues {
		all.Go(func() error {
			for time.Now().Before(until) {
				entries, err := r.receive(queue)
				if err != nil || len(entries) == 0 {
					return err
				}
				if err := r.acknowledge(queue, entries); err != nil {
					return err
				}
				messages.Add(int64(len(entries)))
				for _, entry := range entries {
					bytes.Add(int64(len(entry.FieldValues["b"])))
				}
			}
			return nil
		})
	}
	err := all.Wait()
	return load.Count{Messages: messages.Load(), Bytes: bytes.Load()}, err
}

func (r *receiver) receive(queue string) ([]rueidis.XRangeEntry, error) {
	count := max(1, r.system.arguments.Callers/len(queues))
	command := r.client.B().Xreadgroup().Group(group, "one").Count(int64(count)).Streams().Key(queue).Id(">").Build()
	answer, err := r.client.Do(context.Background(), command).AsXRead()
	if rueidis.IsRedisNil(err) {
		return nil, nil
	}
	return answer[queue], err
}

// acknowledge lets a caller for each message acknowledge it; rueidis puts those of concurrent callers into one write.
func (r *receiver) acknowledge(queue string, entries []rueidis.XRangeEntry) error {
	var callers errgroup.Group
	for _, entry := range entries {
		callers.Go(func() error {
			command := r.client.B().Xack().Key(queue).Group(group).Id(entry.ID).Build()
			return r.client.Do(context.Background(), command).Error()
		})
	}
	return callers.Wait()
}
