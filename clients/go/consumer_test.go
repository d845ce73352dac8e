// SPDX-License-Identifier: Apache-2.0

package reput

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	indexerv1 "reput/clients/go/reputpb/indexer/v1"
)

type subscription = grpc.ServerStreamingServer[indexerv1.SubscribeResponse]

func newTestConsumer(t *testing.T, client *Client, changes ...func(*ConsumerOptions)) *Consumer {
	t.Helper()
	consumer, err := client.NewConsumer(limit(t), "t", changes...)
	if err != nil {
		t.Fatal(err)
	}
	return consumer
}

func onlyQueue0(options *ConsumerOptions) { options.QueueIDs = []int32{0} }

// take returns the queue offsets of the next messages.
func take(t *testing.T, consumer *Consumer, count int) []int64 {
	t.Helper()
	var offsets []int64
	for message, err := range consumer.Messages(limit(t)) {
		if err != nil {
			t.Fatal(err)
		}
		if offsets = append(offsets, message.QueueOffset); len(offsets) == count {
			break
		}
	}
	return offsets
}

// endless sends answers with a single message, from the requested queue offset on.
func endless(request *indexerv1.SubscribeRequest, stream subscription) error {
	for offset := request.QueueOffset; ; offset++ {
		if err := stream.Send(answerOf(offset)); err != nil {
			return err
		}
	}
}

// A consumer begins at its start, or at the committed offset of its group.
func TestConsumerStart(t *testing.T) {
	store := newFake()
	store.subscribe = endless
	client := connect(t, store)
	committed := true
	store.unary = func(_ context.Context, request any) error {
		if _, isOffset := request.(*indexerv1.GetConsumerOffsetRequest); isOffset && !committed {
			return status.Error(codes.NotFound, "nothing is committed")
		}
		return nil
	}
	for _, c := range []struct {
		start       time.Time
		group       string
		isCommitted bool
		want        int64
	}{
		{time.Time{}, "", false, 3}, {Latest, "", false, 9}, {at(0), "", false, 5},
		{Latest, "g", true, 7}, {Latest, "g", false, 9},
	} {
		committed = c.isCommitted
		consumer := newTestConsumer(t, client, onlyQueue0, func(options *ConsumerOptions) {
			options.Start, options.Group = c.start, c.group
		})
		if got := take(t, consumer, 1)[0]; got != c.want || consumer.Positions()[0] != c.want+1 {
			t.Error(c, got)
		}
		consumer.Close()
	}
}

// Without named queues all of the topic are followed.
func TestConsumerAllQueues(t *testing.T) {
	store := newFake()
	store.subscribe = func(request *indexerv1.SubscribeRequest, stream subscription) error {
		stream.Send(answerOf(request.QueueOffset))
		<-stream.Context().Done()
		return nil
	}
	consumer := newTestConsumer(t, connect(t, store))
	offsets := take(t, consumer, 2)
	slices.Sort(offsets)
	if !slices.Equal(offsets, []int64{0, 3}) {
		t.Error(offsets)
	}
}

// A stream that ends is opened again at the same position, and each answer resets the number of attempts.
func TestConsumerBrokenStreams(t *testing.T) {
	store := newFake()
	store.subscribe = func(request *indexerv1.SubscribeRequest, stream subscription) error {
		if err := stream.Send(answerOf(request.QueueOffset, request.QueueOffset+1)); err != nil {
			return err
		}
		if request.QueueOffset%4 == 1 {
			return nil
		}
		return unavailable()
	}
	client := connect(t, store)
	client.options.Retry.Retries = 1
	for index, offset := range take(t, newTestConsumer(t, client, onlyQueue0), 50) {
		if offset != int64(3+index) {
			t.Fatal(index, offset)
		}
	}
}

