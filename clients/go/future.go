// SPDX-License-Identifier: Apache-2.0

package reput

import (
	"context"
	"fmt"
	"sync/atomic"
)

// Future is the outcome of a sent message, which comes later. Any number of goroutines may wait for it.
type Future struct {
	done    chan struct{}
	result  Result
	failure *Error
	// chunk is the message as encoded for a request, until it is settled.
	chunk []byte
	topic string
	// producer ends the linger of the batch with this number when a caller waits.
	producer    *Producer
	batchNumber int
	// asked is a state of the list below. unread is set before it becomes counted.
	asked  atomic.Int32
	unread *unreadFailures
}

// The states of a future: whether the program has asked it.
const (
	notAsked = iota
	wasAsked
	counted
)

// unreadFailures are failed messages whose futures the program has not asked.
type unreadFailures struct {
	count atomic.Int64
	first *Error
}

// err returns an error with their number, nil if there are none.
func (u *unreadFailures) err() error {
	count := u.count.Load()
	if count == 0 {
		return nil
	}
	return fmt.Errorf("reput: %d messages failed, and their futures have not been asked; the first failure: %w", count, u.first)
}

// ask records that the program asks.
func (f *Future) ask() {
	if f.asked.Swap(wasAsked) == counted {
		f.unread.count.Add(-1)
	}
}

// countUnread counts a message that is about to fail, unless the program has asked.
func (f *Future) countUnread(unread *unreadFailures) {
	f.unread = unread
	if f.asked.CompareAndSwap(notAsked, counted) && unread.count.Add(1) == 1 {
		unread.first = f.failure
	}
}

func newFuture(chunk []byte, topic, uniqueID string) *Future {
	return &Future{done: make(chan struct{}), result: Result{UniqueID: uniqueID}, chunk: chunk, topic: topic}
}

// Wait returns where the message was stored, or the *Error with which it failed or after which its outcome is unknown.
// The message's batch lingers no longer: it is sent at once, with the messages of all goroutines that have sent by then.
// Wait returns the context's error if the context ends before; the message is sent all the same and may be stored.
func (f *Future) Wait(ctx context.Context) (Result, error) {
	f.ask()
	f.hurry()
	select {
	case <-f.done:
		if f.failure != nil {
			return Result{UniqueID: f.result.UniqueID}, f.failure
		}
		return f.result, nil
	case <-ctx.Done():
		return Result{}, ctx.Err()
	}
}

// Done returns a channel that is closed when the message has its outcome: then Wait returns at once. As with Wait, the
// batch lingers no longer.
func (f *Future) Done() <-chan struct{} {
	f.ask()
	f.hurry()
	return f.done
}

// hurry ends the linger of the message's batch, unless the message has its outcome.
func (f *Future) hurry() {
	select {
	case <-f.done:
	default:
		if f.producer != nil {
			f.producer.hurry(f.batchNumber)
		}
	}
}
