// SPDX-License-Identifier: Apache-2.0

package reput

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"

	commonv1 "reput/clients/go/reputpb/common/v1"
	indexerv1 "reput/clients/go/reputpb/indexer/v1"
)

type recordCase struct {
	Name        string
	RecordCount int32 `json:"record_count"`
	Records     string
	Messages    []struct {
		Topic                                          string
		QueueID                                        int32 `json:"queueId"`
		QueueOffset, PhysicalOffset                    string
		Body, RawProperties                            string
		Properties                                     map[string]string
		BornTimeMs, StoreTimeMs                        string
		BornHost, StoreHost                            recordCaseHost
		Flag, SysFlag, ReconsumeTimes, RecordSizeBytes int32
		PreparedTransactionOffset, OffsetMessageID     string
	}
}

type recordCaseHost struct {
	Address string
	Port    int32
}

// recordCases returns the cases of all clients: answers to decode, and answers to refuse.
func recordCases(t testing.TB) (accepted, refused []recordCase) {
	t.Helper()
	text, err := os.ReadFile("../../tests/clients/records.json")
	if err != nil {
		t.Fatal(err)
	}
	var cases struct{ Accepted, Refused []recordCase }
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
	return cases.Accepted, cases.Refused
}

func (c *recordCase) answer(t testing.TB) *indexerv1.PullResponse {
	return &indexerv1.PullResponse{Records: unhex(t, c.Records), RecordCount: c.RecordCount}
}

