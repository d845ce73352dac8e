// SPDX-License-Identifier: Apache-2.0

package reput

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	spb "google.golang.org/genproto/googleapis/rpc/status"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	commitlogv1 "reput/clients/go/reputpb/commitlog/v1"
	commonv1 "reput/clients/go/reputpb/common/v1"
)

var epoch = time.UnixMilli(1_700_000_000_000)

// at returns a time of the tests' clock.
func at(milliseconds int) time.Time { return epoch.Add(time.Duration(milliseconds) * time.Millisecond) }

// newQueue has batches of 30 bytes and a window of 100, which is 3 and 10 messages of makeMessage.
func newQueue(changes ...func(*ProducerOptions)) *sendQueue {
	options := defaultProducerOptions(DefaultRetryPolicy())
	options.BatchSizeBytes, options.WindowBytes = 30, 100
	for _, change := range changes {
		change(&options)
	}
	return &sendQueue{options: options}
}

func retries(count int) func(*ProducerOptions) {
	return func(options *ProducerOptions) { options.Retry.Retries = count }
}

// makeMessage returns a message of 10 bytes whose unique id is its name.
func makeMessage(topic, name string) *Future {
	return newFuture([]byte(fmt.Sprintf("%-10s", name)), topic, name)
}

// addAll adds messages with these names, a letter each, and makes them ready as a batch.
func addAll(q *sendQueue, letters string) []*Future {
	var messages []*Future
	for _, letter := range letters {
		messages = append(messages, makeMessage("t", string(letter)))
		q.add(messages[len(messages)-1], at(0))
	}
	q.closeBatch()
	return messages
}

// names returns the names of the messages of a batch, "" for none.
func names(b *batch) string {
	if b == nil {
		return ""
	}
	var text strings.Builder
	for _, message := range b.messages {
		text.WriteString(message.result.UniqueID)
	}
	return text.String()
}

func stored(queueID int32, offsets ...int64) *commitlogv1.AppendOutcome {
	return &commitlogv1.AppendOutcome{Outcome: &commitlogv1.AppendOutcome_Result{Result: &commitlogv1.AppendResult{
		StoreTimeMs: 5, Durability: commonv1.Durability_DURABILITY_LOCAL_DISK,
		PhysicalOffsets: offsets, QueueOffsets: offsets, QueueIds: slices.Repeat([]int32{queueID}, len(offsets)),
		StoreHost: &commonv1.Host{Address: []byte{127, 0, 0, 1}, Port: 0x1234},
	}}}
}

func refused(code codes.Code, reason string, metadata map[string]string, fields ...string) *commitlogv1.AppendOutcome {
	info, _ := anypb.New(&errdetails.ErrorInfo{Domain: "reput", Reason: reason, Metadata: metadata})
	bad := &errdetails.BadRequest{}
	for _, field := range fields {
		bad.FieldViolations = append(bad.FieldViolations, &errdetails.BadRequest_FieldViolation{Field: field})
	}
	request, _ := anypb.New(bad)
	return &commitlogv1.AppendOutcome{Outcome: &commitlogv1.AppendOutcome_Error{
		Error: &spb.Status{Code: int32(code), Message: "no", Details: []*anypb.Any{info, request}},
	}}
}

// apply gives outcomes to a queue and fails the test if the queue refuses them.
func apply(t *testing.T, q *sendQueue, now time.Time, outcomes ...*commitlogv1.AppendOutcome) {
	t.Helper()
	if failure := q.onOutcomes(outcomes, now); failure != nil {
		t.Fatal(failure)
	}
}

// settled returns the names of settled messages, and by name the reason of failed messages, with "?" where the outcome
// is not known.
func settled(q *sendQueue) (string, map[string]string) {
	var all strings.Builder
	failed := map[string]string{}
	for _, messages := range q.popSettled() {
		for _, message := range messages {
			all.WriteString(message.result.UniqueID)
			if message.failure != nil {
				failed[message.result.UniqueID] = message.failure.Reason
				if message.failure.IsOutcomeUnknown {
					failed[message.result.UniqueID] += "?"
				}
			}
		}
	}
	return all.String(), failed
}

