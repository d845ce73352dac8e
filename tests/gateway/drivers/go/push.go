// SPDX-License-Identifier: Apache-2.0

package main

import (
	"maps"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
)

// listener fails each body as often as `fail` says.
type listener struct {
	lock   sync.Mutex
	fail   map[string]int
	events []map[string]any
	done   int
}

func (l *listener) consume(view *rmq.MessageView) rmq.ConsumerResult {
	l.lock.Lock()
	defer l.lock.Unlock()
	body := string(view.GetBody())
	isFailed := l.fail[body] > 0
	l.fail[body]--
	event := described(view)
	event["failed"], event["time_ms"] = isFailed, time.Now().UnixMilli()
	l.events = append(l.events, event)
	if isFailed {
		return rmq.FAILURE
	}
	l.done++
	return rmq.SUCCESS
}

func (l *listener) doneCount() int {
	l.lock.Lock()
	defer l.lock.Unlock()
	return l.done
}

// push lets a push consumer work until this many messages succeeded, or the time is over.
func (d *driver) push(a ask) (any, error) {
	work := &listener{fail: map[string]int{}, events: []map[string]any{}}
	maps.Copy(work.fail, a.Fail)
	config := d.config
	config.ConsumerGroup = a.ConsumerGroup
	consumer, err := rmq.NewPushConsumer(&config, rmq.WithPushSubscriptionExpressions(subscription(a)),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: work.consume}))
	if err != nil {
		return nil, err
	}
	if err := consumer.Start(); err != nil {
		return nil, err
	}
	end := time.Now().Add(time.Duration(a.Seconds) * time.Second)
	for time.Now().Before(end) && work.doneCount() < int(a.Count) {
		time.Sleep(100 * time.Millisecond)
	}
	time.Sleep(time.Second)
	if err := consumer.GracefulStop(); err != nil {
		return nil, err
	}
	return map[string]any{"events": work.events}, nil
}
