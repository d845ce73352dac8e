// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nuid"
)

const (
	// atomicBatchMessagesMax is the server's own limit for one atomic batch.
	atomicBatchMessagesMax = 1000
	// atomicBatchesInFlight lets the server store a batch while the next one arrives.
	atomicBatchesInFlight = 4
)

// atomicProducer sends atomic batches: the server keeps a batch aside until its last message commits it, then stores
// and syncs it as a whole.
type atomicProducer struct {
	connection *nats.Conn
	body       []byte
	messages   int
	inbox      string
	answers    chan *nats.Msg
}

func newAtomicProducer(connection *nats.Conn, body []byte, messages int) (*atomicProducer, error) {
	p := &atomicProducer{
		connection: connection,
		body:       body,
		messages:   messages,
		inbox:      nats.NewInbox(),
		answers:    make(chan *nats.Msg, atomicBatchesInFlight),
	}
	_, err := connection.ChanSubscribe(p.inbox, p.answers)
	return p, err
}

func (p *atomicProducer) Send(until time.Time) (int64, error) {
	acked, flying := int64(0), 0
	for time.Now().Before(until) {
		if flying == atomicBatchesInFlight {
			if err := p.wait(); err != nil {
				return acked, err
			}
			acked, flying = acked+int64(p.messages), flying-1
		}
		if err := p.sendBatch(); err != nil {
			return acked, err
		}
		flying++
	}
	for ; flying > 0; flying-- {
		if err := p.wait(); err != nil {
			return acked, err
		}
		acked += int64(p.messages)
	}
	return acked, nil
}

func (p *atomicProducer) sendBatch() error {
	batch := nuid.Next()
	for sequence := 1; sequence <= p.messages; sequence++ {
		message := &nats.Msg{
			Subject: queues[sequence%len(queues)],
			Header:  nats.Header{"Nats-Batch-Id": {batch}, "Nats-Batch-Sequence": {strconv.Itoa(sequence)}},
			Data:    p.body,
		}
		if sequence == p.messages {
			message.Header["Nats-Batch-Commit"] = []string{"1"}
			message.Reply = p.inbox
		}
		if err := p.connection.PublishMsg(message); err != nil {
			return err
		}
	}
	return p.connection.Flush()
}

func (p *atomicProducer) wait() error {
	select {
	case message := <-p.answers:
		answer := struct {
			Count int             `json:"count"`
			Error json.RawMessage `json:"error"`
		}{}
		if err := json.Unmarshal(message.Data, &answer); err != nil {
			return err
		}
		if answer.Error != nil || answer.Count != p.messages {
			return fmt.Errorf("sent a batch of %d messages, and the server answered %s", p.messages, message.Data)
		}
		return nil
	case <-time.After(ackTimeout):
		return fmt.Errorf("no acknowledgement of a batch of %d messages", p.messages)
	}
}
