// SPDX-License-Identifier: Apache-2.0

// The official client for Go as a driver of the table.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

// messageNotFound is the code of a receive without a message, which only this library returns as an error.
const messageNotFound = 40401

type ask struct {
	Do            string            `json:"do"`
	Endpoints     string            `json:"endpoints"`
	TLS           bool              `json:"tls"`
	Key           string            `json:"key"`
	Secret        string            `json:"secret"`
	Topic         string            `json:"topic"`
	Body          string            `json:"body"`
	Tag           string            `json:"tag"`
	Keys          []string          `json:"keys"`
	Group         string            `json:"group"`
	Properties    map[string]string `json:"properties"`
	DeliverS      int64             `json:"deliver_s"`
	RecallHandle  string            `json:"recall_handle"`
	ConsumerGroup string            `json:"consumer_group"`
	Tags          string            `json:"tags"`
	SQL           string            `json:"sql"`
	Count         int32             `json:"count"`
	InvisibleS    int               `json:"invisible_s"`
	Number        int               `json:"number"`
	End           string            `json:"end"`
	Seconds       int               `json:"seconds"`
	Fail          map[string]int    `json:"fail"`
}

type held struct {
	consumer rmq.SimpleConsumer
	message  *rmq.MessageView
}

type driver struct {
	config    rmq.Config
	producers map[string]rmq.Producer
	consumers map[string]rmq.SimpleConsumer
	messages  []held
}

func text(value *string) string {
	if value == nil {
		return ""
	}
	return *value
}

func (d *driver) connect(a ask) (any, error) {
	for _, producer := range d.producers {
		_ = producer.GracefulStop()
	}
	for _, consumer := range d.consumers {
		_ = consumer.GracefulStop()
	}
	*d = driver{producers: map[string]rmq.Producer{}, consumers: map[string]rmq.SimpleConsumer{}}
	rmq.EnableSsl = a.TLS
	d.config = rmq.Config{
		Endpoint:    a.Endpoints,
		Credentials: &credentials.SessionCredentials{AccessKey: a.Key, AccessSecret: a.Secret},
	}
	return map[string]any{}, nil
}

func (d *driver) send(a ask) (any, error) {
	producer, found := d.producers[a.Topic]
	if !found {
		config := d.config
		made, err := rmq.NewProducer(
			&config, rmq.WithTopics(a.Topic), rmq.WithTransactionChecker(&rmq.TransactionChecker{Check: check}))
		if err != nil {
			return nil, err
		}
		if err := made.Start(); err != nil {
			return nil, err
		}
		producer, d.producers[a.Topic] = made, made
	}
	message := &rmq.Message{Topic: a.Topic, Body: []byte(a.Body)}
	if a.Tag != "" {
		message.SetTag(a.Tag)
	}
	if a.Group != "" {
		message.SetMessageGroup(a.Group)
	}
	if len(a.Keys) > 0 {
		message.SetKeys(a.Keys...)
	}
	if a.DeliverS > 0 {
		message.SetDelayTimestamp(time.Unix(a.DeliverS, 0))
	}
	for name, value := range a.Properties {
		message.AddProperty(name, value)
	}
	if a.Do == "begin" {
		return begin(producer, message, a.End)
	}
	receipts, err := producer.Send(context.Background(), message)
	if err != nil {
		return nil, err
	}
	return map[string]any{"id": receipts[0].MessageID, "recall_handle": receipts[0].RecallHandle}, nil
}

func (d *driver) recall(a ask) (any, error) {
	id, err := d.producers[a.Topic].Recall(context.Background(), a.Topic, a.RecallHandle)
	return map[string]any{"id": id}, err
}

// check returns the end of a transaction that its producer has forgotten: the end that is named in the message's body.
func check(message *rmq.MessageView) rmq.TransactionResolution {
	if string(message.GetBody()) == "commit when asked" {
		return rmq.COMMIT
	}
	return rmq.ROLLBACK
}

func begin(producer rmq.Producer, message *rmq.Message, end string) (any, error) {
	transaction := producer.BeginTransaction()
	receipts, err := producer.SendWithTransaction(context.Background(), message, transaction)
	if err != nil {
		return nil, err
	}
	if end == "commit" {
		err = transaction.Commit()
	} else if end == "rollback" {
		err = transaction.RollBack()
	}
	return map[string]any{"id": receipts[0].MessageID}, err
}

// subscription returns the filter of a request for its topic.
func subscription(a ask) map[string]*rmq.FilterExpression {
	expression := rmq.SUB_ALL
	if a.SQL != "" {
		expression = rmq.NewFilterExpressionWithType(a.SQL, rmq.SQL92)
	} else if a.Tags != "" {
		expression = rmq.NewFilterExpression(a.Tags)
	}
	return map[string]*rmq.FilterExpression{a.Topic: expression}
}

// described returns the parts of a message that the table checks.
func described(view *rmq.MessageView) map[string]any {
	keys := append([]string{}, view.GetKeys()...)
	sort.Strings(keys)
	return map[string]any{
		"body": string(view.GetBody()), "tag": text(view.GetTag()), "keys": keys,
		"properties": view.GetProperties(), "group": text(view.GetMessageGroup()),
		"attempt": view.GetDeliveryAttempt(), "id": view.GetMessageId(),
	}
}

func (d *driver) receive(a ask) (any, error) {
	name := a.Topic + " " + a.ConsumerGroup + " " + a.Tags + " " + a.SQL
	consumer, found := d.consumers[name]
	if !found {
		config := d.config
		config.ConsumerGroup = a.ConsumerGroup
		made, err := rmq.NewSimpleConsumer(&config,
			rmq.WithSimpleAwaitDuration(5*time.Second), rmq.WithSimpleSubscriptionExpressions(subscription(a)))
		if err != nil {
			return nil, err
		}
		if err := made.Start(); err != nil {
			return nil, err
		}
		consumer, d.consumers[name] = made, made
	}
	views, err := consumer.Receive(context.Background(), a.Count, time.Duration(a.InvisibleS)*time.Second)
	if status, isStatus := rmq.AsErrRpcStatus(err); isStatus && status.GetCode() == messageNotFound {
		err = nil
	}
	if err != nil {
		return nil, err
	}
	told := []map[string]any{}
	for _, view := range views {
		one := described(view)
		one["number"] = len(d.messages)
		told = append(told, one)
		d.messages = append(d.messages, held{consumer, view})
	}
	return map[string]any{"messages": told}, nil
}

func (d *driver) answer(a ask) (any, error) {
	switch a.Do {
	case "connect":
		return d.connect(a)
	case "send", "begin":
		return d.send(a)
	case "recall":
		return d.recall(a)
	case "push":
		return d.push(a)
	case "receive":
		return d.receive(a)
	case "ack":
		one := d.messages[a.Number]
		return map[string]any{}, one.consumer.Ack(context.Background(), one.message)
	case "change":
		one := d.messages[a.Number]
		return map[string]any{}, one.consumer.ChangeInvisibleDuration(one.message, time.Duration(a.InvisibleS)*time.Second)
	}
	return nil, fmt.Errorf("no %s", a.Do)
}

func main() {
	var d driver
	input := bufio.NewScanner(os.Stdin)
	output := json.NewEncoder(os.Stdout)
	for input.Scan() {
		var a ask
		if err := json.Unmarshal(input.Bytes(), &a); err != nil {
			panic(err)
		}
		answer := map[string]any{}
		if ok, err := d.answer(a); err != nil {
			answer["error"] = err.Error()
		} else {
			answer["ok"] = ok
		}
		if err := output.Encode(answer); err != nil {
			panic(err)
		}
	}
}
