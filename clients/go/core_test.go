// SPDX-License-Identifier: Apache-2.0

package reput

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	commitlogv1 "reput/clients/go/reputpb/commitlog/v1"
	commonv1 "reput/clients/go/reputpb/common/v1"
	indexerv1 "reput/clients/go/reputpb/indexer/v1"
)

// Other white space is part of a key, as in the index.
func TestSpacesAloneSeparateKeys(t *testing.T) {
	for text, want := range map[string][]string{
		"a b": {"a", "b"}, "  a   b ": {"a", "b"}, "": {},
		"\t 東京\u3000支店  new\nline no\u00a0break ": {"\t", "東京\u3000支店", "new\nline", "no\u00a0break"},
	} {
		message := StoredMessage{&commonv1.StoredMessage{Properties: map[string]string{propertyKeys: text}}}
		if keys := message.Keys(); !slices.Equal(keys, want) {
			t.Errorf("keys of %q are %q, not %q", text, keys, want)
		}
	}
}

// Calls use the address that is better after the last failure.
func TestRoute(t *testing.T) {
	leader := &Error{Code: codes.Unavailable, Reason: "NOT_LEADER", Metadata: map[string]string{"leader": "l:1"}}
	cases := []struct {
		name     string
		failures []*Error
		want     string
	}{
		{"at first", nil, "a:1"},
		{"the leader", []*Error{leader}, "l:1"},
		{"no leader", []*Error{{Reason: "NOT_LEADER"}}, "b:1"},
		{"stopping", []*Error{{Code: codes.Unavailable, Reason: "STOPPING"}}, "b:1"},
		{"lease over", []*Error{{Code: codes.Unavailable, Reason: "LEASE_OVER"}}, "b:1"},
		{"without what it needs", []*Error{{Code: codes.Unavailable, Reason: "DEPENDENCY_UNAVAILABLE"}}, "b:1"},
		{"no connection", []*Error{{Code: codes.Unavailable}}, "b:1"},
		{"no answer", []*Error{{Code: codes.DeadlineExceeded}}, "b:1"},
		{"busy", []*Error{{Code: codes.Unavailable, Reason: "RECOVERING"}}, "a:1"},
		{"wrong", []*Error{{Code: codes.InvalidArgument}}, "a:1"},
		{"around", []*Error{{Code: codes.Unavailable}, {Code: codes.Unavailable}}, "a:1"},
		{"behind one that is not listed", []*Error{leader, {Code: codes.Unavailable}}, "a:1"},
	}
	for _, c := range cases {
		route, err := newRoute(" a:1,, b:1 ")
		if err != nil {
			t.Fatal(err)
		}
		for _, failure := range c.failures {
			route.onFailure(route.address, failure)
		}
		if route.address != c.want {
			t.Errorf("%s: calls go to %s, not %s", c.name, route.address, c.want)
		}
	}
}

// The failure of a call to another address has no effect, and a service has an address.
func TestRouteOfOthers(t *testing.T) {
	route, _ := newRoute("a:1,b:1")
	route.onFailure("b:1", &Error{Code: codes.Unavailable})
	if route.address != "a:1" {
		t.Error(route.address)
	}
	if _, err := newRoute(" , "); !errors.Is(err, ErrArgument) {
		t.Error(err)
	}
}

// Delays double, with jitter, up to the longest delay, and never below the delay that the server asks for.
func TestRetryDelays(t *testing.T) {
	policy := RetryPolicy{Retries: 5, DelayMin: 100 * time.Millisecond, DelayMax: 450 * time.Millisecond}
	for attempt, ceiling := range []time.Duration{100, 200, 400, 450, 450} {
		ceiling *= time.Millisecond
		for range 200 {
			delay, isRepeated := policy.delay(attempt, &Error{Code: codes.Unavailable}, true)
			if !isRepeated || delay < ceiling/2 || delay > ceiling {
				t.Fatal(attempt, delay, isRepeated)
			}
		}
	}
	if _, isRepeated := policy.delay(5, &Error{Code: codes.Unavailable}, true); isRepeated {
		t.Error("retries are used up")
	}
	wish := &Error{Reason: "STORE_FULL", RetryAfter: time.Minute}
	if delay, _ := policy.delay(0, wish, true); delay != time.Minute {
		t.Error(delay)
	}
	large := RetryPolicy{Retries: 1 << 30, DelayMin: 1, DelayMax: 1 << 62}
	if delay, isRepeated := large.delay(1<<29, wish, true); !isRepeated || delay <= 0 {
		t.Error(delay)
	}
}