func unhex(t testing.TB, text string) []byte {
	t.Helper()
	data, err := hex.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func number(t testing.TB, text string) int64 {
	t.Helper()
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return value
}

// The messages of records are the messages that the server makes of them.
func TestRecordsAreTheServersMessages(t *testing.T) {
	accepted, _ := recordCases(t)
	for _, one := range accepted {
		found, err := messagesIn(one.answer(t))
		if err != nil || len(found) != len(one.Messages) {
			t.Fatal(one.Name, err, len(found))
		}
		for index, want := range one.Messages {
			expected := &commonv1.StoredMessage{
				Topic: want.Topic, QueueId: want.QueueID, QueueOffset: number(t, want.QueueOffset),
				PhysicalOffset: number(t, want.PhysicalOffset), Body: unhex(t, want.Body), Properties: want.Properties,
				RawProperties: unhex(t, want.RawProperties), BornTimeMs: number(t, want.BornTimeMs),
				StoreTimeMs: number(t, want.StoreTimeMs), Flag: want.Flag, SysFlag: want.SysFlag,
				BornHost:       &commonv1.Host{Address: unhex(t, want.BornHost.Address), Port: want.BornHost.Port},
				StoreHost:      &commonv1.Host{Address: unhex(t, want.StoreHost.Address), Port: want.StoreHost.Port},
				ReconsumeTimes: want.ReconsumeTimes, RecordSizeBytes: want.RecordSizeBytes,
				PreparedTransactionOffset: number(t, want.PreparedTransactionOffset), OffsetMessageId: want.OffsetMessageID,
			}
			if !proto.Equal(found[index], expected) {
				t.Errorf("%s: record %d is\n%v, expected\n%v", one.Name, index, found[index], expected)
			}
		}
	}
}

// Answers that are not sound are errors, and no part of them is a message.
func TestUnsoundRecordsAreRefused(t *testing.T) {
	_, refused := recordCases(t)
	for _, one := range refused {
		found, err := messagesIn(one.answer(t))
		failure := asErrorOf(err)
		if found != nil || failure == nil || failure.Code != codes.Internal ||
			!strings.Contains(failure.Text, "the server's answer makes no sense") {
			t.Error(one.Name, found, err)
		}
	}
}

func asErrorOf(err error) *Error {
	if err == nil {
		return nil
	}
	return asError(err)
}

// Whatever bytes of an answer change, decoding ends, reads no other bytes, and has as many messages as announced.
func TestChangedRecordsNeverPanic(t *testing.T) {
	accepted, _ := recordCases(t)
	all := accepted[len(accepted)-1]
	good := unhex(t, all.Records)
	for range 20_000 {
		data := append([]byte(nil), good...)
		for range 1 + rand.IntN(4) {
			data[rand.IntN(len(data))] = byte(rand.IntN(256))
		}
		data = data[:len(data)-rand.IntN(2)*rand.IntN(len(data))]
		found, err := messagesIn(&indexerv1.PullResponse{Records: data, RecordCount: all.RecordCount})
		if (err == nil) != (len(found) == int(all.RecordCount)) {
			t.Fatal(hex.EncodeToString(data), err)
		}
	}
}

// A caller that appends to a body does not change the message behind it.
func TestBodiesAreApart(t *testing.T) {
	accepted, _ := recordCases(t)
	found, err := messagesIn(accepted[len(accepted)-1].answer(t))
	if err != nil {
		t.Fatal(err)
	}
	want := found[0].Topic
	_ = append(found[0].Body, make([]byte, 50)...)
	again, err := messagesIn(accepted[len(accepted)-1].answer(t))
	if err != nil || found[0].Topic != want || !proto.Equal(found[1], again[1]) {
		t.Fatal(found[1], err)
	}
}

// A server that does not know records answers with messages.
func TestMessagesOfAnOlderServer(t *testing.T) {
	answer := &indexerv1.PullResponse{Messages: []*commonv1.StoredMessage{{QueueOffset: 7}}}
	found, err := messagesIn(answer)
	if err != nil || len(found) != 1 || found[0].QueueOffset != 7 {
		t.Fatal(found, err)
	}
}

// withBody returns a record with IPv4 hosts with another body.
func withBody(record []byte, size int) []byte {
	old := int(binary.BigEndian.Uint32(record[84:]))
	made := append(append(append([]byte(nil), record[:88]...), make([]byte, size)...), record[88+old:]...)
	binary.BigEndian.PutUint32(made, uint32(len(made)))
	binary.BigEndian.PutUint32(made[84:], uint32(size))
	return made
}

func cpuTime(b *testing.B) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// The processor time of an answer in both forms, from its bytes to its messages.
func BenchmarkAnswer(b *testing.B) {
	const count = 1_000
	accepted, _ := recordCases(b)
	for _, size := range []int{100, 1024} {
		record := withBody(unhex(b, accepted[0].Records), size)
		answer := &indexerv1.PullResponse{Records: bytes.Repeat(record, count), RecordCount: count}
		messages, err := messagesIn(answer)
		if err != nil {
			b.Fatal(err)
		}
		asRecords, _ := proto.Marshal(answer)
		asMessages, _ := proto.Marshal(&indexerv1.PullResponse{Messages: messages})
		for form, wire := range map[string][]byte{"records": asRecords, "messages": asMessages} {
			b.Run(fmt.Sprintf("%dB/%s", size, form), func(b *testing.B) {
				start := cpuTime(b)
				for b.Loop() {
					var parsed indexerv1.PullResponse
					if err := proto.Unmarshal(wire, &parsed); err != nil {
						b.Fatal(err)
					}
					if found, err := messagesIn(&parsed); err != nil || len(found) != count {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(cpuTime(b)-start)/float64(b.N)/count, "cpu-ns/message")
			})
		}
	}
}

// A stream whose records are not sound ends with an error that the caller gets, at the position before the answer.
func TestAConsumerRefusesUnsoundRecords(t *testing.T) {
	accepted, _ := recordCases(t)
	good := accepted[0].answer(t)
	store := newFake()
	store.subscribe = func(request *indexerv1.SubscribeRequest, stream subscription) error {
		if !request.WantsRecords {
			t.Error("no records are wanted")
		}
		answer := &indexerv1.SubscribeResponse{Records: good.Records, RecordCount: 1, NextQueueOffset: 8}
		if err := stream.Send(answer); err != nil {
			return err
		}
		return stream.Send(&indexerv1.SubscribeResponse{Records: good.Records, RecordCount: 2, NextQueueOffset: 10})
	}
	consumer, err := connect(t, store).NewConsumer(limit(t), "t", func(o *ConsumerOptions) { o.QueueIDs = []int32{0} })
	if err != nil {
		t.Fatal(err)
	}
	message, err := consumer.Next(limit(t))
	if err != nil || message.QueueOffset != 7 || message.Tag() != "TagA" {
		t.Fatal(message, err)
	}
	_, err = consumer.Next(limit(t))
	if failure := asErrorOf(err); failure == nil || failure.Code != codes.Internal || consumer.Positions()[0] != 8 {
		t.Fatal(err, consumer.Positions())
	}
}
