// SPDX-License-Identifier: Apache-2.0

package reput

import (
	"encoding/binary"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	commitlogv1 "reput/clients/go/reputpb/commitlog/v1"
)

const (
	// batchMessageCountMax is as in append_service.proto.
	batchMessageCountMax = 32_768
	// hurriedInFlightMax: while so many batches are in flight, a batch that callers wait for collects further messages
	// until an outcome comes or its linger ends. The second batch is sent while the outcome of the first is on its way.
	hurriedInFlightMax = 2
)

// topicReasons are the reasons of refusals that concern all messages of a topic.
var topicReasons = map[string]bool{
	"TOPIC_NOT_FOUND": true, "TOPIC_FORBIDDEN": true, "TOPIC_SET_APART": true, "BAD_TOPIC_NAME": true,
	"NOT_PERMITTED": true,
}

var messageIndex = regexp.MustCompile(`messages\[(\d+)\]`)

// sendQueue is the logic of a producer: batches, the window, outcomes, retries and splits. No I/O, no clock, no
// goroutines.
//
// The states of a message: in the open batch -> ready -> in flight -> settled, or ready again when it is retried.
//
// Invariants: batches are in flight in the order in which pop returned them, and outcomes come in this order.
// unsettledBytes is the size of all messages that were added and not settled. pop returns no batch before blockedUntil,
// nor between a refusal that moves appends to another address and the end of the stream.
//
// Messages are stored in the order of add, apart from repetitions behind their first copy. A batch that is sent while
// others are in flight needs the batch before it: the server refuses it with AFTER_REFUSAL if that one was refused, and
// it waits again behind the refused messages. After a refusal or a broken stream a single batch is in flight until a
// batch is stored.
//
// Callers: a single caller at a time, under a lock. Futures of settled messages have their outcomes, and stay in
// settled until the caller has released the lock and wakes the goroutines that wait for them.
//
// A bad message must not fail the other messages of its batch. A refusal that names messages[i] fails this message, and
// the rest is sent again. A refusal that names a topic fails all messages of this topic. Any other refusal of the batch
// as invalid cuts the batch in halves.
type sendQueue struct {
	options        ProducerOptions
	unsettledBytes int
	blockedUntil   time.Time
	// moved is the refusal that moves appends to another address.
	moved *Error
	// isProbing: a batch is sent only while no other is in flight.
	isProbing bool

	open          []*Future
	openSizeBytes int
	openUntil     time.Time
	// isHurried: a caller waits for a message of the open batch.
	isHurried  bool
	batchCount int
	// ready is in the order of the batches.
	ready    []*batch
	inFlight []*batch
	settled  [][]*Future
}

// batch has messages that are sent together, and the number of failed attempts.
type batch struct {
	messages []*Future
	// order is the batch's place among all batches: a number; for a part of a cut batch the part's number is added.
	order   []int
	attempt int
	// followCount is the number of attempts in a row that were sent to the leader of an answer; these are no failed
	// attempts.
	followCount int
	// mayBeStored: an earlier attempt may have reached the server, or the server stored it and can't guarantee to keep
	// it.
	mayBeStored bool
	// needsPrevious: it was sent while other batches were in flight.
	needsPrevious bool
	sizeBytes     int
}

func newBatch(messages []*Future, order []int) *batch {
	sizeBytes := 0
	for _, message := range messages {
		sizeBytes += len(message.chunk)
	}
	return &batch{messages: messages, order: order, sizeBytes: sizeBytes}
}

// toRequest returns the request. Its messages are serialized already, so they are sent as unknown fields: the bytes on
// the wire are the same.
func (b *batch) toRequest(durability Durability) *commitlogv1.AppendStreamRequest {
	chunks := make([]byte, 0, b.sizeBytes)
	for _, message := range b.messages {
		chunks = append(chunks, message.chunk...)
	}
	request := &commitlogv1.AppendStreamRequest{Durability: durability, NeedsPrevious: b.needsPrevious}
	request.ProtoReflect().SetUnknown(chunks)
	return request
}