func wantBatch(t *testing.T, b *batch, want string) *batch {
	t.Helper()
	if got := names(b); got != want {
		t.Fatalf("the batch is %q, not %q", got, want)
	}
	return b
}

// wantOneByOne stores these batches, and checks that no batch is sent with the first batch.
func wantOneByOne(t *testing.T, q *sendQueue, wanted ...string) {
	t.Helper()
	for index, want := range wanted {
		popped := wantBatch(t, q.pop(at(99)), want)
		if index == 0 {
			wantBatch(t, q.pop(at(99)), "")
		}
		apply(t, q, at(99), stored(0, make([]int64, len(popped.messages))...))
	}
}

func wantSettled(t *testing.T, q *sendQueue, want string, wantFailed map[string]string) {
	t.Helper()
	got, failed := settled(q)
	if got != want || fmt.Sprint(failed) != fmt.Sprint(wantFailed) {
		t.Fatalf("settled are %q and failed %v, not %q and %v", got, failed, want, wantFailed)
	}
}

// A batch is due when it is full, or when its first message has waited for the linger time.
func TestQueueCollects(t *testing.T) {
	q := newQueue()
	if !q.add(makeMessage("t", "a"), at(0)) || q.add(makeMessage("t", "b"), at(1)) {
		t.Fatal("the beginning of a batch is news, and nothing else before it is full")
	}
	wantBatch(t, q.pop(at(4)), "")
	if wait, isTimed := q.wait(at(2)); !isTimed || wait != 3*time.Millisecond {
		t.Fatal(wait, isTimed)
	}
	if !q.add(makeMessage("t", "c"), at(4)) {
		t.Fatal("a full batch is news")
	}
	wantBatch(t, q.pop(at(4)), "abc")
	q.add(makeMessage("t", "d"), at(10))
	wantBatch(t, q.pop(at(14)), "")
	wantBatch(t, q.pop(at(15)), "d")
	if _, isTimed := q.wait(at(15)); isTimed {
		t.Fatal("there is nothing to wait for")
	}
}

// A message that does not fit any more begins the next batch, and a large message is sent alone.
func TestQueueCutsBySize(t *testing.T) {
	q := newQueue()
	q.add(makeMessage("t", "a"), at(0))
	q.add(newFuture(make([]byte, 25), "t", "L"), at(0))
	q.add(makeMessage("t", "b"), at(0))
	wantBatch(t, q.pop(at(0)), "a")
	wantBatch(t, q.pop(at(0)), "L")
	wantBatch(t, q.pop(at(0)), "")
	wantBatch(t, q.pop(at(5)), "b")
}

// A batch has at most as many messages as the server accepts.
func TestQueueCutsByCount(t *testing.T) {
	q := newQueue(func(options *ProducerOptions) { options.BatchSizeBytes, options.WindowBytes = 8<<20, 8<<20 })
	for range batchMessageCountMax {
		q.add(newFuture([]byte("x"), "t", ""), at(0))
	}
	if full := q.pop(at(0)); full == nil || len(full.messages) != batchMessageCountMax {
		t.Fatal("the batch is not full")
	}
}

// The window bounds the messages without an outcome; an empty window takes a message of any size.
func TestQueueWindow(t *testing.T) {
	q := newQueue()
	if !q.hasRoom(1000) {
		t.Fatal("an empty window takes any message")
	}
	addAll(q, "abcdefghi")
	if !q.hasRoom(10) || q.hasRoom(11) {
		t.Fatal("the window has 100 bytes")
	}
	wantBatch(t, q.pop(at(0)), "abc")
	if q.hasRoom(11) {
		t.Fatal("what is in flight has no outcome yet")
	}
	apply(t, q, at(0), stored(0, 1, 2, 3))
	if !q.hasRoom(40) || q.hasRoom(41) {
		t.Fatal("30 bytes are settled")
	}
}

