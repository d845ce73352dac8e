// SPDX-License-Identifier: Apache-2.0

package reput

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	commitlogv1 "reput/clients/go/reputpb/commitlog/v1"
)

// Producer sends messages over a single stream, in batches, without waiting for each answer. Made by
// [Client.NewProducer]; close it. Safe for any number of goroutines.
//
// At least once: when the connection breaks, messages without an outcome are sent again and may then be stored twice.
// With 0 retries they fail instead, with IsOutcomeUnknown. Messages are stored in the order of the calls, also
// when some are refused or sent again; a second copy of a message comes behind the first. A refused message does not
// fail the other messages of its batch.
type Producer struct {
	client  *Client
	service *service
	options ProducerOptions
	encoder encoder
	// ctx ends when the producer is closed.
	ctx    context.Context
	cancel context.CancelFunc
	// wake has a value when the sending goroutine has to look at the queue again.
	wake chan struct{}
	// done is closed when the last goroutine has ended.
	done chan struct{}

	mu    sync.Mutex
	queue sendQueue
	// settlingCount is the number of goroutines that are about to wake the callers that wait for futures.
	settlingCount int
	// changed is closed at the next change that callers wait for, nil while no caller waits.
	changed   chan struct{}
	isClosing bool
	// unread counts failures since the last report.
	unread *unreadFailures
}

func newProducer(client *Client, options ProducerOptions) *Producer {
	ctx, cancel := context.WithCancel(context.Background())
	producer := &Producer{
		client: client, service: client.commitlog, options: options, queue: sendQueue{options: options},
		ctx: ctx, cancel: cancel, wake: make(chan struct{}, 1), done: make(chan struct{}),
		unread: &unreadFailures{},
	}
	if options.UniqueIDs {
		producer.encoder.uniqueIDs = newUniqueIDs()
	}
	go producer.run()
	return producer
}

// Send sends a message and returns at once with its future. A goroutine that waits for the future ends the linger of its
// batch, so that goroutines that wait for each message share the stream without an option. It waits only while the window is full, until the context
// ends; then the message is not sent. It fails with ErrArgument for an invalid message, and with ErrClosed.
func (p *Producer) Send(ctx context.Context, message Message) (*Future, error) {
	future, err := p.encoder.encode(&message, time.Now())
	if err != nil {
		return nil, err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for !p.isClosing && !p.queue.hasRoom(len(future.chunk)) {
		p.queue.closeBatch() // no sender can add to the batch now
		p.notify()
		if err := p.waitChange(ctx); err != nil {
			return nil, err
		}
	}
	if p.isClosing {
		return nil, ErrClosed
	}
	if p.queue.add(future, time.Now()) {
		p.notify()
	}
	future.producer, future.batchNumber = p, p.queue.batchNumber()
	return future, nil
}

// hurry ends the linger of a batch: a caller waits for its outcome.
func (p *Producer) hurry(batchNumber int) {
	p.mu.Lock()
	isNews := p.queue.hurry(batchNumber)
	p.mu.Unlock()
	if isNews {
		p.notify()
	}
}

// Flush sends the collected messages and waits until every message has its outcome. It fails when the context ends. It
// also fails with the number of failed messages whose futures the program has not asked, wrapping the first *Error;
// each failure is reported once.
func (p *Producer) Flush(ctx context.Context) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.settle(ctx); err != nil {
		return err
	}
	return p.tellUnread()
}

// settle works like Flush, and fails only when the context ends. Called under the lock.
func (p *Producer) settle(ctx context.Context) error {
	p.queue.closeBatch()
	p.notify()
	for !p.queue.isIdle() || p.settlingCount > 0 {
		if err := p.waitChange(ctx); err != nil {
			return fmt.Errorf("reput: %d bytes of messages have no outcome yet: %w", p.queue.unsettledBytes, err)
		}
	}
	return nil
}

// tellUnread returns the error for failures that the program did not ask about, each once. Called under the lock.
func (p *Producer) tellUnread() error {
	told := p.unread
	p.unread = &unreadFailures{}
	return told.err()
}