// Only temporary failures are retried; calls that may have been executed only if they are repeatable.
func TestRetryReasons(t *testing.T) {
	cases := []struct {
		failure    Error
		repeatable bool
		once       bool
	}{
		{Error{Code: codes.ResourceExhausted, Reason: "STORE_FULL"}, true, true},
		{Error{Code: codes.Unavailable, Reason: "QUEUE_OFFSETS_UNKNOWN"}, true, true},
		{Error{Code: codes.ResourceExhausted, Reason: "WINDOW_FULL"}, true, true},
		{Error{Code: codes.Unavailable, Reason: "RECOVERING"}, true, true},
		{Error{Code: codes.Unavailable, Reason: "STOPPING"}, true, true},
		{Error{Code: codes.Unavailable, Reason: "DEPENDENCY_UNAVAILABLE"}, true, true},
		{Error{Code: codes.Unavailable, Reason: "NOT_LEADER"}, true, true},
		{Error{Code: codes.Unavailable, Reason: "NOT_ENOUGH_REPLICAS"}, true, true},
		{Error{Code: codes.Unavailable, Reason: "STORE_REPLACED"}, true, true},
		{Error{Code: codes.ResourceExhausted, Reason: "QUOTA_EXCEEDED"}, true, true},
		{Error{Code: codes.Unavailable}, true, false},
		{Error{Code: codes.Unavailable, Reason: "STREAM_IDLE"}, true, false},
		{Error{Code: codes.ResourceExhausted}, false, false},
		{Error{Code: codes.DeadlineExceeded}, false, false},
		{Error{Code: codes.InvalidArgument, Reason: "BAD_ARGUMENT"}, false, false},
	}
	for _, c := range cases {
		_, repeatable := DefaultRetryPolicy().delay(0, &c.failure, true)
		_, once := DefaultRetryPolicy().delay(0, &c.failure, false)
		if repeatable != c.repeatable || once != c.once {
			t.Error(&c.failure, repeatable, once)
		}
	}
}

// encoded returns a message as it stands in a request.
func encoded(t *testing.T, encoder *encoder, message Message) *commitlogv1.AppendMessage {
	t.Helper()
	future, err := encoder.encode(&message, at(0))
	if err != nil {
		t.Fatal(err)
	}
	var request commitlogv1.AppendStreamRequest
	if err := proto.Unmarshal(future.chunk, &request); err != nil || len(request.Messages) != 1 {
		t.Fatal(err, &request)
	}
	return request.Messages[0]
}

// All of a message's fields are sent, and absent fields stay absent.
func TestEncode(t *testing.T) {
	full := encoded(t, &encoder{}, Message{
		Topic: "t", Body: []byte("b"), QueueID: new(int32(0)), Tag: "red", Keys: []string{"k1", "k2"},
		Properties:  map[string]string{"z": "1", "a": "é\x01", "TAGS": "blue"},
		ShardingKey: "s", UniqueID: "U", DelayLevel: 3, Flag: 7, BornTime: at(5),
	})
	want := "UNIQ_KEY\x01U\x02TAGS\x01red\x02KEYS\x01k1 k2\x02" +
		"__SHARDINGKEY\x01s\x02DELAY\x013\x02a\x01é\x01\x02z\x011\x02"
	if string(full.PropertyString) != want {
		t.Errorf("%q", full.PropertyString)
	}
	if full.Topic != "t" || string(full.Body) != "b" || full.QueueId == nil || full.Flag != 7 ||
		full.BornTimeMs != at(5).UnixMilli() {
		t.Error(full)
	}
	bare := encoded(t, &encoder{}, Message{Topic: "t"})
	if bare.QueueId != nil || len(bare.PropertyString) != 0 || bare.BornTimeMs != at(0).UnixMilli() {
		t.Error(bare)
	}
}

