// SPDX-License-Identifier: Apache-2.0

package reput

import (
	"context"
	"fmt"
	"sync/atomic"
)

// Future is the outcome of a message that was sent, which comes later. Any number of goroutines may wait for it.
type Future struct {
	done    chan struct{}
	result  Result
	failure *Error
	// chunk is the message as it stands in a request, until it is settled.
	chunk []byte
	topic string
	// asked is one of the states below. unread is set before it becomes counted.
	asked  atomic.Int32
	unread *unreadFailures
}

// The states of whether somebody has asked a future.
const (
	notAsked = iota
	wasAsked
	counted
)

// unreadFailures are messages that failed and whose futures have not been asked.
type unreadFailures struct {
	count atomic.Int64
	first *Error
}

// err returns the error that counts them, nil if there are none.
func (u *unreadFailures) err() error {
	count := u.count.Load()
	if count == 0 {
		return nil
	}
	return fmt.Errorf("reput: %d messages failed, and their futures have not been asked; the first failure: %w", count, u.first)
}

// ask takes note that somebody asks.
func (f *Future) ask() {
	if f.asked.Swap(wasAsked) == counted {
		f.unread.count.Add(-1)
	}
}

// countUnread counts a message that is about to fail, unless somebody has asked.
func (f *Future) countUnread(unread *unreadFailures) {
	f.unread = unread
	if f.asked.CompareAndSwap(notAsked, counted) && unread.count.Add(1) == 1 {
		unread.first = f.failure
	}
}

func newFuture(chunk []byte, topic, uniqueID string) *Future {
	return &Future{done: make(chan struct{}), result: Result{UniqueID: uniqueID}, chunk: chunk, topic: topic}
}

// Wait returns where the message was stored, or the *Error that says why it was not, or that nobody knows. It returns
// the context's error if that ends before; the message is on its way all the same.
func (f *Future) Wait(ctx context.Context) (Result, error) {
	f.ask()
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

// Done returns a channel that is closed when the message has its outcome: then Wait returns at once.
func (f *Future) Done() <-chan struct{} {
	f.ask()
	return f.done
}
