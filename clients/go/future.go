// SPDX-License-Identifier: Apache-2.0

package reput

import "context"

// Future is the outcome of a message that was sent, which comes later. Any number of goroutines may wait for it.
type Future struct {
	done    chan struct{}
	result  Result
	failure *Error
	// chunk is the message as it stands in a request, until it is settled.
	chunk []byte
	topic string
}

func newFuture(chunk []byte, topic, uniqueID string) *Future {
	return &Future{done: make(chan struct{}), result: Result{UniqueID: uniqueID}, chunk: chunk, topic: topic}
}

// Wait returns where the message was stored, or the *Error that says why it was not, or that nobody knows. It returns
// the context's error if that ends before; the message is on its way all the same.
func (f *Future) Wait(ctx context.Context) (Result, error) {
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
func (f *Future) Done() <-chan struct{} { return f.done }
