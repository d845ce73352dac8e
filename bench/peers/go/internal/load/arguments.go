// SPDX-License-Identifier: Apache-2.0

// Package load is what the load generators share: their command line, their clock, and the line that they print.
//
//	LOAD append  --target HOST:PORT --body BYTES --batch BYTES --producers N --seconds S
//	LOAD latency --target HOST:PORT --body BYTES --callers N --calls TOTAL
//	LOAD read    --target HOST:PORT --seconds S
//	LOAD lookup  --target HOST:PORT --callers N --calls TOTAL
//	LOAD receive --target HOST:PORT --callers N --seconds S
//
// A generator adds flags of its own to the package flag's CommandLine before it calls Main.
package load

import (
	"flag"
	"fmt"
	"time"
)

// Arguments is the command line that all generators understand.
type Arguments struct {
	Operation string
	Target    string
	// BodyBytes is the size of one message's body.
	BodyBytes int
	// BatchBytes is how many bytes of bodies one producer has on their way, or in one batch.
	BatchBytes int
	Producers  int
	Callers    int
	// Calls is the total of all callers.
	Calls    int
	Duration time.Duration
}

// BatchMessages is how many bodies fill one batch; at least one.
func (a Arguments) BatchMessages() int {
	return max(1, a.BatchBytes/max(1, a.BodyBytes))
}

// Body is the body of each message.
func (a Arguments) Body() []byte {
	body := make([]byte, a.BodyBytes)
	for at := range body {
		body[at] = 'x'
	}
	return body
}

func parse(words []string) (Arguments, error) {
	if len(words) == 0 {
		return Arguments{}, fmt.Errorf("the operation is missing: append, latency, read, lookup or receive")
	}
	arguments := Arguments{Operation: words[0]}
	seconds := 0.0
	flags := flag.CommandLine
	flags.Init(words[0], flag.ContinueOnError)
	flags.StringVar(&arguments.Target, "target", "", "HOST:PORT of the server")
	flags.IntVar(&arguments.BodyBytes, "body", 1024, "bytes of a body")
	flags.IntVar(&arguments.BatchBytes, "batch", 1<<20, "bytes of bodies in a batch, or in flight, for each producer")
	flags.IntVar(&arguments.Producers, "producers", 1, "concurrent producers")
	flags.IntVar(&arguments.Callers, "callers", 16, "concurrent callers")
	flags.IntVar(&arguments.Calls, "calls", 2000, "calls of all callers together")
	flags.Float64Var(&seconds, "seconds", 3, "length of the load")
	if err := flags.Parse(words[1:]); err != nil {
		return Arguments{}, err
	}
	if arguments.Target == "" || flags.NArg() > 0 {
		return Arguments{}, fmt.Errorf("--target HOST:PORT is needed, and nothing beside flags; left over: %q", flags.Args())
	}
	arguments.Duration = time.Duration(seconds * float64(time.Second))
	return arguments, nil
}