// A request has the messages in sequence, and the durability.
func TestBatchRequest(t *testing.T) {
	chunk, err := toChunk(&commitlogv1.AppendMessage{Topic: "t", Body: []byte("hello")})
	if err != nil {
		t.Fatal(err)
	}
	future := newFuture(chunk, "t", "")
	request, err := proto.Marshal(newBatch([]*Future{future, future}, nil).toRequest(DurabilityReplicated))
	if err != nil {
		t.Fatal(err)
	}
	var parsed commitlogv1.AppendStreamRequest
	if err := proto.Unmarshal(request, &parsed); err != nil {
		t.Fatal(err)
	}
	if len(parsed.Messages) != 2 || string(parsed.Messages[1].Body) != "hello" || parsed.Durability != 3 {
		t.Fatal(&parsed)
	}
}

// Outcomes belong to the batches in the order in which pop returned them.
func TestQueueStored(t *testing.T) {
	q := newQueue()
	messages := addAll(q, "abcd")
	wantBatch(t, q.pop(at(0)), "abc")
	wantBatch(t, q.pop(at(0)), "d")
	apply(t, q, at(0), stored(2, 7, 8, 9), stored(3, 0x1F))
	wantSettled(t, q, "abcd", map[string]string{})
	b, d := messages[1].result, messages[3].result
	if b.QueueID != 2 || b.QueueOffset != 8 || b.PhysicalOffset != 8 || b.StoreTime.UnixMilli() != 5 ||
		b.Durability != DurabilityLocalDisk || b.UniqueID != "b" || d.QueueID != 3 {
		t.Fatal(b, d)
	}
	if id := d.OffsetMessageID(); id != "7F00000100001234000000000000001F" {
		t.Fatal(id)
	}
	if !q.isIdle() || messages[0].chunk != nil {
		t.Fatal("what is settled takes no room")
	}
}

// An inconsistent answer is an error, and its batch stays in flight.
func TestQueueNonsense(t *testing.T) {
	for name, outcomes := range map[string][]*commitlogv1.AppendOutcome{
		"too many": {stored(0, 1, 2, 3), stored(0, 1)}, "columns": {stored(0, 1, 2)}, "empty": {{}},
	} {
		q := newQueue(retries(0))
		addAll(q, "abc")
		q.pop(at(0))
		failure := q.onOutcomes(outcomes, at(0))
		if failure == nil || failure.Code != codes.Internal {
			t.Error(name, failure)
		}
		q.onBroken(failure, at(0), true)
		if all, _ := settled(q); all != "abc" || !q.isIdle() {
			t.Error(name, all)
		}
	}
}

// A refusal fails the messages that it names, and the rest is sent again at once, before younger messages.
func TestQueueRefused(t *testing.T) {
	cases := []struct {
		name    string
		outcome *commitlogv1.AppendOutcome
		failed  string
		again   []string
	}{
		{"by index", refused(codes.InvalidArgument, "MESSAGE_TOO_LARGE", nil, "messages[1].body"), "b", []string{"ac"}},
		{"by index in the metadata",
			refused(codes.InvalidArgument, "BAD_ARGUMENT", map[string]string{"field": "messages[2].flag"}), "c", []string{"ab"}},
		{"by index, whatever the code", refused(codes.FailedPrecondition, "X", nil, "messages[0].x"), "a", []string{"bc"}},
		{"topic by index", refused(codes.NotFound, "TOPIC_NOT_FOUND", nil, "messages[1].topic"), "bc", []string{"a"}},
		{"topic by metadata",
			refused(codes.PermissionDenied, "TOPIC_FORBIDDEN", map[string]string{"topic": "u"}), "bc", []string{"a"}},
		{"a topic that nobody has", refused(codes.InvalidArgument, "BAD_TOPIC_NAME", nil), "", []string{"a", "bc"}},
		{"set apart, unnamed", refused(codes.FailedPrecondition, "TOPIC_SET_APART", nil), "abc", nil},
		{"halves", refused(codes.InvalidArgument, "BATCH_TOO_LARGE", nil), "", []string{"a", "bc"}},
		{"an index outside", refused(codes.InvalidArgument, "X", nil, "messages[3].body"), "", []string{"a", "bc"}},
		{"no number", refused(codes.InvalidArgument, "X", nil, "messages[99999999999999999999]"), "", []string{"a", "bc"}},
		{"the batch", refused(codes.FailedPrecondition, "STORE_SEALED", nil), "abc", nil},
	}
	for _, c := range cases {
		t.Run(c.name, func(t *testing.T) {
			q := newQueue()
			for _, message := range []*Future{makeMessage("t", "a"), makeMessage("u", "b"), makeMessage("u", "c")} {
				q.add(message, at(0))
			}
			addAll(q, "z")
			wantBatch(t, q.pop(at(0)), "abc")
			apply(t, q, at(0), c.outcome)
			if got, _ := settled(q); got != c.failed {
				t.Fatalf("failed are %q, not %q", got, c.failed)
			}
			wantOneByOne(t, q, append(c.again, "z")...)
		})
	}
}