func (q *sendQueue) isIdle() bool { return q.unsettledBytes == 0 }

// hasRoom reports whether a message of this size may be added now. An empty queue takes a message of any size.
func (q *sendQueue) hasRoom(sizeBytes int) bool {
	return q.isIdle() || q.unsettledBytes+sizeBytes <= q.options.WindowBytes
}

// add adds a message. It reports whether a batch began or became ready, so that the sender must look again.
func (q *sendQueue) add(message *Future, now time.Time) bool {
	isNews := false
	sizeBytes := len(message.chunk)
	if len(q.open) > 0 && q.openSizeBytes+sizeBytes > q.options.BatchSizeBytes {
		q.closeBatch()
		isNews = true
	}
	if len(q.open) == 0 {
		q.openUntil, q.isHurried = now.Add(q.options.Linger), false
		isNews = true
	}
	q.open = append(q.open, message)
	q.openSizeBytes += sizeBytes
	q.unsettledBytes += sizeBytes
	if q.openSizeBytes >= q.options.BatchSizeBytes || len(q.open) >= batchMessageCountMax {
		q.closeBatch()
		isNews = true
	}
	return isNews
}

// batchNumber returns the number of the batch that the last message was added to.
func (q *sendQueue) batchNumber() int {
	if len(q.open) > 0 {
		return q.batchCount + 1
	}
	return q.batchCount
}

// hurry ends the linger of the open batch, if it has this number: a caller waits for the outcome of its messages. The
// linger goes on while hurriedInFlightMax batches are in flight. Further messages are added until the batch is popped.
// It reports whether the sender must look again.
func (q *sendQueue) hurry(batchNumber int) bool {
	if len(q.open) == 0 || batchNumber != q.batchNumber() || q.isHurried {
		return false
	}
	q.isHurried = true
	return len(q.inFlight) < hurriedInFlightMax
}

// lingerUntil returns the time until the open batch collects messages.
func (q *sendQueue) lingerUntil() time.Time {
	if q.isHurried && len(q.inFlight) < hurriedInFlightMax {
		return time.Time{}
	}
	return q.openUntil
}

// closeBatch makes the open batch ready, at any age.
func (q *sendQueue) closeBatch() {
	if len(q.open) > 0 {
		q.batchCount++
		q.ready = append(q.ready, newBatch(q.open, []int{q.batchCount}))
		q.open, q.openSizeBytes = nil, 0
	}
}

// pop returns the next batch to send, nil if no batch is due. It is in flight from now on.
func (q *sendQueue) pop(now time.Time) *batch {
	if q.mustWait() || now.Before(q.blockedUntil) {
		return nil
	}
	if len(q.ready) == 0 && !now.Before(q.lingerUntil()) {
		q.closeBatch()
	}
	if len(q.ready) == 0 {
		return nil
	}
	next := popFront(&q.ready)
	next.needsPrevious = len(q.inFlight) > 0
	q.inFlight = append(q.inFlight, next)
	return next
}

// mustWait reports whether pop returns no batch before another outcome, or before the end of the stream.
func (q *sendQueue) mustWait() bool { return q.moved != nil || q.isProbing && len(q.inFlight) > 0 }

// wait returns the time until pop may return a batch, and false if it returns none before another event.
func (q *sendQueue) wait(now time.Time) (time.Duration, bool) {
	if q.mustWait() || len(q.ready) == 0 && len(q.open) == 0 {
		return 0, false
	}
	until := q.blockedUntil
	if len(q.ready) == 0 {
		if linger := q.lingerUntil(); linger.After(until) {
			until = linger
		}
	}
	return max(0, until.Sub(now)), true
}