// Close flushes, at most for the client's time-out, and ends the stream. Messages without an outcome by then fail, and
// Close returns an error. It also returns the errors of Flush. Send fails from now on. May be repeated.
func (p *Producer) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), p.client.options.Timeout)
	defer cancel()
	p.mu.Lock()
	p.isClosing = true
	p.announce()
	unsettled := p.settle(ctx)
	unread := p.tellUnread()
	p.mu.Unlock()
	if unsettled != nil {
		p.update(func() { p.queue.failAll(&Error{Code: codes.Canceled, Text: "the producer was closed"}) })
	}
	p.cancel()
	<-p.done
	p.client.forget(p)
	return errors.Join(unsettled, unread)
}

// run keeps a stream open while there are messages to send.
func (p *Producer) run() {
	defer close(p.done)
	for first := p.next(p.ctx); first != nil; first = p.next(p.ctx) {
		wasOpen, failure := p.runStream(first)
		p.update(func() { p.queue.onBroken(failure, time.Now(), wasOpen) })
	}
}

// runStream opens a stream for a batch, runs it to its end, and returns whether it was open, and the error that ended
// it.
func (p *Producer) runStream(first *batch) (wasOpen bool, failure *Error) {
	ctx, cancel := context.WithCancel(p.ctx)
	defer cancel()
	desc := &commitlogv1.AppendService_ServiceDesc.Streams[0]
	opened, err := p.service.NewStream(ctx, desc, commitlogv1.AppendService_AppendStream_FullMethodName)
	if err != nil {
		return false, asError(err)
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		p.write(ctx, opened, first)
	}()
	failure = p.read(opened.(*stream))
	cancel()
	<-written
	return true, failure
}

// write sends batches until the stream ends. The reader gets the error.
func (p *Producer) write(ctx context.Context, opened grpc.ClientStream, first *batch) {
	for current := first; current != nil; current = p.next(ctx) {
		if opened.SendMsg(current.toRequest(p.options.Durability)) == nil {
			continue
		}
		// The first batch of a stream stays in flight, so that a stream that always ends at once counts as an attempt.
		if current != first {
			p.update(func() { p.queue.onUnsent(current) })
		}
		return
	}
}

// read applies outcomes until the stream ends, and returns the error that ended it.
func (p *Producer) read(opened *stream) (failure *Error) {
	for failure == nil {
		response := &commitlogv1.AppendStreamResponse{}
		err := opened.RecvMsg(response)
		if err == io.EOF {
			return streamEnded()
		}
		if err != nil {
			return asError(err)
		}
		p.update(func() {
			failure = p.queue.onOutcomes(response.GetOutcomes(), time.Now())
			if failure == nil {
				failure = p.queue.movedAway()
			}
		})
	}
	return opened.service.onFailure(opened.address, failure)
}

// next waits for the next batch to send and returns it, nil when the context ends.
func (p *Producer) next(ctx context.Context) *batch {
	for ctx.Err() == nil {
		p.mu.Lock()
		now := time.Now()
		batch := p.queue.pop(now)
		wait, isTimed := p.queue.wait(now)
		p.mu.Unlock()
		if batch != nil {
			return batch
		}
		var timer <-chan time.Time
		if isTimed {
			timer = time.After(wait)
		}
		select {
		case <-p.wake:
		case <-timer:
		case <-ctx.Done():
		}
	}
	return nil
}

// update changes the queue under the lock. Then, without the lock, it wakes the callers that wait for settled futures.
func (p *Producer) update(change func()) {
	p.mu.Lock()
	change()
	settled := p.queue.popSettled()
	for _, messages := range settled {
		for _, message := range messages {
			if message.failure != nil {
				message.countUnread(p.unread)
			}
		}
	}
	p.settlingCount++
	p.mu.Unlock()
	p.notify()
	for _, messages := range settled {
		for _, message := range messages {
			close(message.done)
		}
	}
	p.mu.Lock()
	p.settlingCount--
	p.announce()
	p.mu.Unlock()
}

// notify makes the sending goroutine look at the queue again.
func (p *Producer) notify() {
	select {
	case p.wake <- struct{}{}:
	default: // it has not looked since the last time
	}
}

// announce wakes the callers that wait for a change. Called under the lock.
func (p *Producer) announce() {
	if p.changed != nil {
		close(p.changed)
		p.changed = nil
	}
}

// waitChange releases the lock until the next change. It returns the context's error if that ends before.
func (p *Producer) waitChange(ctx context.Context) error {
	if p.changed == nil {
		p.changed = make(chan struct{})
	}
	changed := p.changed
	p.mu.Unlock()
	defer p.mu.Lock()
	select {
	case <-changed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