// Halves of halves stay in their order, until the bad message is alone.
func TestQueueHalves(t *testing.T) {
	q := newQueue(func(options *ProducerOptions) { options.BatchSizeBytes = 100 })
	addAll(q, "abcd")
	addAll(q, "z")
	outcome := refused(codes.InvalidArgument, "REQUEST_TOO_LARGE", nil)
	for _, want := range []string{"abcd", "ab", "a"} {
		wantBatch(t, q.pop(at(0)), want)
		apply(t, q, at(0), outcome)
	}
	wantSettled(t, q, "a", map[string]string{"a": "REQUEST_TOO_LARGE"})
	wantOneByOne(t, q, "b", "cd", "z")
}

// A batch that failed for a temporary reason is retried unchanged, after a delay in which no batch is due.
func TestQueueRetries(t *testing.T) {
	q := newQueue(retries(1))
	addAll(q, "abcd")
	q.pop(at(0))
	q.pop(at(0))
	apply(t, q, at(0), refused(codes.ResourceExhausted, "STORE_FULL", nil), stored(0, 1))
	addAll(q, "e")
	wantSettled(t, q, "d", map[string]string{})
	wantBatch(t, q.pop(at(24)), "")
	if wait, isTimed := q.wait(at(0)); !isTimed || wait < 25*time.Millisecond || wait > 50*time.Millisecond {
		t.Fatal(wait, isTimed)
	}
	wantBatch(t, q.pop(at(50)), "abc")
	apply(t, q, at(50), refused(codes.ResourceExhausted, "STORE_FULL", nil))
	wantSettled(t, q, "abc", map[string]string{"a": "STORE_FULL", "b": "STORE_FULL", "c": "STORE_FULL"})
	wantBatch(t, q.pop(at(50)), "e")
}

// Batches without an outcome when the stream breaks are sent again, in order and before younger messages.
func TestQueueBroken(t *testing.T) {
	q := newQueue()
	addAll(q, "abcdefghi")
	wantBatch(t, q.pop(at(0)), "abc")
	wantBatch(t, q.pop(at(0)), "def")
	q.onBroken(streamEnded(), at(0), true)
	wantOneByOne(t, q, "abc", "def", "ghi")
}

// After a refusal nothing is sent before all batches in flight have their outcomes. Then the refused batch goes first and
// alone, until a batch is stored; the batches behind it count no attempt.
func TestQueueKeepsItsOrder(t *testing.T) {
	q := newQueue(retries(1))
	addAll(q, "abcdefghijklmno")
	for _, want := range []string{"abc", "def", "ghi"} {
		if popped := wantBatch(t, q.pop(at(0)), want); popped.needsPrevious != (want != "abc") {
			t.Fatal(want, popped.needsPrevious)
		}
	}
	behind := refused(codes.Aborted, "AFTER_REFUSAL", nil)
	for _, outcome := range []*commitlogv1.AppendOutcome{refused(codes.Unavailable, "RECOVERING", nil), behind} {
		apply(t, q, at(0), outcome)
		wantBatch(t, q.pop(at(99)), "")
		if _, isTimed := q.wait(at(99)); isTimed {
			t.Fatal("there is nothing to wait for but outcomes")
		}
	}
	apply(t, q, at(0), behind)
	again := wantBatch(t, q.pop(at(99)), "abc")
	wantBatch(t, q.pop(at(99)), "")
	apply(t, q, at(99), stored(0, 1, 2, 3))
	def, ghi := wantBatch(t, q.pop(at(99)), "def"), wantBatch(t, q.pop(at(99)), "ghi")
	if again.needsPrevious || def.needsPrevious || !ghi.needsPrevious || again.attempt != 1 || ghi.attempt != 0 {
		t.Fatal(again, def, ghi)
	}
	apply(t, q, at(99), refused(codes.InvalidArgument, "X", nil, "messages[1]"), behind)
	wantOneByOne(t, q, "df", "ghi", "jkl", "mno")
}

