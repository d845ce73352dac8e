// SPDX-License-Identifier: Apache-2.0

package reput

import (
	"cmp"
	"maps"
	"slices"

	indexerv1 "reput/clients/go/reputpb/indexer/v1"
)

// positions has the messages that were delivered and not yet returned, and the next queue offset of each queue: the
// offset after the last message that the caller got. No I/O; a single caller at a time.
type positions struct {
	topic     string
	waiting   []delivered
	next      map[int32]int64
	committed map[int32]int64
}

// delivered is a message with the position behind it.
type delivered struct {
	message StoredMessage
	queueID int32
	next    int64
}

func newPositions(topic string, begin map[int32]int64) positions {
	return positions{topic: topic, next: begin, committed: map[int32]int64{}}
}

// add adds an answer of a queue's stream. Called when no message waits any more.
func (p *positions) add(queueID int32, answer *indexerv1.SubscribeResponse) {
	messages := answer.GetMessages()
	if len(messages) == 0 {
		p.next[queueID] = answer.GetNextQueueOffset()
		return
	}
	for _, message := range messages {
		p.waiting = append(p.waiting, delivered{StoredMessage{message}, queueID, message.GetQueueOffset() + 1})
	}
	p.waiting[len(p.waiting)-1].next = answer.GetNextQueueOffset()
}

// pop returns the next message, and false if no message waits.
func (p *positions) pop() (StoredMessage, bool) {
	if len(p.waiting) == 0 {
		return StoredMessage{}, false
	}
	first := p.waiting[0]
	p.waiting[0] = delivered{}
	p.waiting = p.waiting[1:]
	p.next[first.queueID] = first.next
	return first.message, true
}

// move sets the position of a queue, and drops its waiting messages.
func (p *positions) move(queueID int32, queueOffset int64) {
	p.waiting = slices.DeleteFunc(p.waiting, func(d delivered) bool { return d.queueID == queueID })
	p.next[queueID] = queueOffset
}

// all returns the next queue offset of each queue.
func (p *positions) all() map[int32]int64 { return maps.Clone(p.next) }

// uncommitted returns the positions that changed since they were last committed, by queue.
func (p *positions) uncommitted() []*indexerv1.ConsumerOffset {
	var offsets []*indexerv1.ConsumerOffset
	for queueID, queueOffset := range p.next {
		if committed, isCommitted := p.committed[queueID]; !isCommitted || committed != queueOffset {
			offsets = append(offsets, &indexerv1.ConsumerOffset{
				Topic: p.topic, QueueId: queueID, QueueOffset: queueOffset,
			})
		}
	}
	slices.SortFunc(offsets, func(a, b *indexerv1.ConsumerOffset) int { return cmp.Compare(a.QueueId, b.QueueId) })
	return offsets
}

// onCommitted records committed offsets.
func (p *positions) onCommitted(offsets []*indexerv1.ConsumerOffset) {
	for _, offset := range offsets {
		p.committed[offset.GetQueueId()] = offset.GetQueueOffset()
	}
}
