// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sync/errgroup"

	"reput/bench/internal/load"
	reput "reput/clients/go"
	commitlogv1 "reput/clients/go/reputpb/commitlog/v1"
	indexerv1 "reput/clients/go/reputpb/indexer/v1"
)

const (
	pullMessages = 4_096
	pullBytes    = 2 << 20
	seed         = 20
)

// reader reads each queue with pulls of its own, and begins anew at the end of a queue.
type reader struct{ client *reput.Client }

func (s *system) Reader() (load.Reader, error) {
	client, err := s.open()
	return &reader{client: client}, err
}

func (r *reader) Read(until time.Time) (load.Count, error) {
	counts := make([]load.Count, queues)
	var group errgroup.Group
	for queue := range counts {
		group.Go(func() error {
			count, err := r.readQueue(int32(queue), until)
			counts[queue] = count
			return err
		})
	}
	err := group.Wait()
	total := load.Count{}
	for _, count := range counts {
		total.Messages += count.Messages
		total.Bytes += count.Bytes
	}
	return total, err
}

func (r *reader) readQueue(queue int32, until time.Time) (load.Count, error) {
	count, request := load.Count{}, reput.PullRequest{
		Topic: topic, QueueID: queue, MessageCountMax: pullMessages, SizeBytesMax: pullBytes,
	}
	for time.Now().Before(until) {
		result, err := r.client.Pull(context.Background(), request)
		if err != nil {
			return count, err
		}
		for _, message := range result.Messages {
			count.Bytes += int64(len(message.GetBody()))
		}
		count.Messages += int64(len(result.Messages))
		request.QueueOffset = result.GetNextQueueOffset()
		if len(result.Messages) == 0 {
			request.QueueOffset = 0
		}
	}
	return count, nil
}

// finder finds messages by keys that it picks by chance. Each key belongs to one message.
type finder struct {
	client *reput.Client
	chance *rand.Rand
	stored int
}

// Finder opens a finder among the messages of an append with distinct keys.
func (s *system) Finder(number int) (load.Caller, error) {
	client, err := s.open()
	if err != nil {
		return nil, err
	}
	listed, err := indexerv1.NewQueueServiceClient(client.Indexer()).ListQueues(
		context.Background(), &indexerv1.ListQueuesRequest{Topic: topic})
	if err != nil {
		return nil, err
	}
	found := &finder{client: client, chance: rand.New(rand.NewPCG(seed, uint64(number)))}
	for _, queue := range listed.GetQueues() {
		found.stored += int(queue.GetMaxQueueOffset())
	}
	if found.stored == 0 {
		return nil, fmt.Errorf("topic %s is empty", topic)
	}
	return found, nil
}

func (f *finder) Call() error {
	key, count := orderKey(f.chance.IntN(f.stored)), 0
	for _, err := range f.client.ByKey(context.Background(), topic, key, reput.Span{}) {
		if err != nil {
			return err
		}
		count++
	}
	if count != 1 {
		return fmt.Errorf("%d messages with the key %s", count, key)
	}
	return nil
}

// open connects to both services, and waits until the Indexer has read the log to its end.
func (s *system) open() (*reput.Client, error) {
	client, err := reput.Connect(func(options *reput.Options) {
		options.Commitlog, options.Indexer = s.arguments.Target, *indexer
	})
	if err != nil {
		return nil, err
	}
	return client, waitIndexed(client)
}

func waitIndexed(client *reput.Client) error {
	status, err := commitlogv1.NewLogServiceClient(client.Commitlog()).GetStatus(
		context.Background(), &commitlogv1.GetStatusRequest{})
	if err != nil {
		return err
	}
	return client.WaitIndexed(context.Background(), reput.Result{PhysicalOffset: status.GetMaxPhysicalOffset() - 1})
}