// A server that refuses all batches as behind a refused batch is asked once: the refusal contradicts the request.
func TestQueueNeedsNoOther(t *testing.T) {
	q := newQueue()
	addAll(q, "abc")
	wantBatch(t, q.pop(at(0)), "abc")
	apply(t, q, at(0), refused(codes.Aborted, "AFTER_REFUSAL", nil))
	wantBatch(t, q.pop(at(100_000)), "")
	if !q.isIdle() {
		t.Error("messages have no outcome")
	}
}

// When retries are used up, only messages that may have reached the server have an unknown outcome.
func TestQueueBrokenForGood(t *testing.T) {
	unavailable := &Error{Code: codes.Unavailable}
	cases := []struct {
		name  string
		given func(*sendQueue)
		want  string
	}{
		{"no connection", func(q *sendQueue) { q.onBroken(unavailable, at(0), false) }, ""},
		{"sent", func(q *sendQueue) { q.onBroken(unavailable, at(0), true) }, "?"},
		{"sent, then an odd code", func(q *sendQueue) { q.onBroken(&Error{Code: codes.Internal}, at(0), true) }, "?"},
		{"refused as a whole", func(q *sendQueue) { q.onBroken(&Error{Code: codes.Unauthenticated}, at(0), true) }, ""},
		{"closed", func(q *sendQueue) { q.failAll(&Error{Code: codes.Canceled}) }, "?"},
	}
	for _, c := range cases {
		q := newQueue(retries(0))
		addAll(q, "a")
		q.pop(at(0))
		c.given(q)
		if _, failed := settled(q); failed["a"] != c.want || !q.isIdle() {
			t.Error(c.name, failed)
		}
	}
}

// A message that was sent once has an unknown outcome, also if the next attempt found no connection or was refused.
func TestQueueRemembersAttempts(t *testing.T) {
	for name, finally := range map[string]func(*sendQueue){
		"no connection": func(q *sendQueue) { q.onBroken(&Error{Code: codes.Unavailable}, at(99), false) },
		"refused":       func(q *sendQueue) { apply(t, q, at(99), refused(codes.Unavailable, "RECOVERING", nil)) },
	} {
		q := newQueue(retries(1))
		addAll(q, "a")
		q.pop(at(0))
		q.onBroken(&Error{Code: codes.Unavailable}, at(0), true)
		wantBatch(t, q.pop(at(50)), "a")
		finally(q)
		if _, failed := settled(q); !strings.HasSuffix(failed["a"], "?") {
			t.Error(name, failed)
		}
	}
}

// NOT_LEADER ends the stream when no batch is in flight, and no batch is due before.
func TestQueueNotLeader(t *testing.T) {
	q := newQueue()
	addAll(q, "abcdefghi")
	q.pop(at(0))
	q.pop(at(0))
	outcome := refused(codes.Unavailable, "NOT_LEADER", map[string]string{"leader": "b:1"})
	apply(t, q, at(0), outcome)
	if q.movedAway() != nil {
		t.Fatal("another batch is in flight")
	}
	wantBatch(t, q.pop(at(99)), "")
	if _, isTimed := q.wait(at(99)); isTimed {
		t.Fatal("there is nothing to wait for but outcomes")
	}
	apply(t, q, at(0), outcome)
	moved := q.movedAway()
	if moved == nil || moved.Metadata["leader"] != "b:1" {
		t.Fatal(moved)
	}
	q.onBroken(moved, at(0), true)
	wantOneByOne(t, q, "abc", "def", "ghi")
}

