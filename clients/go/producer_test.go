// SPDX-License-Identifier: Apache-2.0

package reput

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	commitlogv1 "reput/clients/go/reputpb/commitlog/v1"
)

func newTestProducer(t testing.TB, client *Client, changes ...func(*ProducerOptions)) *Producer {
	t.Helper()
	producer, err := client.NewProducer(changes...)
	if err != nil {
		t.Fatal(err)
	}
	return producer
}

func send(t *testing.T, ctx context.Context, producer *Producer, body string) *Future {
	t.Helper()
	future, err := producer.Send(ctx, Message{Topic: "t", Body: []byte(body)})
	if err != nil {
		t.Fatal(err)
	}
	return future
}

// Messages of several goroutines are all stored, and in the order of the calls of each goroutine.
func TestProducerOrder(t *testing.T) {
	store := newFake()
	client, ctx := connect(t, store), limit(t)
	producer := newTestProducer(t, client, func(options *ProducerOptions) {
		options.BatchSizeBytes, options.WindowBytes = 2_000, 20_000
	})
	var senders sync.WaitGroup
	for name := range 4 {
		senders.Go(func() {
			for number := range 2_000 {
				send(t, ctx, producer, fmt.Sprintf("%d %04d", name, number))
			}
		})
	}
	senders.Wait()
	if err := producer.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	last := map[string]string{}
	for _, body := range store.all() {
		sender, number, _ := strings.Cut(body, " ")
		if number <= last[sender] {
			t.Fatalf("%s of %s is behind %s", number, sender, last[sender])
		}
		last[sender] = number
	}
	if len(store.all()) != 8_000 {
		t.Error(len(store.all()))
	}
}

// Goroutines that each wait for their message need no linger; a goroutine that gives up disturbs no other.
func TestProducerWaitersDoNotLinger(t *testing.T) {
	store := newFake()
	client, ctx := connect(t, store), limit(t)
	producer := newTestProducer(t, client, func(options *ProducerOptions) { options.Linger = time.Hour })
	over, cancel := context.WithCancel(ctx)
	cancel()
	var callers sync.WaitGroup
	for name := range 16 {
		callers.Go(func() {
			for number := range 20 {
				future := send(t, ctx, producer, fmt.Sprintf("%d %04d", name, number))
				if number%5 == 4 {
					<-future.Done()
					continue
				}
				if number%5 == 3 { // it gives up at once
					if _, err := future.Wait(over); err == nil {
						continue
					}
				}
				if _, err := future.Wait(ctx); err != nil {
					t.Error(err)
				}
			}
		})
	}
	callers.Wait()
	if count := len(store.all()); count != 320 {
		t.Error(count)
	}
}

// Streams that break lose nothing, and first copies are in order.
func TestProducerBrokenStreams(t *testing.T) {
	store := newFake()
	var count atomic.Int64
	store.outcome = func(request *commitlogv1.AppendStreamRequest) (*commitlogv1.AppendOutcome, error) {
		if count.Add(1)%7 == 3 {
			return nil, unavailable()
		}
		return store.store(request)
	}
	client, ctx := connect(t, store), limit(t)
	producer := newTestProducer(t, client, func(options *ProducerOptions) { options.BatchSizeBytes = 1_000 })
	var futures []*Future
	for number := range 1_000 {
		futures = append(futures, send(t, ctx, producer, fmt.Sprintf("%04d", number)))
	}
	for number, future := range futures {
		result, err := future.Wait(ctx)
		if err != nil || store.all()[result.QueueOffset] != fmt.Sprintf("%04d", number) {
			t.Fatal(number, result, err)
		}
	}
	seen, last := map[string]bool{}, ""
	for _, body := range store.all() {
		if !seen[body] && body < last {
			t.Fatal(body, last)
		}
		seen[body], last = true, max(last, body)
	}
}