// A message keeps its own unique id, also from its properties, and otherwise gets a new unique id.
func TestEncodeUniqueID(t *testing.T) {
	encoder := &encoder{uniqueIDs: newUniqueIDs()}
	for want, message := range map[string]Message{
		"UNIQ_KEY\x01A\x02": {UniqueID: "A"}, "UNIQ_KEY\x01B\x02": {Properties: map[string]string{"UNIQ_KEY": "B"}},
	} {
		if got := string(encoded(t, encoder, message).PropertyString); got != want {
			t.Errorf("%q", got)
		}
	}
	made := string(encoded(t, encoder, Message{}).PropertyString)
	if !regexp.MustCompile("^UNIQ_KEY\x01[0-9A-F]{32}\x02$").MatchString(made) {
		t.Errorf("%q", made)
	}
}

// Invalid messages are refused, with a word that names the mistake.
func TestEncodeRefuses(t *testing.T) {
	cases := map[string]Message{
		"key \"\"":           {Keys: []string{"a", ""}},
		"key \"two words\"":  {Keys: []string{"two words"}},
		"property name \"\"": {Properties: map[string]string{"": "x"}},
		"property name":      {Properties: map[string]string{"a\x01b": "x"}},
		"property name \"a":  {Properties: map[string]string{"a\x02b": "x"}},
		"the property \"x\"": {Properties: map[string]string{"x": ""}},
		"the property \"y\"": {Properties: map[string]string{"y": "a\x02b"}},
		"the property \"TA":  {Tag: "a\x02b"},
		"delay level":        {DelayLevel: -1},
		"the born time":      {BornTime: time.UnixMilli(bornTimeMsMax + 1)},
		"encoded":            {Topic: "\xff"},
		"the body has":       {Body: make([]byte, transportSizeBytesMax)},
	}
	for word, message := range cases {
		_, err := (&encoder{}).encode(&message, at(0))
		if !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", word, err)
		}
	}
}

// Ids have RocketMQ's form, differ, and count the time from the first day of the month.
func TestUniqueIDs(t *testing.T) {
	ids := newUniqueIDs()
	seen := map[string]bool{}
	for range 70_000 {
		seen[ids.next(at(len(seen)/65_536))] = true
	}
	if len(seen) != 70_000 {
		t.Error(len(seen))
	}
	first := time.Date(2024, time.December, 1, 0, 0, 0, 0, time.Local)
	before, after := ids.next(first.Add(-time.Millisecond)), ids.next(first.Add(17*time.Millisecond))
	if len(after) != 32 || after[20:28] != "00000011" || before[:20] != after[:20] || before[20:28] <= after[20:28] {
		t.Error(before, after)
	}
	if newUniqueIDs().next(first)[12:20] == after[12:20] {
		t.Error("two producers have the same random bytes")
	}
}

// A given option takes precedence over the variable, and the variable over the default.
func TestOptions(t *testing.T) {
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte("  word and more\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	variables := map[string]string{"REPUT_CLIENT_COMMITLOG_TARGET": "c:1", "REPUT_CLIENT_TOKEN_FILE": file}
	environment := func(name string) string { return variables[name] }
	options, err := loadOptions(environment)
	if err != nil || options.Commitlog != "c:1" || options.Indexer != "127.0.0.1:7102" || options.Token != "word" ||
		options.Timeout != 30*time.Second || options.check() != nil {
		t.Error(options, err)
	}
	variables["REPUT_CLIENT_TOKEN"] = "other"
	if options, _ = loadOptions(environment); options.Token != "other" {
		t.Error(options.Token)
	}
	variables["REPUT_CLIENT_STORE_TARGET"] = "door:1"
	if options, _ = loadOptions(environment); options.Commitlog != "c:1" || options.Indexer != "door:1" {
		t.Error(options.Commitlog, options.Indexer)
	}
	if At("other:1,other:2")(&options); options.Commitlog != "other:1,other:2" || options.Indexer != options.Commitlog {
		t.Error(options.Commitlog, options.Indexer)
	}
	variables = map[string]string{"REPUT_CLIENT_TOKEN_FILE": file + "-not"}
	if _, err = loadOptions(environment); !errors.Is(err, ErrArgument) {
		t.Error(err)
	}
}

// Invalid options are refused when the client or the producer is made.
func TestOptionsRefused(t *testing.T) {
	for word, change := range map[string]func(*Options){
		"address":     func(options *Options) { options.Indexer = "," },
		"time-out":    func(options *Options) { options.Timeout = 0 },
		"retry":       func(options *Options) { options.Retry.Retries = -1 },
		"together":    func(options *Options) { options.CAFile, options.KeyFile = "system", "x" },
		"a CA file":   func(options *Options) { options.CertificateFile, options.KeyFile = "x", "x" },
		"no such":     func(options *Options) { options.CAFile = "/does/not/exist" },
		"certificate": func(options *Options) { options.CAFile = os.DevNull },
	} {
		if _, err := Connect(change); !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), word) {
			t.Error(word, err)
		}
	}
	client, err := Connect()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for word, change := range map[string]func(*ProducerOptions){
		"batch size": func(options *ProducerOptions) { options.BatchSizeBytes = 0 },
		"window":     func(options *ProducerOptions) { options.WindowBytes = options.BatchSizeBytes - 1 },
		"8 MiB":      func(options *ProducerOptions) { options.BatchSizeBytes, options.WindowBytes = 9<<20, 9<<20 },
		"linger":     func(options *ProducerOptions) { options.Linger = -1 },
		"durability": func(options *ProducerOptions) { options.Durability = 9 },
		"retry":      func(options *ProducerOptions) { options.Retry.DelayMin = 0 },
	} {
		if _, err := client.NewProducer(change); !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), word) {
			t.Error(word, err)
		}
	}
}