// LEASE_OVER is like a broken stream: the batch may be stored, and is sent again; without retries its outcome is
// unknown.
func TestQueueLeaseOver(t *testing.T) {
	outcome := refused(codes.Unavailable, "LEASE_OVER", nil)
	q := newQueue()
	addAll(q, "abc")
	q.pop(at(0))
	apply(t, q, at(0), outcome)
	wantSettled(t, q, "", nil)
	q.onBroken(q.movedAway(), at(0), true)
	wantBatch(t, q.pop(at(60_000)), "abc")
	q = newQueue(retries(0))
	addAll(q, "abcd")
	q.pop(at(0))
	apply(t, q, at(0), outcome)
	wantSettled(t, q, "abc", map[string]string{"a": "LEASE_OVER?", "b": "LEASE_OVER?", "c": "LEASE_OVER?"})
	q.onBroken(q.movedAway(), at(0), true)
	wantBatch(t, q.pop(at(0)), "d")
}

// A named leader is tried at once, which is no failed attempt; logs that name each other are not tried for ever.
func TestQueueFollows(t *testing.T) {
	outcome := refused(codes.Unavailable, "NOT_LEADER", map[string]string{"leader": "b:1"})
	q := newQueue(retries(0))
	addAll(q, "abc")
	for range followsMax {
		wantBatch(t, q.pop(at(0)), "abc")
		apply(t, q, at(0), outcome)
		q.onBroken(q.movedAway(), at(0), true)
	}
	wantBatch(t, q.pop(at(0)), "abc")
	apply(t, q, at(0), outcome)
	wantSettled(t, q, "abc", map[string]string{"a": "NOT_LEADER", "b": "NOT_LEADER", "c": "NOT_LEADER"})
}

// A batch that was not sent because the stream had ended is due again, without a failed attempt.
func TestQueueUnsent(t *testing.T) {
	q := newQueue(retries(0))
	addAll(q, "abcdef")
	q.pop(at(0))
	q.onUnsent(q.pop(at(0)))
	q.onBroken(streamEnded(), at(0), true)
	wantSettled(t, q, "abc", map[string]string{"a": "?", "b": "?", "c": "?"})
	wantBatch(t, q.pop(at(0)), "def")
}

// failAll settles all messages, and only messages in flight have an unknown outcome.
func TestQueueFailAll(t *testing.T) {
	q := newQueue()
	addAll(q, "abcdef")
	q.add(makeMessage("t", "g"), at(0))
	q.pop(at(0))
	q.failAll(&Error{Code: codes.Canceled, Reason: "X"})
	all, failed := settled(q)
	if all != "abcdefg" || failed["c"] != "X?" || failed["d"] != "X" || failed["g"] != "X" || !q.isIdle() {
		t.Fatal(all, failed)
	}
}

// For all answers of the server, each message is settled once, and the window is kept.
func TestQueueAtRandom(t *testing.T) {
	for seed := range uint64(100) {
		chance := rand.New(rand.NewPCG(seed, 0))
		q := newQueue(retries(3))
		now, next, count := 0, 0, 200
		outcomes := map[string]int{}
		for turn := 0; len(outcomes) < count; turn++ {
			if turn > 100_000 {
				t.Fatalf("seed %d: only %d messages are settled", seed, len(outcomes))
			}
			for next < count && q.hasRoom(10) && chance.IntN(3) > 0 {
				q.add(makeMessage("t"+fmt.Sprint(next%3), fmt.Sprintf("%d,", next)), at(now))
				next++
			}
			q.pop(at(now))
			atRandom(t, q, chance, now)
			if q.unsettledBytes > 100 || q.unsettledBytes < 0 {
				t.Fatalf("seed %d: %d bytes are in the window", seed, q.unsettledBytes)
			}
			for _, messages := range q.popSettled() {
				for _, message := range messages {
					outcomes[message.result.UniqueID]++
				}
			}
			now += chance.IntN(40)
		}
		if !q.isIdle() || len(q.ready)+len(q.inFlight)+len(q.open) > 0 {
			t.Fatalf("seed %d: something is left", seed)
		}
		for name, times := range outcomes {
			if times != 1 {
				t.Fatalf("seed %d: %s has %d outcomes", seed, name, times)
			}
		}
	}
}