// Send waits while the window is full, no longer than its context, and continues when there is room.
func TestProducerBackPressure(t *testing.T) {
	store := newFake()
	gate := make(chan struct{})
	store.outcome = func(request *commitlogv1.AppendStreamRequest) (*commitlogv1.AppendOutcome, error) {
		<-gate
		return store.store(request)
	}
	client, ctx := connect(t, store), limit(t)
	producer := newTestProducer(t, client, func(options *ProducerOptions) {
		options.BatchSizeBytes, options.WindowBytes = 1_000, 10_000
	})
	future := send(t, ctx, producer, strings.Repeat("x", 9_900))
	short, cancel := context.WithTimeout(ctx, 20*time.Millisecond)
	defer cancel()
	_, err := producer.Send(short, Message{Topic: "t", Body: make([]byte, 100)})
	if !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if _, err := future.Wait(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	close(gate)
	if _, err := send(t, ctx, producer, strings.Repeat("y", 100)).Wait(ctx); err != nil {
		t.Fatal(err)
	}
	if len(store.all()) != 2 {
		t.Error("what was not sent is stored")
	}
}

// Close sends the collected messages; afterwards Send fails.
func TestProducerClose(t *testing.T) {
	store := newFake()
	client, ctx := connect(t, store), limit(t)
	producer := newTestProducer(t, client, func(options *ProducerOptions) { options.Linger = time.Hour })
	future := send(t, ctx, producer, "a")
	if err := producer.Close(); err != nil {
		t.Fatal(err)
	}
	select {
	case <-future.Done():
	default:
		t.Error("the message has no outcome")
	}
	if _, err := producer.Send(ctx, Message{Topic: "t"}); err != ErrClosed {
		t.Error(err)
	}
	if err := errors.Join(producer.Close(), client.Close()); err != nil {
		t.Error(err)
	}
	if _, err := client.NewProducer(); err != ErrClosed {
		t.Error(err)
	}
}

// Messages without an outcome at the end of Close's time fail, and a Send that waits for room fails, too.
func TestProducerCloseInVain(t *testing.T) {
	store := newFake()
	store.outcome = func(*commitlogv1.AppendStreamRequest) (*commitlogv1.AppendOutcome, error) { return nil, nil }
	client, ctx := connect(t, store), limit(t)
	client.options.Timeout = 50 * time.Millisecond
	producer := newTestProducer(t, client, func(options *ProducerOptions) {
		options.BatchSizeBytes, options.WindowBytes = 50, 100
	})
	future := send(t, ctx, producer, strings.Repeat("x", 200))
	waiting := make(chan error)
	go func() {
		_, err := producer.Send(ctx, Message{Topic: "t"})
		waiting <- err
	}()
	time.Sleep(10 * time.Millisecond)
	if err := producer.Close(); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	_, err := future.Wait(ctx)
	failure, isCall := errors.AsType[*Error](err)
	if !isCall || failure.Code != codes.Canceled || !failure.IsOutcomeUnknown {
		t.Error(err)
	}
	if err := <-waiting; err != ErrClosed {
		t.Error(err)
	}
}

// A follower of a log names its leader, and messages are sent to the leader.
func TestProducerFollowsLeader(t *testing.T) {
	follower, leader := newFake(), newFake()
	follower.outcome = func(*commitlogv1.AppendStreamRequest) (*commitlogv1.AppendOutcome, error) {
		return refused(codes.Unavailable, "NOT_LEADER", map[string]string{"leader": "passthrough:///b"}), nil
	}
	client, ctx := connect(t, follower, leader), limit(t)
	producer := newTestProducer(t, client)
	for range 3 {
		if _, err := send(t, ctx, producer, "a").Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if len(leader.all()) != 3 {
		t.Error(leader.all())
	}
}

// Without a server messages fail when their retries are used up, and it is known that they are not stored.
func TestProducerNobody(t *testing.T) {
	client, ctx := connect(t, newFake()), limit(t)
	client.commitlog.route = route{addresses: []string{"passthrough:///z"}, address: "passthrough:///z"}
	producer := newTestProducer(t, client, retries(2))
	_, err := send(t, ctx, producer, "a").Wait(ctx)
	failure, isCall := errors.AsType[*Error](err)
	if !isCall || failure.Code != codes.Unavailable || failure.IsOutcomeUnknown {
		t.Error(err)
	}
}

// How fast messages of 100 bytes go to a store that does nothing but count them.
func BenchmarkProducer(b *testing.B) {
	store := newFake()
	store.outcome = func(request *commitlogv1.AppendStreamRequest) (*commitlogv1.AppendOutcome, error) {
		return stored(0, make([]int64, len(request.Messages))...), nil
	}
	client, ctx := connect(b, store), context.Background()
	producer := newTestProducer(b, client)
	message := Message{Topic: "orders", Body: make([]byte, 100), Tag: "created"}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := producer.Send(ctx, message); err != nil {
			b.Fatal(err)
		}
	}
	if err := producer.Flush(ctx); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "messages/s")
}

// Failures that the program did not ask about are reported by Flush and by Close, each once.
func TestProducerTellsUnreadFailures(t *testing.T) {
	store := newFake()
	store.outcome = func(*commitlogv1.AppendStreamRequest) (*commitlogv1.AppendOutcome, error) {
		return refused(codes.InvalidArgument, "BAD_PROPERTIES", nil), nil
	}
	client, ctx := connect(t, store), limit(t)
	producer := newTestProducer(t, client)
	if _, err := send(t, ctx, producer, "a").Wait(ctx); err == nil {
		t.Fatal("stored")
	}
	<-send(t, ctx, producer, "b").Done()
	if err := producer.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	send(t, ctx, producer, "c")
	send(t, ctx, producer, "d")
	err := producer.Flush(ctx)
	failure, isCall := errors.AsType[*Error](err)
	if !isCall || failure.Reason != "BAD_PROPERTIES" || !strings.Contains(err.Error(), "2 messages failed") {
		t.Error(err)
	}
	if err := producer.Flush(ctx); err != nil {
		t.Error(err)
	}
	send(t, ctx, producer, "e")
	if err := producer.Close(); err == nil || !strings.Contains(err.Error(), "1 messages failed") {
		t.Error(err)
	}
}

// A body that is too large for a request is refused by Send, with its size and the limit.
func TestProducerRefusesWhatNoRequestCarries(t *testing.T) {
	producer := newTestProducer(t, connect(t, newFake()))
	_, err := producer.Send(limit(t), Message{Topic: "t", Body: make([]byte, 65<<20)})
	if !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), "the body has 68157440 bytes") {
		t.Error(err)
	}
}
