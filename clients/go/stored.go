// SPDX-License-Identifier: Apache-2.0

package reput

import (
	"encoding/binary"
	"strings"
	"time"

	commonv1 "reput/clients/go/reputpb/common/v1"
)

// Durability is how safe a stored message is. Each level covers the faults of those before it.
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

// Result tells where a message was stored.
type Result struct {
	// QueueID is the queue within the topic; of a delayed message its level less 1, in SCHEDULE_TOPIC_XXXX.
	QueueID int32
	// QueueOffset is the entry number in the queue, from 0; of a delayed message where it waits.
	QueueOffset int64
	// PhysicalOffset is the position of the record's first byte in the whole log.
	PhysicalOffset int64
	// StoreTime is by the store's clock, in whole milliseconds.
	StoreTime time.Time
	// Durability is what was reached. Lower than what was asked for: stored, but the sync took too long; don't send it
	// again.
	Durability Durability
	// UniqueID is the message's, empty if it has none.
	UniqueID string
	// storeHost has the address and port (4 bytes) of the store.
	storeHost []byte
}

// OffsetMessageID returns the id that names the record's place.
func (r *Result) OffsetMessageID() string {
	id := make([]byte, 0, len(r.storeHost)+8)
	id = append(id, r.storeHost...)
	return upperHex(binary.BigEndian.AppendUint64(id, uint64(r.PhysicalOffset)))
}

// StoredMessage is a message as it is stored. Its fields are those of reput.common.v1.StoredMessage: Topic, QueueId,
// QueueOffset, Body, Properties and so on.
type StoredMessage struct{ *commonv1.StoredMessage }

// Tag returns the tag, empty without one.
func (m StoredMessage) Tag() string { return m.Properties[propertyTag] }

// Keys returns the keys, without the unique id. Spaces alone separate them, so that other white space is part of a key.
func (m StoredMessage) Keys() []string {
	return strings.FieldsFunc(m.Properties[propertyKeys], func(r rune) bool { return r == ' ' })
}

// UniqueID returns the unique id, empty without one.
func (m StoredMessage) UniqueID() string { return m.Properties[propertyUniqueID] }

// BornTime returns when the message was made, by the producer's clock.
func (m StoredMessage) BornTime() time.Time { return time.UnixMilli(m.BornTimeMs) }

// StoreTime returns when the message was stored, by the store's clock.
func (m StoredMessage) StoreTime() time.Time { return time.UnixMilli(m.StoreTimeMs) }
