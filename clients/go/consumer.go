// SPDX-License-Identifier: Apache-2.0

package reput

import (
	"context"
	"io"
	"iter"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc/codes"

	commitlogv1 "reput/clients/go/reputpb/commitlog/v1"
	indexerv1 "reput/clients/go/reputpb/indexer/v1"
)

const (
	// heldAnswerCountMax bounds the answers of a queue, of up to 1 MiB each, that wait for the caller. Further answers
	// wait in the transport.
	heldAnswerCountMax = 4
	// committedCountMax is the most offsets of a commit, as in consumer_offset_service.proto.
	committedCountMax = 1000
	// listPageSize is the most queues of a page of a list, as in queue_service.proto.
	listPageSize = 1000
)

// Latest is the Start of consumers that get only messages that are stored from now on.
var Latest = time.Date(9999, time.January, 1, 0, 0, 0, 0, time.UTC)

// ConsumerOptions are the queues, the start and the filter of a consumer.
type ConsumerOptions struct {
	// Group is the group whose committed offsets it begins at, and to which it commits: 1 to 255 letters, digits, and
	// characters of "_-%|". Empty: it begins at Start and can't commit.
	Group string
	// QueueIDs are the queues to follow. Empty: all queues that the topic has when the consumer is made.
	QueueIDs []int32
	// Start is the start in queues without a committed offset, or without a group: Latest, or a time in whole
	// milliseconds, which means the first message stored at or after it. Zero: the earliest stored message.
	Start time.Time
	// Tags are separated by "||", at most 1,000. Empty or "*": all messages.
	Tags string
}

// Consumer follows the queues of a topic, each in order. Made by [Client.NewConsumer]; close it.
//
// Streams that break are opened again at the same position. At least once: after a restart a consumer of a group begins
// at the last commit. Next, Messages and Seek are for a single goroutine at a time; the other methods are safe for any
// number of goroutines.
type Consumer struct {
	client     *Client
	topic      string
	options    ConsumerOptions
	deliveries chan delivery
	// ctx ends when the consumer is closed.
	ctx       context.Context
	cancel    context.CancelFunc
	following sync.WaitGroup

	mu        sync.Mutex
	positions positions
	followers map[int32]*follower
	// failure is the error after which a stream could not be opened again, until Next has returned it.
	failure *Error
}

// follower is the goroutine that follows a queue, until it is replaced or ended.
type follower struct {
	queueID int32
	cancel  context.CancelFunc
	// held has a value for each answer that waits for the caller.
	held chan struct{}
	// queueOffset is the start of the next stream. Only the goroutine uses it, and attempt.
	queueOffset int64
	// attempt is the number of attempts since the last answer.
	attempt int
}

// delivery is an answer of a follower, or the error after which there are no more.
type delivery struct {
	follower *follower
	answer   *indexerv1.SubscribeResponse
	failure  *Error
}

// NewConsumer returns a consumer of a topic, of all its queues if the arguments name none. It begins at the committed
// offsets of the group, else at the start. The client closes it if you do not. The context bounds the calls that find
// the start. It fails with the reason TOPIC_NOT_FOUND if the topic does not exist, unless queues are named.
func (c *Client) NewConsumer(
	ctx context.Context, topic string, changes ...func(*ConsumerOptions),
) (*Consumer, error) {
	var options ConsumerOptions
	for _, change := range changes {
		change(&options)
	}
	begin, err := c.findStart(ctx, topic, &options)
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		return nil, ErrClosed
	}
	consumer := &Consumer{
		client: c, topic: topic, options: options,
		deliveries: make(chan delivery, heldAnswerCountMax*len(begin)),
		positions:  newPositions(topic, begin), followers: map[int32]*follower{},
	}
	consumer.ctx, consumer.cancel = context.WithCancel(context.Background())
	for queueID, queueOffset := range consumer.positions.all() {
		consumer.follow(queueID, queueOffset)
	}
	c.open[consumer] = struct{}{}
	return consumer, nil
}

