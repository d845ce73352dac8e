// SPDX-License-Identifier: Apache-2.0

// Command redisload loads Redis Streams through rueidis. The queues are four streams.
package main

import (
	"context"
	"flag"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
	"golang.org/x/sync/errgroup"

	"reput/bench/internal/load"
)

const (
	// storedBytesMax ends a load before the streams, which live in memory, outgrow the server's maxmemory.
	storedBytesMax = 4 << 30
	// rangeCount is the number of messages in one XRANGE.
	rangeCount = 1000
	// bufferBytes is a connection's buffer on each side.
	bufferBytes = 1 << 20
)

var (
	queues         = [...]string{"q0", "q1", "q2", "q3"}
	atTheBeginning = [len(queues)]string{"-", "-", "-", "-"}
)

type system struct {
	arguments load.Arguments
	body      string
	stored    atomic.Int64
	// shared is the connection of all callers.
	shared rueidis.Client
}

var connections = flag.Int("connections", 1, "connections of one producer, each with a pipeline on its way")

func main() {
	load.Main(func(arguments load.Arguments) (load.System, error) {
		return &system{arguments: arguments, body: string(arguments.Body())}, nil
	})
}

func (s *system) connect() (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{
		InitAddress:         []string{s.arguments.Target},
		DisableCache:        true,
		AlwaysPipelining:    true,
		PipelineMultiplex:   -1,
		ReadBufferEachConn:  bufferBytes,
		WriteBufferEachConn: bufferBytes,
		ConnWriteTimeout:    30 * time.Second,
	})
}

func (s *system) add(client rueidis.Client, number int64) rueidis.Completed {
	return client.B().Xadd().Key(queues[number%int64(len(queues))]).Id("*").
		FieldValue().FieldValue("k", "order-"+strconv.FormatInt(number, 10)).FieldValue("b", s.body).Build()
}

// producer sends pipelines of XADD.
type producer struct {
	system  *system
	clients []rueidis.Client
	next    atomic.Int64
}

func (s *system) Producer(int) (load.Producer, error) {
	p := &producer{system: s}
	for range *connections {
		client, err := s.connect()
		if err != nil {
			return nil, err
		}
		p.clients = append(p.clients, client)
	}
	return p, nil
}

func (p *producer) Send(until time.Time) (int64, error) {
	var sent atomic.Int64
	var group errgroup.Group
	for _, client := range p.clients {
		group.Go(func() error {
			for time.Now().Before(until) && p.system.stored.Load() < storedBytesMax {
				if err := p.pipeline(client); err != nil {
					return err
				}
				sent.Add(int64(p.system.arguments.BatchMessages()))
			}
			return nil
		})
	}
	err := group.Wait()
	return sent.Load(), err
}

func (p *producer) pipeline(client rueidis.Client) error {
	count := p.system.arguments.BatchMessages()
	commands := make(rueidis.Commands, count)
	first := p.next.Add(int64(count)) - int64(count)
	for at := range commands {
		commands[at] = p.system.add(client, first+int64(at))
	}
	for _, answer := range client.DoMulti(context.Background(), commands...) {
		if err := answer.Error(); err != nil {
			return err
		}
	}
	p.system.stored.Add(int64(count * p.system.arguments.BodyBytes))
	return nil
}

// caller sends one XADD; rueidis puts those of concurrent callers into one write.
type caller struct {
	system *system
	client rueidis.Client
	next   int64
}

func (s *system) Caller(number int) (load.Caller, error) {
	if s.shared == nil {
		client, err := s.connect()
		if err != nil {
			return nil, err
		}
		s.shared = client
	}
	return &caller{system: s, client: s.shared, next: int64(number)}, nil
}

func (c *caller) Call() error {
	c.next += int64(c.system.arguments.Callers)
	return c.client.Do(context.Background(), c.system.add(c.client, c.next)).Error()
}

// reader reads all streams at once, each from its own position.
type reader struct {
	client rueidis.Client
	from   [len(queues)]string
}

func (s *system) Reader() (load.Reader, error) {
	client, err := s.connect()
	return &reader{client: client, from: atTheBeginning}, err
}

func (r *reader) Read(until time.Time) (load.Count, error) {
	total := load.Count{}
	for time.Now().Before(until) {
		commands := make(rueidis.Commands, len(queues))
		for number, queue := range queues {
			commands[number] = r.client.B().Xrange().Key(queue).Start(r.from[number]).End("+").Count(rangeCount).Build()
		}
		before := total.Messages
		for number, answer := range r.client.DoMulti(context.Background(), commands...) {
			entries, err := answer.AsXRangeSlices()
			if err != nil {
				return total, err
			}
			r.take(number, entries, &total)
		}
		if total.Messages == before && r.from == atTheBeginning {
			return total, fmt.Errorf("the streams are empty")
		}
	}
	return total, nil
}

// take counts the entries of a queue and moves its position; a part answer is the end, and the beginning follows.
func (r *reader) take(number int, entries []rueidis.XRangeSlice, total *load.Count) {
	total.Messages += int64(len(entries))
	for _, entry := range entries {
		total.Bytes += int64(len(entry.FieldValues[1].Value))
	}
	if len(entries) < rangeCount {
		r.from[number] = "-"
		return
	}
	r.from[number] = "(" + entries[len(entries)-1].ID
}
