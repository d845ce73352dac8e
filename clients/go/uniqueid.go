// SPDX-License-Identifier: Apache-2.0

package reput

import (
	"crypto/rand"
	"encoding/binary"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// uniqueIDs makes unique ids in RocketMQ's form: 32 hexadecimal digits of address, process, time in the month and a
// counter. Four random bytes replace the hash code of the class loader of RocketMQ's client. Layout: RocketMQ 5.3
// MessageClientIDSetter. Safe for any number of goroutines.
type uniqueIDs struct {
	// prefix is the same in all ids: 4 bytes of address, 2 of process id, 4 random bytes.
	prefix [10]byte
	count  atomic.Uint32
}

func newUniqueIDs() *uniqueIDs {
	ids := &uniqueIDs{}
	copy(ids.prefix[:4], ownAddress())
	binary.BigEndian.PutUint16(ids.prefix[4:6], uint16(os.Getpid()))
	rand.Read(ids.prefix[6:])
	return ids
}

// next returns a new id. Times are counted from the first day of the month, local time, as RocketMQ's client does.
func (u *uniqueIDs) next(now time.Time) string {
	year, month, _ := now.Local().Date()
	start := time.Date(year, month, 1, 0, 0, 0, 0, time.Local)
	var id [16]byte
	copy(id[:], u.prefix[:])
	binary.BigEndian.PutUint32(id[10:14], uint32(now.Sub(start).Milliseconds()))
	binary.BigEndian.PutUint16(id[14:], uint16(u.count.Add(1)-1))
	return upperHex(id[:])
}

// ownAddress returns the IPv4 address of this machine's default route, 4 random bytes without a route. Sends nothing.
func ownAddress() []byte {
	// An address for documentation: only its route is used.
	if probe, err := net.Dial("udp4", "192.0.2.1:9"); err == nil {
		defer probe.Close()
		if local, ok := probe.LocalAddr().(*net.UDPAddr); ok && local.IP.To4() != nil {
			return local.IP.To4()
		}
	}
	address := make([]byte, 4)
	rand.Read(address)
	return address
}

// upperHex returns hexadecimal in upper case, as RocketMQ writes ids.
func upperHex(data []byte) string {
	const digits = "0123456789ABCDEF"
	text := make([]byte, 0, 2*len(data))
	for _, value := range data {
		text = append(text, digits[value>>4], digits[value&0xF])
	}
	return string(text)
}