// Next waits for the next message. It fails with the context's error if that ends before, with ErrClosed after Close,
// and with an *Error when a stream broke and could not be opened again within the retries of the client, which last
// half a minute. The next call continues at the same position.
func (c *Consumer) Next(ctx context.Context) (StoredMessage, error) {
	for {
		message, isThere, err := c.pop()
		if isThere || err != nil {
			return message, err
		}
		select {
		case delivery := <-c.deliveries:
			c.take(delivery)
		case <-c.ctx.Done():
			return StoredMessage{}, ErrClosed
		case <-ctx.Done():
			return StoredMessage{}, ctx.Err()
		}
	}
}

// Messages yields messages as Next returns them. It ends when the consumer is closed, and after the first error;
// another call continues.
func (c *Consumer) Messages(ctx context.Context) iter.Seq2[StoredMessage, error] {
	return func(yield func(StoredMessage, error) bool) {
		for {
			message, err := c.Next(ctx)
			if err == ErrClosed || !yield(message, err) || err != nil {
				return
			}
		}
	}
}

// Positions returns the next queue offset of each queue: the offset after the last message that was returned.
func (c *Consumer) Positions() map[int32]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.positions.all()
}

// Commit stores the group's offsets: all messages returned so far are done. It is durable within 5 s. It fails with
// ErrArgument without a group.
func (c *Consumer) Commit(ctx context.Context) error {
	if c.options.Group == "" {
		return badArgument("a consumer without a group has nothing to commit to")
	}
	c.mu.Lock()
	uncommitted := c.positions.uncommitted()
	c.mu.Unlock()
	for offsets := range slices.Chunk(uncommitted, committedCountMax) {
		request := &indexerv1.CommitConsumerOffsetRequest{Group: c.options.Group, Offsets: offsets}
		if _, err := c.client.groups.CommitConsumerOffset(ctx, request); err != nil {
			return err
		}
		c.mu.Lock()
		c.positions.onCommitted(offsets)
		c.mu.Unlock()
	}
	return nil
}

// Seek continues at another offset of a queue. It fails with ErrArgument for a queue that is not followed.
func (c *Consumer) Seek(queueID int32, queueOffset int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	old := c.followers[queueID]
	if old == nil {
		return badArgument("queue %d is not followed", queueID)
	}
	if c.ctx.Err() != nil {
		return ErrClosed
	}
	old.cancel()
	c.positions.move(queueID, queueOffset)
	c.follow(queueID, queueOffset)
	return nil
}

// Close ends all streams. It commits nothing. May be repeated.
func (c *Consumer) Close() error {
	c.mu.Lock()
	c.cancel() // under the lock, so that Seek opens no stream afterwards
	c.mu.Unlock()
	c.following.Wait()
	c.client.forget(c)
	return nil
}

// pop returns the next delivered message, and false if there is none.
func (c *Consumer) pop() (StoredMessage, bool, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx.Err() != nil {
		return StoredMessage{}, false, ErrClosed
	}
	message, isThere := c.positions.pop()
	if failure := c.failure; !isThere && failure != nil {
		c.failure = nil
		return message, false, failure
	}
	return message, isThere, nil
}

// take applies a delivery, unless its follower was replaced.
func (c *Consumer) take(taken delivery) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.followers[taken.follower.queueID] != taken.follower {
		return
	}
	if taken.failure != nil {
		c.failure = taken.failure
		c.follow(taken.follower.queueID, c.positions.all()[taken.follower.queueID])
		return
	}
	<-taken.follower.held
	c.positions.add(taken.follower.queueID, taken.answer)
}

// follow begins to follow a queue.
func (c *Consumer) follow(queueID int32, queueOffset int64) {
	ctx, cancel := context.WithCancel(c.ctx)
	started := &follower{
		queueID: queueID, cancel: cancel, held: make(chan struct{}, heldAnswerCountMax), queueOffset: queueOffset,
	}
	c.followers[queueID] = started
	c.following.Go(func() {
		defer cancel()
		c.run(ctx, started)
	})
}

// run follows a queue until the context ends, or until no stream can be opened any more.
func (c *Consumer) run(ctx context.Context, follower *follower) {
	for {
		failure := c.runStream(ctx, follower)
		if ctx.Err() != nil {
			return
		}
		delay, isRepeated := c.client.options.Retry.delay(follower.attempt, failure, true)
		if !isRepeated {
			c.deliver(ctx, delivery{follower: follower, failure: failure})
			return
		}
		follower.attempt++
		if sleep(ctx, delay) != nil {
			return
		}
	}
}

