// SPDX-License-Identifier: Apache-2.0

package reput

import (
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"

	commitlogv1 "reput/clients/go/reputpb/commitlog/v1"
)

// Names of properties with a special meaning.
const (
	propertyUniqueID    = "UNIQ_KEY"
	propertyTag         = "TAGS"
	propertyKeys        = "KEYS"
	propertyShardingKey = "__SHARDINGKEY"
	propertyDelay       = "DELAY"
)

// Bytes of RocketMQ's property string: name 0x01 value 0x02, and so on.
const (
	nameEnd  = "\x01"
	valueEnd = "\x02"
)

// requestOverheadBytes is more than the size of a request beside a single message.
const requestOverheadBytes = 64

// bornTimeMsMax is the last millisecond of the year 9999; the store accepts no later born time.
const bornTimeMsMax = 253_402_300_799_999

// Message is a message to send. It is read before Send returns; afterwards the caller may change the values that it
// refers to.
type Message struct {
	// Topic has 1 to 127 letters, digits, and characters of "_-%|". The store creates it if its settings allow this.
	Topic string
	// Body is the content; at most 4 MiB unless the store is configured otherwise.
	Body []byte
	// QueueID is the queue within the topic, from 0, as in new(int32(2)). Nil: the store chooses, by ShardingKey if it
	// is set.
	QueueID *int32
	// Tag is the tag by which consumers filter. Empty: no tag.
	Tag string
	// Keys are the keys by which queries find the message. A key is not empty and has no space.
	Keys []string
	// Properties are the caller's own. Names are not empty and have neither 0x01 nor 0x02; values are not empty and
	// have no 0x02. Tag, Keys, ShardingKey, UniqueID and DelayLevel take precedence over properties of the same
	// meaning.
	Properties map[string]string
	// ShardingKey: messages with the same key are stored in the same queue, as long as the topic keeps its number of
	// queues. Empty: no key.
	ShardingKey string
	// UniqueID identifies the message. Empty: the producer makes a unique id, unless its option UniqueIDs is false.
	UniqueID string
	// DelayLevel delays the message by a delay level of the store, from 1. 0: no delay.
	DelayLevel int
	// Flag is opaque to the store.
	Flag int32
	// BornTime is when the message was made, in milliseconds on the wire. Zero: when it is sent.
	BornTime time.Time
}

// encoder makes messages ready to send. Safe for any number of goroutines.
type encoder struct {
	// uniqueIDs is nil if messages without a unique id stay so.
	uniqueIDs *uniqueIDs
}

// encode returns the future of a message, which holds the message as encoded for a request.
func (e *encoder) encode(message *Message, now time.Time) (*Future, error) {
	uniqueID := message.UniqueID
	if uniqueID == "" {
		uniqueID = message.Properties[propertyUniqueID]
	}
	if uniqueID == "" && e.uniqueIDs != nil {
		uniqueID = e.uniqueIDs.next(now)
	}
	properties, err := message.propertyString(uniqueID)
	if err != nil {
		return nil, err
	}
	bornTime := message.BornTime
	if bornTime.IsZero() {
		bornTime = now
	}
	if ms := bornTime.UnixMilli(); ms < 0 || ms > bornTimeMsMax {
		return nil, badArgument("the born time is %d ms, and not 0 to %d (the year 9999)", ms, int64(bornTimeMsMax))
	}
	chunk, err := toChunk(&commitlogv1.AppendMessage{
		Topic: message.Topic, QueueId: message.QueueID, Body: message.Body, PropertyString: properties,
		Flag: message.Flag, BornTimeMs: bornTime.UnixMilli(),
	})
	if err != nil {
		return nil, err
	}
	return newFuture(chunk, message.Topic, uniqueID), nil
}

// toChunk returns an entry of a request's messages, which is the same as a request with a single message. A request
// consists of such chunks in sequence, and its durability. So a batch can be cut anywhere without encoding the messages
// again.
func toChunk(message *commitlogv1.AppendMessage) ([]byte, error) {
	chunk, err := proto.Marshal(&commitlogv1.AppendStreamRequest{Messages: []*commitlogv1.AppendMessage{message}})
	if err != nil {
		return nil, badArgument("the message can't be encoded: %v", err)
	}
	if limit := transportSizeBytesMax - requestOverheadBytes; len(chunk) > limit {
		return nil, badArgument("the body has %d bytes, and this client sends %d at most; nothing was sent",
			len(message.Body), limit-len(chunk)+len(message.Body))
	}
	return chunk, nil
}

// propertyString returns all properties of a message in RocketMQ's form, and an error for invalid values.
func (m *Message) propertyString(uniqueID string) ([]byte, error) {
	own, err := m.ownProperties(uniqueID)
	if err != nil {
		return nil, err
	}
	all := own
	for _, name := range slices.Sorted(maps.Keys(m.Properties)) {
		if !slices.ContainsFunc(own, func(p property) bool { return p.name == name }) {
			all = append(all, property{name, m.Properties[name]})
		}
	}
	var text []byte
	for _, property := range all {
		if text, err = appendProperty(text, property); err != nil {
			return nil, err
		}
	}
	return text, nil
}

type property struct{ name, value string }

// ownProperties returns the properties for the fields of the message.
func (m *Message) ownProperties(uniqueID string) ([]property, error) {
	for _, key := range m.Keys {
		if key == "" || strings.Contains(key, " ") {
			return nil, badArgument("the key %q is empty or has a space", key)
		}
	}
	delay := ""
	if m.DelayLevel < 0 {
		return nil, badArgument("the delay level is %d, but levels begin at 1, and 0 is no delay", m.DelayLevel)
	} else if m.DelayLevel > 0 {
		delay = strconv.Itoa(m.DelayLevel)
	}
	own := []property{
		{propertyUniqueID, uniqueID}, {propertyTag, m.Tag}, {propertyKeys, strings.Join(m.Keys, " ")},
		{propertyShardingKey, m.ShardingKey}, {propertyDelay, delay},
	}
	return slices.DeleteFunc(own, func(p property) bool { return p.value == "" }), nil
}

// appendProperty refuses a property that would change the meaning of another property.
func appendProperty(text []byte, p property) ([]byte, error) {
	if p.name == "" || strings.ContainsAny(p.name, nameEnd+valueEnd) {
		return nil, badArgument("the property name %q is empty or has a separator (0x01, 0x02)", p.name)
	}
	if p.value == "" || strings.Contains(p.value, valueEnd) {
		return nil, badArgument("the value of the property %q is empty or has a separator (0x02)", p.name)
	}
	text = append(append(text, p.name...), nameEnd...)
	return append(append(text, p.value...), valueEnd...), nil
}
