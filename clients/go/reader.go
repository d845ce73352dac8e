// SPDX-License-Identifier: Apache-2.0

package reput

import (
	"context"
	"iter"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	indexerv1 "reput/clients/go/reputpb/indexer/v1"
)

// pageSize is the number of messages in a page of a query.
const pageSize = 256

// PullRequest has the arguments of a pull.
type PullRequest struct {
	Topic string
	// QueueID is the queue within the topic, from 0.
	QueueID int32
	// QueueOffset is the first entry to read, from 0.
	QueueOffset int64
	// MessageCountMax bounds the messages of the answer. 0: 32; above 4,096: 4,096.
	MessageCountMax int32
	// SizeBytesMax bounds the records of the answer; the first record always fits. 0: 256 KiB; above 8 MiB: 8 MiB.
	SizeBytesMax int32
	// Tags are separated by "||", at most 1,000. Empty or "*": all messages.
	Tags string
	// Wait is how long to wait for the first message. 0: not at all; above 30 s: 30 s.
	Wait time.Duration
}

// PullResult is the result of a pull. Its other fields are the fields of reput.indexer.v1.PullResponse: Status,
// NextQueueOffset (the offset to continue at), MinQueueOffset, and MaxQueueOffset (exclusive). An offset outside of the
// queue is a status, no error.
type PullResult struct {
	*indexerv1.PullResponse
	// Messages are in the order of the queue.
	Messages []StoredMessage
}

// Pull reads messages of a queue once.
func (c *Client) Pull(ctx context.Context, request PullRequest) (PullResult, error) {
	ctx, cancel := c.indexer.limited(ctx, request.Wait)
	defer cancel()
	answer, err := c.queues.Pull(ctx, &indexerv1.PullRequest{
		Topic: request.Topic, QueueId: request.QueueID, QueueOffset: request.QueueOffset,
		MessageCountMax: request.MessageCountMax, SizeBytesMax: request.SizeBytesMax,
		TagExpression: request.Tags, Wait: durationpb.New(request.Wait), WantsRecords: true,
	})
	if err != nil {
		return PullResult{}, err
	}
	messages, err := messagesIn(answer)
	if err != nil {
		return PullResult{}, err
	}
	result := PullResult{PullResponse: answer}
	for _, message := range messages {
		result.Messages = append(result.Messages, StoredMessage{message})
	}
	return result, nil
}

// Span bounds store times, in whole milliseconds. The zero value has no bounds.
type Span struct {
	// Start is inclusive, End exclusive. Zero: no such bound.
	Start, End time.Time
}

// ByKey finds the messages of a topic with a key, or a unique id, the newest first. It fetches further pages as needed,
// and ends after the first error.
func (c *Client) ByKey(ctx context.Context, topic, key string, span Span) iter.Seq2[StoredMessage, error] {
	queries := indexerv1.NewQueryServiceClient(c.indexer)
	return pages(func(token string) (page, error) {
		return queries.QueryByKey(ctx, &indexerv1.QueryByKeyRequest{
			Topic: topic, Key: key, PageToken: token, PageSize: pageSize, WantsRecords: true,
			StartTime: timestamp(span.Start), EndTime: timestamp(span.End),
		})
	})
}

// ByTime finds messages of a topic by their store time, ordered by queue and queue offset. A queue id, as in
// new(int32(2)), selects the only queue to search; nil: all queues. It fetches further pages as needed, and ends after
// the first error.
func (c *Client) ByTime(
	ctx context.Context, topic string, queueID *int32, span Span,
) iter.Seq2[StoredMessage, error] {
	queries := indexerv1.NewQueryServiceClient(c.indexer)
	return pages(func(token string) (page, error) {
		return queries.QueryByTime(ctx, &indexerv1.QueryByTimeRequest{
			Topic: topic, QueueId: queueID, PageToken: token, PageSize: pageSize, WantsRecords: true,
			StartTime: timestamp(span.Start), EndTime: timestamp(span.End),
		})
	})
}

// ByID returns the message with an offset message id. With a topic that is not empty the id is a unique id instead; of
// several messages the newest is returned. The reason of the error is MESSAGE_NOT_FOUND if there is none.
func (c *Client) ByID(ctx context.Context, id, topic string) (StoredMessage, error) {
	request := &indexerv1.QueryByIdRequest{MessageId: id, Topic: topic}
	answer, err := indexerv1.NewQueryServiceClient(c.indexer).QueryById(ctx, request)
	if err != nil {
		return StoredMessage{}, err
	}
	return StoredMessage{answer.GetMessage()}, nil
}

// WaitIndexed returns when a message that was just sent is indexed, so that queries find it: some milliseconds after it
// was stored. After that a delayed message still waits for its time. For several messages, wait for the message with
// the largest physical offset. The reason of the error is RECOVERING if the indexes do not reach it within the client's
// time-out.
func (c *Client) WaitIndexed(ctx context.Context, sent Result) error {
	request := &indexerv1.WaitIndexedRequest{PhysicalOffset: sent.PhysicalOffset}
	_, err := indexerv1.NewIndexServiceClient(c.indexer).WaitIndexed(ctx, request)
	return err
}

// page is an answer to a query.
type page interface {
	messagesAnswer
	GetNextPageToken() string
}

// pages yields the messages of all pages; fetch gets the page of a token.
func pages(fetch func(token string) (page, error)) iter.Seq2[StoredMessage, error] {
	return func(yield func(StoredMessage, error) bool) {
		for token := ""; ; {
			answer, err := fetch(token)
			if err != nil {
				yield(StoredMessage{}, err)
				return
			}
			messages, err := messagesIn(answer)
			if err != nil {
				yield(StoredMessage{}, err)
				return
			}
			for _, message := range messages {
				if !yield(StoredMessage{message}, nil) {
					return
				}
			}
			if token = answer.GetNextPageToken(); token == "" {
				return
			}
		}
	}
}

// timestamp returns a time for a request; the zero time stays absent.
func timestamp(time time.Time) *timestamppb.Timestamp {
	if time.IsZero() {
		return nil
	}
	return timestamppb.New(time)
}
