// SPDX-License-Identifier: Apache-2.0

package load

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"runtime/debug"
	"time"
)

// System is a server under load, seen through its client.
type System interface {
	// Producer opens the number-th producer; each is used by one goroutine.
	Producer(number int) (Producer, error)
	// Caller opens the number-th caller; each is used by one goroutine.
	Caller(number int) (Caller, error)
	// Reader opens a reader that begins with the oldest message.
	Reader() (Reader, error)
}

// Finding is a System that finds messages by their keys.
type Finding interface {
	// Finder opens the number-th caller, each of whose calls finds a message; each is used by one goroutine.
	Finder(number int) (Caller, error)
}

// Sharing is a System whose consumers share messages, and acknowledge each of them.
type Sharing interface {
	// Receiver opens a reader that begins with the oldest message that its group has not received, and acknowledges
	// each message by itself. It has as many messages in work as there are callers, and ends early without messages.
	Receiver() (Reader, error)
}

// Producer sends a stream of messages.
type Producer interface {
	// Send sends until the given time, then waits for the last acknowledgement; it returns the acknowledged messages.
	Send(until time.Time) (int64, error)
}

// Caller sends single messages.
type Caller interface {
	// Call sends one message and waits for its acknowledgement.
	Call() error
}

// Reader reads what is stored, from the oldest message on, and begins anew at the end.
type Reader interface {
	// Read reads until the given time and counts what arrived.
	Read(until time.Time) (Count, error)
}

// Count is messages and the bytes of their bodies.
type Count struct {
	Messages int64
	Bytes    int64
}

// Result is the line that a generator prints.
type Result struct {
	Messages  int64              `json:"messages"`
	Bytes     int64              `json:"bytes"`
	Seconds   float64            `json:"seconds"`
	Latencies map[string]float64 `json:"latencies_ms,omitempty"`
}

// garbagePercent lets garbage grow to four times what is in use: a generator is not short of memory, and the server
// needs the processors.
const garbagePercent = 400

// Main runs the operation of the command line and exits: 0 after one JSON line, 1 after an error on stderr.
func Main(connect func(Arguments) (System, error)) {
	debug.SetGCPercent(garbagePercent)
	if err := run(os.Args[1:], connect, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(words []string, connect func(Arguments) (System, error), out io.Writer) error {
	arguments, err := parse(words)
	if err != nil {
		return err
	}
	system, err := connect(arguments)
	if err != nil {
		return fmt.Errorf("connect to %s: %w", arguments.Target, err)
	}
	result, err := operate(system, arguments)
	if err != nil {
		return fmt.Errorf("%s: %w", arguments.Operation, err)
	}
	return json.NewEncoder(out).Encode(result)
}

func operate(system System, arguments Arguments) (Result, error) {
	switch arguments.Operation {
	case "append":
		return produce(system, arguments)
	case "latency":
		return call(system, arguments)
	case "read":
		return read(system.Reader, arguments)
	case "receive":
		if sharing, canShare := system.(Sharing); canShare {
			return read(sharing.Receiver, arguments)
		}
	case "lookup":
		if finding, canFind := system.(Finding); canFind {
			return callWith(finding.Finder, arguments)
		}
	}
	return Result{}, fmt.Errorf("unknown operation; append, latency and read are known, lookup where keys are kept, and receive where consumers share")
}