// runStream delivers the answers of a stream. It returns the error that ended the stream.
func (c *Consumer) runStream(ctx context.Context, follower *follower) *Error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	answers, err := c.client.queues.Subscribe(ctx, &indexerv1.SubscribeRequest{
		Topic: c.topic, QueueId: follower.queueID, QueueOffset: follower.queueOffset, TagExpression: c.options.Tags,
		WantsRecords: true,
	})
	for err == nil {
		select {
		case follower.held <- struct{}{}:
		case <-ctx.Done():
			return &Error{Code: codes.Canceled, Text: "the consumer does not follow the queue any more"}
		}
		var answer *indexerv1.SubscribeResponse
		if answer, err = answers.Recv(); err == nil {
			answer.Messages, err = messagesIn(answer)
		}
		if err == nil {
			follower.queueOffset, follower.attempt = answer.GetNextQueueOffset(), 0
			c.deliver(ctx, delivery{follower: follower, answer: answer})
		} else {
			<-follower.held
		}
	}
	if err == io.EOF {
		return streamEnded()
	}
	return asError(err)
}

// deliver passes a delivery to the caller, unless the context ends.
func (c *Consumer) deliver(ctx context.Context, delivery delivery) {
	select {
	case c.deliveries <- delivery:
	case <-ctx.Done():
	}
}

// findStart returns the start offset of each queue.
func (c *Client) findStart(ctx context.Context, topic string, options *ConsumerOptions) (map[int32]int64, error) {
	known, err := c.listQueues(ctx, topic)
	if err != nil {
		return nil, err
	}
	queueIDs := options.QueueIDs
	if len(queueIDs) == 0 {
		answer, err := commitlogv1.NewTopicServiceClient(c.commitlog).GetTopic(ctx, &commitlogv1.GetTopicRequest{Name: topic})
		if err != nil {
			return nil, err
		}
		for queueID := range answer.GetTopic().GetReadQueueCount() {
			queueIDs = append(queueIDs, queueID)
		}
		for queueID := range known {
			queueIDs = append(queueIDs, queueID)
		}
	}
	begin := map[int32]int64{}
	for _, queueID := range queueIDs {
		if _, isFound := begin[queueID]; isFound {
			continue
		}
		if begin[queueID], err = c.findStartIn(ctx, topic, queueID, known[queueID], options); err != nil {
			return nil, err
		}
	}
	return begin, nil
}

// findStartIn returns the start offset in a queue. queue is nil if the Indexer does not know it yet.
func (c *Client) findStartIn(
	ctx context.Context, topic string, queueID int32, queue *indexerv1.Queue, options *ConsumerOptions,
) (int64, error) {
	if options.Group != "" {
		request := &indexerv1.GetConsumerOffsetRequest{Group: options.Group, Topic: topic, QueueId: queueID}
		answer, err := c.groups.GetConsumerOffset(ctx, request)
		if err == nil {
			return answer.GetOffset().GetQueueOffset(), nil
		}
		if asError(err).Code != codes.NotFound {
			return 0, err
		}
	}
	switch {
	case options.Start.IsZero() || queue == nil:
		return queue.GetMinQueueOffset(), nil
	case options.Start.Equal(Latest):
		return queue.GetMaxQueueOffset(), nil
	}
	answer, err := c.queues.GetOffsetByTime(ctx, &indexerv1.GetOffsetByTimeRequest{
		Topic: topic, QueueId: queueID, Time: timestamp(options.Start),
		Boundary: indexerv1.Boundary_BOUNDARY_LOWER,
	})
	return answer.GetQueueOffset(), err
}

// listQueues returns the queues of a topic that have or had messages, by id.
func (c *Client) listQueues(ctx context.Context, topic string) (map[int32]*indexerv1.Queue, error) {
	queues := map[int32]*indexerv1.Queue{}
	request := &indexerv1.ListQueuesRequest{Topic: topic, PageSize: listPageSize}
	for {
		answer, err := c.queues.ListQueues(ctx, request)
		if err != nil {
			return nil, err
		}
		for _, queue := range answer.GetQueues() {
			queues[queue.GetQueueId()] = queue
		}
		if request.PageToken = answer.GetNextPageToken(); request.PageToken == "" {
			return queues, nil
		}
	}
}