// atRandom lets the server make a random answer.
func atRandom(t *testing.T, q *sendQueue, chance *rand.Rand, now int) {
	if moved := q.movedAway(); moved != nil {
		q.onBroken(moved, at(now), true)
	}
	if len(q.inFlight) == 0 {
		return
	}
	size := len(q.inFlight[0].messages)
	field := fmt.Sprintf("messages[%d].topic", chance.IntN(size))
	switch chance.IntN(12) {
	case 0:
		q.onBroken(streamEnded(), at(now), chance.IntN(2) == 0)
	case 1:
		apply(t, q, at(now), refused(codes.Unavailable, "NOT_LEADER", nil))
	case 2:
		apply(t, q, at(now), refused(codes.Unavailable, "LEASE_OVER", nil))
	case 3:
		apply(t, q, at(now), refused(codes.InvalidArgument, "BAD_TOPIC_NAME", nil, field))
	case 4:
		apply(t, q, at(now), refused(codes.InvalidArgument, "BAD_PROPERTIES", nil, field))
	case 5:
		apply(t, q, at(now), refused(codes.InvalidArgument, "BATCH_TOO_LARGE", nil))
	case 6:
		apply(t, q, at(now), refused(codes.ResourceExhausted, "WINDOW_FULL", nil))
	case 7:
		q.onUnsent(q.inFlight[len(q.inFlight)-1])
	default:
		apply(t, q, at(now), stored(0, make([]int64, size)...))
	}
}

// A caller that waits ends the linger of its batch, and of no other batch.
func TestQueueHurry(t *testing.T) {
	q := newQueue()
	if q.hurry(0) || q.hurry(1) {
		t.Error("an empty queue hurries")
	}
	q.add(makeMessage("t", "a"), at(0))
	first := q.batchNumber()
	if wait, _ := q.wait(at(0)); q.hurry(first+1) || wait != 5*time.Millisecond {
		t.Error("another batch hurries", wait)
	}
	if !q.hurry(first) || q.hurry(first) {
		t.Error("the batch does not hurry once")
	}
	if wait, isTimed := q.wait(at(0)); wait != 0 || !isTimed {
		t.Error(wait)
	}
	q.add(makeMessage("t", "b"), at(0))
	if got := names(q.pop(at(0))); q.batchNumber() != first || got != "ab" {
		t.Error(got)
	}
	q.add(makeMessage("t", "c"), at(0))
	if q.hurry(first) || q.pop(at(0)) != nil {
		t.Error("the next batch does not linger")
	}
	if !q.hurry(first+1) || names(q.pop(at(0))) != "c" {
		t.Error("the next batch does not hurry")
	}
}

// While enough batches are in flight, a batch that callers wait for collects messages until an outcome or its linger.
func TestQueueHurryBesideOthers(t *testing.T) {
	q := newQueue()
	for number := range hurriedInFlightMax {
		q.add(makeMessage("t", fmt.Sprint(number)), at(0))
		if !q.hurry(q.batchNumber()) || q.pop(at(0)) == nil {
			t.Fatal("batch", number, "waits")
		}
	}
	q.add(makeMessage("t", "a"), at(0))
	if q.hurry(q.batchNumber()) || q.pop(at(0)) != nil {
		t.Error("a further batch does not wait")
	}
	if wait, isTimed := q.wait(at(0)); wait != 5*time.Millisecond || !isTimed {
		t.Error(wait)
	}
	q.add(makeMessage("t", "b"), at(0))
	apply(t, q, at(1), stored(0, 0))
	if wait, _ := q.wait(at(1)); wait != 0 {
		t.Error("the outcome does not end the wait", wait)
	}
	if got := names(q.pop(at(1))); got != "ab" {
		t.Error(got)
	}
	q.add(makeMessage("t", "c"), at(1))
	q.hurry(q.batchNumber())
	if q.pop(at(5)) != nil || names(q.pop(at(6))) != "c" {
		t.Error("the linger does not end the wait")
	}
}