// When a stream can't be opened again, Next fails once, and the next calls continue at the same position.
func TestConsumerFails(t *testing.T) {
	store := newFake()
	var asked atomic.Int32
	store.subscribe = func(request *indexerv1.SubscribeRequest, stream subscription) error {
		if number := asked.Add(1); number == 2 || number == 3 {
			return status.Error(codes.DataLoss, "damaged")
		}
		stream.Send(answerOf(request.QueueOffset))
		return unavailable()
	}
	consumer := newTestConsumer(t, connect(t, store), onlyQueue0)
	take(t, consumer, 1)
	for range 2 {
		_, err := consumer.Next(limit(t))
		failure, isCall := errors.AsType[*Error](err)
		if !isCall || failure.Code != codes.DataLoss {
			t.Error(err)
		}
	}
	if offsets := take(t, consumer, 2); !slices.Equal(offsets, []int64{4, 5}) {
		t.Error(offsets)
	}
}

// Answers do not pile up: at most 4 wait.
func TestConsumerHolds(t *testing.T) {
	store := newFake()
	store.subscribe = endless
	consumer := newTestConsumer(t, connect(t, store), onlyQueue0)
	for range 50 {
		if count := len(consumer.deliveries); count > heldAnswerCountMax {
			t.Fatal(count)
		}
		time.Sleep(time.Millisecond)
	}
	take(t, consumer, 100)
}

// Seek drops messages that were delivered from another position.
func TestConsumerSeek(t *testing.T) {
	store := newFake()
	store.subscribe = endless
	consumer := newTestConsumer(t, connect(t, store), onlyQueue0)
	for _, want := range []int64{1000, 5, 700, 0} {
		if err := consumer.Seek(0, want); err != nil {
			t.Fatal(err)
		}
		if got := take(t, consumer, 20); got[0] != want || got[19] != want+19 {
			t.Fatal(got)
		}
	}
	if err := consumer.Seek(7, 0); !errors.Is(err, ErrArgument) {
		t.Error(err)
	}
}

// A commit sends the offsets that changed, and needs a group.
func TestConsumerCommit(t *testing.T) {
	store := newFake()
	store.subscribe = endless
	var mu sync.Mutex
	var offsets []*indexerv1.ConsumerOffset
	store.unary = func(_ context.Context, request any) error {
		if commit, isCommit := request.(*indexerv1.CommitConsumerOffsetRequest); isCommit {
			mu.Lock()
			defer mu.Unlock()
			offsets = append(offsets, commit.Offsets...)
		}
		return nil
	}
	client := connect(t, store)
	consumer := newTestConsumer(t, client, onlyQueue0, func(options *ConsumerOptions) { options.Group = "g" })
	take(t, consumer, 4)
	for range 2 {
		if err := consumer.Commit(limit(t)); err != nil {
			t.Fatal(err)
		}
	}
	if len(offsets) != 1 || offsets[0].QueueOffset != 11 {
		t.Error(offsets)
	}
	if err := newTestConsumer(t, client).Commit(limit(t)); !errors.Is(err, ErrArgument) {
		t.Error(err)
	}
}

// Close ends an iteration, also from another goroutine; the end of a context is an error.
func TestConsumerClose(t *testing.T) {
	store := newFake()
	store.subscribe = func(_ *indexerv1.SubscribeRequest, stream subscription) error {
		<-stream.Context().Done()
		return nil
	}
	consumer := newTestConsumer(t, connect(t, store))
	short, cancel := context.WithTimeout(context.Background(), 5*time.Millisecond)
	defer cancel()
	if _, err := consumer.Next(short); err != context.DeadlineExceeded {
		t.Error(err)
	}
	time.AfterFunc(10*time.Millisecond, func() { consumer.Close() })
	for _, err := range consumer.Messages(limit(t)) {
		t.Fatal(err)
	}
	if _, err := consumer.Next(limit(t)); err != ErrClosed {
		t.Error(err)
	}
	if err := consumer.Seek(0, 0); err != ErrClosed {
		t.Error(err)
	}
}
