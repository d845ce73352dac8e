// SPDX-License-Identifier: Apache-2.0

package reput

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math"
	"strings"
	"unicode/utf8"

	commonv1 "reput/clients/go/reputpb/common/v1"
)

// Numbers of docs/formats/records_in_answers.md.
const (
	magicV1       = 0xdaa320a7
	magicV2       = 0xdaa320ab
	recordSizeMin = 91
	bodyAt        = 88 // with two IPv4 hosts
	bornHostIsV6  = 0x10
	storeHostIsV6 = 0x20
	moreOfV6      = 12
	propertyCRC   = "__CRC32#"
)

// messagesAnswer is an answer with messages in one of two forms.
type messagesAnswer interface {
	GetMessages() []*commonv1.StoredMessage
	GetRecords() []byte
	GetRecordCount() int32
}

// recordMessage is a message of an answer with records, with its hosts.
type recordMessage struct {
	message             commonv1.StoredMessage
	bornHost, storeHost commonv1.Host
}

// messagesIn returns the messages of an answer. Their bodies are parts of the answer's records. It fails unless the
// records are sound: nothing that they say is trusted.
func messagesIn(answer messagesAnswer) ([]*commonv1.StoredMessage, error) {
	rest, count := answer.GetRecords(), int(answer.GetRecordCount())
	if len(rest) == 0 && count == 0 {
		return answer.GetMessages(), nil
	}
	if count < 0 || count > len(rest)/recordSizeMin {
		return nil, nonsense(fmt.Sprintf("%d records are announced, and there are %d bytes", count, len(rest)))
	}
	made := make([]recordMessage, count)
	messages := make([]*commonv1.StoredMessage, count)
	topic := ""
	for index := range made {
		size, err := made[index].decode(rest, topic)
		if err != nil {
			return nil, nonsense(fmt.Sprintf("record %d of %d is not sound: %v", index, count, err))
		}
		rest, topic = rest[size:], made[index].message.Topic
		messages[index] = &made[index].message
	}
	if len(rest) > 0 {
		return nil, nonsense(fmt.Sprintf("%d bytes lie behind the last of %d records", len(rest), count))
	}
	return messages, nil
}

// decode reads the record at the beginning of the data and returns its size. A topic that equals the given topic shares
// its text.
func (r *recordMessage) decode(data []byte, topic string) (int, error) {
	if len(data) < recordSizeMin {
		return 0, fmt.Errorf("only %d bytes are left", len(data))
	}
	size := int(int32(binary.BigEndian.Uint32(data)))
	if size < recordSizeMin || size > len(data) {
		return 0, fmt.Errorf("its size is %d, and %d bytes are left", size, len(data))
	}
	record := data[:size:size]
	topicSizeSize := 1
	switch magic := binary.BigEndian.Uint32(record[4:]); magic {
	case magicV1:
	case magicV2:
		topicSizeSize = 2
	default:
		return 0, fmt.Errorf("its magic is %08x", magic)
	}
	sysFlag := int32Of(record, 36)
	storeTimeAt, body := 56, bodyAt
	if sysFlag&bornHostIsV6 != 0 {
		storeTimeAt, body = storeTimeAt+moreOfV6, body+moreOfV6
	}
	if sysFlag&storeHostIsV6 != 0 {
		body += moreOfV6
	}
	if body > size-2-topicSizeSize {
		return 0, fmt.Errorf("its %d bytes are too few for its hosts", size)
	}
	bodySize := int(int32Of(record, body-4))
	if bodySize < 0 || bodySize > size-2-topicSizeSize-body {
		return 0, fmt.Errorf("its body has %d bytes, and the record %d", bodySize, size)
	}
	bodyEnd := body + bodySize
	topicSize := int(int8(record[bodyEnd]))
	if topicSizeSize == 2 {
		topicSize = int(int16(binary.BigEndian.Uint16(record[bodyEnd:])))
	}
	topicStart := bodyEnd + topicSizeSize
	if topicSize < 0 || topicSize > size-2-topicStart {
		return 0, fmt.Errorf("its topic has %d bytes, and the record %d", topicSize, size)
	}
	topicEnd := topicStart + topicSize
	if found := int(int16(binary.BigEndian.Uint16(record[topicEnd:]))); found != size-2-topicEnd {
		return 0, fmt.Errorf("its properties have %d bytes, and %d are left", found, size-2-topicEnd)
	}
	m := &r.message
	m.Topic = topic
	if text := record[topicStart:topicEnd]; string(text) != topic {
		m.Topic = strings.ToValidUTF8(string(text), string(utf8.RuneError))
	}
	m.QueueId, m.Flag, m.SysFlag = int32Of(record, 12), int32Of(record, 16), sysFlag
	m.QueueOffset, m.PhysicalOffset = int64Of(record, 20), int64Of(record, 28)
	m.BornTimeMs, m.StoreTimeMs = int64Of(record, 40), int64Of(record, storeTimeAt)
	m.ReconsumeTimes, m.PreparedTransactionOffset = int32Of(record, body-16), int64Of(record, body-12)
	m.RecordSizeBytes = int32(size)
	if bodySize > 0 {
		m.Body = record[body:bodyEnd:bodyEnd]
	}
	setHost(&r.bornHost, record[48:storeTimeAt])
	setHost(&r.storeHost, record[storeTimeAt+8:body-16])
	m.BornHost, m.StoreHost = &r.bornHost, &r.storeHost
	var id [28]byte
	m.OffsetMessageId = upperHex(append(append(id[:0], record[storeTimeAt+8:body-16]...), record[28:36]...))
	m.Properties, m.RawProperties = propertiesOf(record[topicEnd+2:])
	return size, nil
}

func setHost(host *commonv1.Host, stored []byte) {
	address := len(stored) - 4
	host.Address, host.Port = stored[:address:address], int32Of(stored, address)
}

// propertiesOf returns the properties of a property string, and the string itself if it is not UTF-8. A piece without a
// name or without a value is ignored. Of several equal names the last is used. The store's own property is left out.
func propertiesOf(stored []byte) (map[string]string, []byte) {
	if !utf8.Valid(stored) {
		return nil, stored
	}
	if len(stored) == 0 {
		return nil, nil
	}
	text := string(stored) // names and values share it
	properties := make(map[string]string, min(bytes.Count(stored, []byte(valueEnd))+1, math.MaxInt8))
	for piece := range strings.SplitSeq(text, valueEnd) {
		name, value, _ := strings.Cut(piece, nameEnd)
		if name != "" && value != "" && name != propertyCRC {
			properties[name] = value
		}
	}
	return properties, nil
}

func int32Of(data []byte, at int) int32 { return int32(binary.BigEndian.Uint32(data[at:])) }

func int64Of(data []byte, at int) int64 { return int64(binary.BigEndian.Uint64(data[at:])) }
