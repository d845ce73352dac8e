// SPDX-License-Identifier: Apache-2.0

package load

import (
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// warmUp goes before each clock: connections, pages and allocators are as in a server that runs for a while.
const warmUp = time.Second

func produce(system System, arguments Arguments) (Result, error) {
	producers, err := open(arguments.Producers, system.Producer)
	if err != nil {
		return Result{}, err
	}
	if _, err := sendAll(producers, warmUp); err != nil {
		return Result{}, err
	}
	start := time.Now()
	messages, err := sendAll(producers, arguments.Duration)
	return Result{
		Messages: messages,
		Bytes:    messages * int64(arguments.BodyBytes),
		Seconds:  time.Since(start).Seconds(),
	}, err
}

func sendAll(producers []Producer, duration time.Duration) (int64, error) {
	until := time.Now().Add(duration)
	var total atomic.Int64
	var group errgroup.Group
	for _, producer := range producers {
		group.Go(func() error {
			messages, err := producer.Send(until)
			total.Add(messages)
			return err
		})
	}
	err := group.Wait()
	return total.Load(), err
}

func call(system System, arguments Arguments) (Result, error) {
	return callWith(system.Caller, arguments)
}

func callWith(make func(number int) (Caller, error), arguments Arguments) (Result, error) {
	callers, err := open(arguments.Callers, make)
	if err != nil {
		return Result{}, err
	}
	warm := time.Now().Add(warmUp)
	if _, err := callAll(callers, func() bool { return time.Now().Before(warm) }); err != nil {
		return Result{}, err
	}
	var begun atomic.Int64
	start := time.Now()
	latencies, err := callAll(callers, func() bool { return begun.Add(1) <= int64(arguments.Calls) })
	if err != nil {
		return Result{}, err
	}
	return Result{
		Messages:  int64(len(latencies)),
		Bytes:     int64(len(latencies)) * int64(arguments.BodyBytes),
		Seconds:   time.Since(start).Seconds(),
		Latencies: Percentiles(latencies),
	}, nil
}

// callAll lets each caller call as long as more says so, and returns how long each call took.
func callAll(callers []Caller, more func() bool) ([]time.Duration, error) {
	each := make([][]time.Duration, len(callers))
	var group errgroup.Group
	for number, caller := range callers {
		group.Go(func() error {
			for more() {
				start := time.Now()
				if err := caller.Call(); err != nil {
					return err
				}
				each[number] = append(each[number], time.Since(start))
			}
			return nil
		})
	}
	err := group.Wait()
	return slices.Concat(each...), err
}

func read(open func() (Reader, error), arguments Arguments) (Result, error) {
	reader, err := open()
	if err != nil {
		return Result{}, err
	}
	if _, err := reader.Read(time.Now().Add(warmUp)); err != nil {
		return Result{}, err
	}
	start := time.Now()
	count, err := reader.Read(start.Add(arguments.Duration))
	return Result{Messages: count.Messages, Bytes: count.Bytes, Seconds: time.Since(start).Seconds()}, err
}

func open[T any](count int, make func(number int) (T, error)) ([]T, error) {
	opened := []T{}
	for number := range count {
		one, err := make(number)
		if err != nil {
			return nil, err
		}
		opened = append(opened, one)
	}
	return opened, nil
}

// Percentiles returns p50, p99 and p999 in milliseconds: the smallest latency that so many calls did not exceed.
func Percentiles(latencies []time.Duration) map[string]float64 {
	sorted := slices.Sorted(slices.Values(latencies))
	result := map[string]float64{}
	for name, perMille := range map[string]int{"p50": 500, "p99": 990, "p999": 999} {
		if len(sorted) == 0 {
			continue
		}
		rank := (len(sorted)*perMille + 999) / 1000
		result[name] = float64(sorted[rank-1]) / float64(time.Millisecond)
	}
	return result
}
