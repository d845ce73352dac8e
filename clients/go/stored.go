// SPDX-License-Identifier: Apache-2.0

package reput

import (
	"encoding/binary"
	"strings"
	"time"

	commonv1 "reput/clients/go/reputpb/common/v1"
)

// Durability is the durability of a stored message. Each level covers the faults of the levels before it.
type Durability = commonv1.Durability

const (
	// DurabilityDefault, of a producer: the store's own level.
	DurabilityDefault = commonv1.Durability_DURABILITY_UNSPECIFIED
	// DurabilityMemory survives a crash of the service, not of the machine.
	DurabilityMemory = commonv1.Durability_DURABILITY_MEMORY
	// DurabilityLocalDisk survives a power cut.
	DurabilityLocalDisk = commonv1.Durability_DURABILITY_LOCAL_DISK
	// DurabilityReplicated survives the loss of a machine.
	DurabilityReplicated = commonv1.Durability_DURABILITY_REPLICATED
)

// Result is the place of a stored message, and its durability.
type Result struct {
	// QueueID is the queue within the topic; for a delayed message its level minus 1, in SCHEDULE_TOPIC_XXXX.
	QueueID int32
	// QueueOffset is the entry number in the queue, from 0; for a delayed message the entry where it waits.
	QueueOffset int64
	// PhysicalOffset is the position of the record's first byte in the whole log.
	PhysicalOffset int64
	// StoreTime is by the store's clock, in whole milliseconds.
	StoreTime time.Time
	// Durability is the level that was reached. If it is lower than requested, the message is stored, but the sync took
	// too long; don't send it again.
	Durability Durability
	// UniqueID is the unique id of the message, empty without a unique id.
	UniqueID string
	// storeHost has the address and port (4 bytes) of the store.
	storeHost []byte
}

// OffsetMessageID returns the id of the record's place: store host and physical offset in hexadecimal.
func (r *Result) OffsetMessageID() string {
	id := make([]byte, 0, len(r.storeHost)+8)
	id = append(id, r.storeHost...)
	return upperHex(binary.BigEndian.AppendUint64(id, uint64(r.PhysicalOffset)))
}

// StoredMessage is a message as it is stored. Its fields are the fields of reput.common.v1.StoredMessage: Topic,
// QueueId, QueueOffset, Body, Properties and so on.
//
// The messages of an answer and their bodies share memory: to keep a few of many messages for long, copy what you need
// (bytes.Clone, strings.Clone).
type StoredMessage struct{ *commonv1.StoredMessage }

// Tag returns the tag, empty without a tag.
func (m StoredMessage) Tag() string { return m.Properties[propertyTag] }

// Keys returns the keys, without the unique id. Only spaces separate them, so that other white space is part of a key.
func (m StoredMessage) Keys() []string {
	return strings.FieldsFunc(m.Properties[propertyKeys], func(r rune) bool { return r == ' ' })
}

// UniqueID returns the unique id, empty without a unique id.
func (m StoredMessage) UniqueID() string { return m.Properties[propertyUniqueID] }

// BornTime returns the time when the message was made, by the producer's clock.
func (m StoredMessage) BornTime() time.Time { return time.UnixMilli(m.BornTimeMs) }

// StoreTime returns the time when the message was stored, by the store's clock.
func (m StoredMessage) StoreTime() time.Time { return time.UnixMilli(m.StoreTimeMs) }