// onOutcomes applies the server's answers to the batches in flight, oldest first. It fails for an inconsistent answer;
// its batch is still in flight then.
func (q *sendQueue) onOutcomes(outcomes []*commitlogv1.AppendOutcome, now time.Time) *Error {
	for _, outcome := range outcomes {
		if len(q.inFlight) == 0 {
			return nonsense("more outcomes than batches")
		}
		oldest := q.inFlight[0]
		if result := outcome.GetResult(); result != nil {
			if failure := q.onStored(oldest, result); failure != nil {
				return failure
			}
		} else if refusal := outcome.GetError(); refusal != nil {
			q.onRefused(oldest, fromStatus(status.FromProto(refusal)), now)
		} else {
			return nonsense("an outcome without a result and an error")
		}
		popFront(&q.inFlight)
	}
	return nil
}

// movedAway returns the refusal that moves appends to another address, when no batch is in flight: then the stream may
// end.
func (q *sendQueue) movedAway() *Error {
	if len(q.inFlight) > 0 {
		return nil
	}
	return q.moved
}

// onUnsent makes the youngest batch in flight ready again: the stream was over before it was sent.
func (q *sendQueue) onUnsent(unsent *batch) {
	if last := len(q.inFlight) - 1; last >= 0 && q.inFlight[last] == unsent {
		q.inFlight = slices.Delete(q.inFlight, last, last+1)
		q.putBack(unsent)
	}
}

// onBroken makes the batches in flight ready again after the end of the stream, or fails them if no retry is left.
// wasOpen: they may have reached the server.
func (q *sendQueue) onBroken(failure *Error, now time.Time, wasOpen bool) {
	var again []*batch
	for _, lost := range q.inFlight {
		lost.mayBeStored = lost.mayBeStored || wasOpen && !refusesCall(failure.Code)
		if q.mayRetry(lost, failure, now) {
			again = append(again, lost)
		} else {
			q.fail(lost, lost.messages, failure)
		}
	}
	q.inFlight, q.moved, q.isProbing = nil, nil, true
	q.ready = append(again, q.ready...)
	slices.SortFunc(q.ready, byOrder)
}

// failAll fails all messages, for a producer that is closed before all messages are settled.
func (q *sendQueue) failAll(failure *Error) {
	q.closeBatch()
	for _, given := range q.inFlight {
		given.mayBeStored = true
		q.fail(given, given.messages, failure)
	}
	for _, given := range q.ready {
		q.fail(given, given.messages, failure)
	}
	q.inFlight, q.ready = nil, nil
}

// popSettled returns the futures that have their outcomes, each once.
func (q *sendQueue) popSettled() [][]*Future {
	settled := q.settled
	q.settled = nil
	return settled
}

func (q *sendQueue) onStored(stored *batch, result *commitlogv1.AppendResult) *Error {
	count := len(stored.messages)
	if len(result.GetPhysicalOffsets()) != count || len(result.GetQueueIds()) != count ||
		len(result.GetQueueOffsets()) != count {
		return nonsense("a result for another number of messages")
	}
	storeTime := time.UnixMilli(result.GetStoreTimeMs())
	port := uint32(result.GetStoreHost().GetPort())
	storeHost := binary.BigEndian.AppendUint32(slices.Clone(result.GetStoreHost().GetAddress()), port)
	for index, message := range stored.messages {
		message.result.QueueID = result.QueueIds[index]
		message.result.QueueOffset = result.QueueOffsets[index]
		message.result.PhysicalOffset = result.PhysicalOffsets[index]
		message.result.StoreTime, message.result.storeHost = storeTime, storeHost
		message.result.Durability = result.GetDurability()
	}
	q.isProbing = false
	q.settle(stored.messages, stored.sizeBytes)
	return nil
}