// An error has the details of the server, and works with Go's errors package.
func TestErrors(t *testing.T) {
	described, err := status.New(codes.InvalidArgument, "no").WithDetails(
		&errdetails.ErrorInfo{
			Domain: "reput", Reason: "BAD_ARGUMENT", Metadata: map[string]string{"field": "f", "value": "v", "limit": "l"},
		},
		&errdetails.BadRequest{FieldViolations: []*errdetails.BadRequest_FieldViolation{{Field: "f"}}},
		&errdetails.RetryInfo{RetryDelay: durationpb.New(1500 * time.Millisecond)},
	)
	if err != nil {
		t.Fatal(err)
	}
	failure := asError(described.Err())
	if failure.Error() != "reput: BAD_ARGUMENT: no" || failure.Field() != "f" || failure.Value() != "v" ||
		failure.Limit() != "l" || !slices.Equal(failure.Fields, []string{"f"}) ||
		failure.RetryAfter != 1500*time.Millisecond || failure.CodeName() != "INVALID_ARGUMENT" {
		t.Error(failure)
	}
	if status.Code(failure) != codes.InvalidArgument || asError(failure) != failure {
		t.Error("gRPC's functions do not know the error")
	}
	foreign, _ := status.New(codes.Canceled, "x").WithDetails(&errdetails.ErrorInfo{Domain: "other", Reason: "BAD"})
	failure = asError(foreign.Err())
	if failure.Reason != "" || failure.Error() != "reput: CANCELLED: x" || !errors.Is(failure, context.Canceled) ||
		errors.Is(failure, context.DeadlineExceeded) {
		t.Error(failure)
	}
}

// Positions are the offsets after returned messages, and a commit sends only changed offsets.
func TestPositions(t *testing.T) {
	answer := func(next int64, offsets ...int64) *indexerv1.SubscribeResponse {
		answer := &indexerv1.SubscribeResponse{NextQueueOffset: next}
		for _, offset := range offsets {
			answer.Messages = append(answer.Messages, &commonv1.StoredMessage{QueueOffset: offset})
		}
		return answer
	}
	p := newPositions("t", map[int32]int64{0: 5, 1: 0})
	p.add(0, answer(9, 5, 7))
	for _, want := range []int64{6, 9} {
		if _, isThere := p.pop(); !isThere || p.all()[0] != want {
			t.Fatal(p.all())
		}
	}
	p.add(1, answer(4))
	if _, isThere := p.pop(); isThere || p.all()[1] != 4 {
		t.Fatal(p.all())
	}
	offsets := p.uncommitted()
	if len(offsets) != 2 || offsets[0].QueueOffset != 9 || offsets[1].QueueId != 1 || offsets[0].Topic != "t" {
		t.Fatal(offsets)
	}
	p.onCommitted(offsets)
	p.add(0, answer(12, 9, 10))
	p.move(0, 2)
	if _, isThere := p.pop(); isThere || p.all()[0] != 2 || len(p.uncommitted()) != 1 {
		t.Fatal(p.all())
	}
}
