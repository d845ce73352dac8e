// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

// The operations of fast ingest. A message says its operation in the last part but one of its reply subject:
// INBOX.BATCH.FLOW.GAP-MODE.SEQUENCE.OPERATION.$FI
const (
	opStart = iota
	opAppend
	opCommit
	opCommitEndOfBatch
)

// flowMessagesMax is the server's own limit for one flow acknowledgement.
const flowMessagesMax = 500

// fastAnswer is each kind of answer to a fast batch: a flow acknowledgement, a gap, an error, or the last PubAck.
type fastAnswer struct {
	Type     string          `json:"type"`
	Sequence uint64          `json:"seq"`
	Count    uint64          `json:"count"`
	Error    json.RawMessage `json:"error"`
}

// fastProducer sends one fast batch (JetStream's fast ingest) for each Send: the server stores each message as it
// arrives and acknowledges every so many; the producer has no more than its window on their way.
type fastProducer struct {
	connection *nats.Conn
	body       []byte
	window     uint64
	inbox      string
	acked      atomic.Uint64
	progress   chan struct{}
	done       chan fastAnswer
}

func newFastProducer(connection *nats.Conn, body []byte, window int) (*fastProducer, error) {
	p := &fastProducer{
		connection: connection,
		body:       body,
		window:     uint64(window),
		inbox:      nats.NewInbox(),
		progress:   make(chan struct{}, 1),
		done:       make(chan fastAnswer, 1),
	}
	_, err := connection.Subscribe(p.inbox+".>", p.onAnswer)
	return p, err
}

func (p *fastProducer) onAnswer(message *nats.Msg) {
	answer := fastAnswer{}
	if err := json.Unmarshal(message.Data, &answer); err != nil {
		answer.Error = json.RawMessage(strconv.Quote(err.Error()))
	}
	if answer.Type != "ack" {
		select {
		case p.done <- answer:
		default: // a gap is followed by the PubAck of the ended batch; the first one tells
		}
		return
	}
	p.acked.Store(answer.Sequence)
	select {
	case p.progress <- struct{}{}:
	default:
	}
}

func (p *fastProducer) Send(until time.Time) (int64, error) {
	flow := min(flowMessagesMax, max(1, p.window/4))
	prefix := fmt.Sprintf("%s.%s.%d.fail.", p.inbox, nuid.Next(), flow)
	p.acked.Store(0)
	sent := uint64(0)
	for time.Now().Before(until) {
		if err := p.waitWindow(sent); err != nil {
			return 0, err
		}
		for range flow {
			sent++
			if err := p.send(prefix, sent, min(opAppend, int(sent)-1), p.body); err != nil {
				return 0, err
			}
		}
	}
	if err := p.send(prefix, sent+1, opCommitEndOfBatch, nil); err != nil {
		return 0, err
	}
	return int64(sent), p.waitCommit(sent)
}

func (p *fastProducer) send(prefix string, sequence uint64, operation int, body []byte) error {
	reply := make([]byte, 0, len(prefix)+24)
	reply = append(reply, prefix...)
	reply = strconv.AppendUint(reply, sequence, 10)
	reply = append(reply, '.', byte('0'+operation))
	reply = append(reply, ".$FI"...)
	return p.connection.PublishRequest(queues[sequence%uint64(len(queues))], string(reply), body)
}

func (p *fastProducer) waitWindow(sent uint64) error {
	for sent-p.acked.Load() >= p.window {
		select {
		case <-p.progress:
		case answer := <-p.done:
			return fmt.Errorf("the batch ended early: %+v", answer)
		case <-time.After(ackTimeout):
			return fmt.Errorf("no flow acknowledgement after message %d", p.acked.Load())
		}
	}
	return nil
}

func (p *fastProducer) waitCommit(sent uint64) error {
	select {
	case answer := <-p.done:
		if answer.Type != "" || answer.Error != nil || answer.Count != sent {
			return fmt.Errorf("sent %d messages, and the server answered %+v", sent, answer)
		}
		return nil
	case <-time.After(ackTimeout):
		return fmt.Errorf("no acknowledgement of a batch of %d messages", sent)
	}
}
