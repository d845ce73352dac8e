// SPDX-License-Identifier: Apache-2.0

package reput

import (
	"cmp"
	"context"
	"iter"
	"time"

	"google.golang.org/grpc/codes"
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
	return c.byKey(ctx, topic, key, "", span)
}

// byKey yields the messages of a key from the page with a token on.
func (c *Client) byKey(ctx context.Context, topic, key, first string, span Span) iter.Seq2[StoredMessage, error] {
	queries := indexerv1.NewQueryServiceClient(c.indexer)
	return pages(func(token string) (page, error) {
		return queries.QueryByKey(ctx, &indexerv1.QueryByKeyRequest{
			Topic: topic, Key: key, PageToken: cmp.Or(token, first), PageSize: pageSize, WantsRecords: true,
			StartTime: timestamp(span.Start), EndTime: timestamp(span.End),
		})
	})
}

// KeyMessages are the messages of a key.
type KeyMessages struct {
	Key string
	// Messages are all messages with the key, the newest first.
	Messages []StoredMessage
	// Err is not nil if the messages of this key can't be read: it is unknown whether there are any.
	Err error
}

// keyCountMax is as in query_service.proto.
const keyCountMax = 1024

// ByKeys finds the messages of a topic with any of many keys: a call asks for 1,024 keys. Each key is yielded once, in
// the order of the keys; a key of no message has no messages. It ends after the first error that concerns all keys.
func (c *Client) ByKeys(ctx context.Context, topic string, keys []string, span Span) iter.Seq2[KeyMessages, error] {
	return func(yield func(KeyMessages, error) bool) {
		for rest := distinct(keys); len(rest) > 0; {
			asked := rest[:min(len(rest), keyCountMax)]
			answer, err := indexerv1.NewQueryServiceClient(c.indexer).QueryByKeys(ctx, &indexerv1.QueryByKeysRequest{
				Topic: topic, Keys: asked, WantsRecords: true,
				StartTime: timestamp(span.Start), EndTime: timestamp(span.End),
			})
			if err == nil && (len(answer.GetMatches()) == 0 || len(answer.GetMatches()) > len(asked)) {
				err = nonsense("the answer does not fit the keys")
			}
			if err != nil {
				yield(KeyMessages{}, err)
				return
			}
			for number, matches := range answer.GetMatches() {
				found, err := c.matchesOf(ctx, topic, asked[number], matches, span)
				if !yield(found, err) || err != nil {
					return
				}
			}
			rest = rest[len(answer.GetMatches()):]
		}
	}
}

// matchesOf returns the messages of a key: of the answer, and of the pages behind it.
func (c *Client) matchesOf(
	ctx context.Context, topic, key string, matches *indexerv1.KeyMatches, span Span,
) (KeyMessages, error) {
	found := KeyMessages{Key: key}
	if reason := matches.GetErrorReason(); reason != "" {
		found.Err = &Error{Code: codes.DataLoss, Reason: reason, Text: matches.GetErrorText()}
		return found, nil
	}
	messages, err := messagesIn(matches)
	if err != nil {
		return KeyMessages{}, err
	}
	for _, message := range messages {
		found.Messages = append(found.Messages, StoredMessage{message})
	}
	if token := matches.GetNextPageToken(); token != "" {
		for message, err := range c.byKey(ctx, topic, key, token, span) {
			if err != nil {
				return KeyMessages{}, err
			}
			found.Messages = append(found.Messages, message)
		}
	}
	return found, nil
}

// distinct returns the texts without repetitions.
func distinct(texts []string) []string {
	seen, found := map[string]bool{}, []string{}
	for _, text := range texts {
		if !seen[text] {
			seen[text] = true
			found = append(found, text)
		}
	}
	return found
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