func (q *sendQueue) onRefused(refused *batch, failure *Error, now time.Time) {
	q.isProbing = true
	if failure.Reason == reasonAfterRefusal && refused.needsPrevious { // as if it had never been sent
		q.putBack(refused)
		return
	}
	if failure.Reason == reasonNotLeader || failure.Reason == reasonLeaseOver {
		q.moved = failure
	}
	if failure.Reason == reasonLeaseOver { // stored, and perhaps dropped by the next leader: as after a broken stream
		refused.mayBeStored = true
	}
	if isFollowed(failure, refused.followCount) {
		refused.followCount++
		q.putBack(refused)
		return
	}
	if q.mayRetry(refused, failure, now) {
		q.putBack(refused)
		return
	}
	bad, rest := split(refused.messages, failure)
	q.fail(refused, bad, failure)
	for part, messages := range rest {
		again := newBatch(messages, refused.order)
		if len(rest) > 1 {
			again.order = append(slices.Clone(refused.order), part)
		}
		again.attempt, again.mayBeStored = refused.attempt, refused.mayBeStored
		q.putBack(again)
	}
}

// mayRetry reports whether a batch is retried after a failed attempt, and blocks the queue until then.
func (q *sendQueue) mayRetry(failed *batch, failure *Error, now time.Time) bool {
	delay, isRepeated := q.options.Retry.delay(failed.attempt, failure, true)
	if !isRepeated {
		return false
	}
	failed.attempt, failed.followCount = failed.attempt+1, 0
	if until := now.Add(delay); until.After(q.blockedUntil) {
		q.blockedUntil = until
	}
	return true
}

// putBack makes a batch ready, before all younger batches.
func (q *sendQueue) putBack(again *batch) {
	index, _ := slices.BinarySearchFunc(q.ready, again, byOrder)
	q.ready = slices.Insert(q.ready, index, again)
}

func byOrder(a, b *batch) int { return slices.Compare(a.order, b.order) }

func popFront(batches *[]*batch) *batch {
	first := (*batches)[0]
	(*batches)[0] = nil
	*batches = (*batches)[1:]
	return first
}

// fail settles messages of a batch with an error.
func (q *sendQueue) fail(failed *batch, messages []*Future, failure *Error) {
	if len(messages) == 0 {
		return
	}
	if failed.mayBeStored {
		unknown := *failure
		unknown.IsOutcomeUnknown = true
		failure = &unknown
	}
	sizeBytes := 0
	for _, message := range messages {
		message.failure = failure
		sizeBytes += len(message.chunk)
	}
	q.settle(messages, sizeBytes)
}

func (q *sendQueue) settle(messages []*Future, sizeBytes int) {
	for _, message := range messages {
		message.chunk = nil // a program that keeps a future does not keep the message
	}
	q.unsettledBytes -= sizeBytes
	q.settled = append(q.settled, messages)
}

// split returns the messages that a refusal names, and the other messages in batches to send again.
func split(messages []*Future, failure *Error) (bad []*Future, rest [][]*Future) {
	index, topic := refusedIndex(failure), failure.Metadata["topic"]
	if index >= 0 && index < len(messages) {
		topic = messages[index].topic
	}
	var good []*Future
	for at, message := range messages {
		isBad := at == index
		if topicReasons[failure.Reason] {
			isBad = message.topic == topic
		}
		if isBad {
			bad = append(bad, message)
		} else {
			good = append(good, message)
		}
	}
	half := len(messages) / 2
	switch {
	case len(bad) > 0 && len(good) > 0:
		return bad, [][]*Future{good}
	case len(bad) == 0 && failure.Code == codes.InvalidArgument && half > 0:
		return nil, [][]*Future{messages[:half], messages[half:]}
	}
	return messages, nil
}

// refusedIndex returns i of the messages[i] that a refusal names, -1 if it names none.
func refusedIndex(failure *Error) int {
	names := strings.Join(failure.Fields, " ") + " " + failure.Metadata["field"]
	match := messageIndex.FindStringSubmatch(names)
	if match == nil {
		return -1
	}
	index, _ := strconv.Atoi(match[1]) // a number that is too large becomes the largest number
	return index
}
