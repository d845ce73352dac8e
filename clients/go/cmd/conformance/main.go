// SPDX-License-Identifier: Apache-2.0

// Command conformance runs the Go client through the cases of tests/clients: it reads a JSON object per line, runs its
// step, and answers with a line. tests/clients/README.md has the protocol.
package main

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"strconv"
	"strings"
	"time"

	reput "reput/clients/go"
)

func main() {
	output := bufio.NewWriter(os.Stdout)
	driver := &driver{}
	defer driver.close()
	input := json.NewDecoder(bufio.NewReader(os.Stdin))
	for {
		var step step
		if err := input.Decode(&step); err != nil {
			return
		}
		done, err := driver.do(context.Background(), &step)
		answer := map[string]any{"ok": done}
		if err != nil {
			answer = map[string]any{"error": describe(err)}
		}
		encoder := json.NewEncoder(output)
		encoder.SetEscapeHTML(false)
		if err := encoder.Encode(answer); err != nil {
			panic(err)
		}
		output.Flush()
	}
}

// step has the arguments of all steps. Nil: absent.
type step struct {
	Do string `json:"do"`

	Store           string   `json:"store"`
	Commitlog       string   `json:"commitlog"`
	Indexer         string   `json:"indexer"`
	CAFile          string   `json:"ca_file"`
	CertificateFile string   `json:"certificate_file"`
	KeyFile         string   `json:"key_file"`
	Token           string   `json:"token"`
	TimeoutS        *float64 `json:"timeout_s"`
	Retries         *int     `json:"retries"`

	Topic       string            `json:"topic"`
	Body        string            `json:"body"`
	Tag         string            `json:"tag"`
	Keys        []string          `json:"keys"`
	Properties  map[string]string `json:"properties"`
	QueueID     *int32            `json:"queue_id"`
	ShardingKey string            `json:"sharding_key"`
	UniqueID    string            `json:"unique_id"`
	DelayLevel  int               `json:"delay_level"`
	Durability  string            `json:"durability"`

	Count          int               `json:"count"`
	Seconds        float64           `json:"seconds"`
	Prefix         string            `json:"prefix"`
	SizeBytes      int               `json:"size_bytes"`
	BadTopics      map[string]string `json:"bad_topics"`
	LingerMs       *float64          `json:"linger_ms"`
	BatchSizeBytes *int              `json:"batch_size_bytes"`
	WindowBytes    *int              `json:"window_bytes"`
	PauseMs        float64           `json:"pause_ms"`

	QueueOffset     int64           `json:"queue_offset"`
	MessageCountMax int32           `json:"message_count_max"`
	Tags            string          `json:"tags"`
	WaitMs          float64         `json:"wait_ms"`
	Key             string          `json:"key"`
	ID              string          `json:"id"`
	StartMs         *int64          `json:"start_ms"`
	EndMs           *int64          `json:"end_ms"`
	Group           string          `json:"group"`
	QueueIDs        []int32         `json:"queue_ids"`
	Start           json.RawMessage `json:"start"`
	Seek            map[int32]int64 `json:"seek"`
	Commit          bool            `json:"commit"`
}

// fields is a part of an answer.
type fields = map[string]any

type driver struct {
	client *reput.Client
	sent   reput.Result // of the last send
}

func (d *driver) close() {
	if d.client != nil {
		if err := d.client.Close(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}
}

func (d *driver) do(ctx context.Context, step *step) (fields, error) {
	switch step.Do {
	case "connect":
		return d.connect(step)
	case "send":
		return d.send(ctx, step)
	case "send_many":
		return d.sendMany(ctx, step)
	case "pull":
		return d.pull(ctx, step)
	case "wait_indexed":
		return fields{}, d.client.WaitIndexed(ctx, d.sent)
	case "query_by_key", "query_by_time":
		return d.query(ctx, step)
	case "query_by_keys":
		return d.queryByKeys(ctx, step)
	case "query_by_id":
		return d.queryByID(ctx, step)
	case "consume":
		return d.consume(ctx, step)
	}
	return nil, fmt.Errorf("no step is called %q", step.Do)
}

func (d *driver) connect(step *step) (fields, error) {
	d.close()
	client, err := reput.Connect(func(options *reput.Options) {
		if step.Store != "" {
			reput.At(step.Store)(options)
		} else {
			options.Commitlog, options.Indexer = step.Commitlog, step.Indexer
		}
		options.CAFile, options.CertificateFile, options.KeyFile = step.CAFile, step.CertificateFile, step.KeyFile
		options.Token = step.Token
		if step.TimeoutS != nil {
			options.Timeout = duration(*step.TimeoutS, time.Second)
		}
		if step.Retries != nil {
			options.Retry.Retries = *step.Retries
		}
	})
	d.client = client
	return fields{}, err
}

func (d *driver) producer(step *step) (*reput.Producer, error) {
	durabilities := map[string]reput.Durability{
		"": reput.DurabilityDefault, "MEMORY": reput.DurabilityMemory,
		"LOCAL_DISK": reput.DurabilityLocalDisk, "REPLICATED": reput.DurabilityReplicated,
	}
	return d.client.NewProducer(func(options *reput.ProducerOptions) {
		options.Durability = durabilities[step.Durability]
		if step.LingerMs != nil {
			options.Linger = duration(*step.LingerMs, time.Millisecond)
		}
		if step.BatchSizeBytes != nil {
			options.BatchSizeBytes = *step.BatchSizeBytes
		}
		if step.WindowBytes != nil {
			options.WindowBytes = *step.WindowBytes
		}
		if step.Retries != nil {
			options.Retry.Retries = *step.Retries
		}
	})
}

func (d *driver) send(ctx context.Context, step *step) (fields, error) {
	producer, err := d.producer(step)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	future, err := producer.Send(ctx, reput.Message{
		Topic: step.Topic, Body: []byte(step.Body), Tag: step.Tag, Keys: step.Keys, Properties: step.Properties,
		QueueID: step.QueueID, ShardingKey: step.ShardingKey, UniqueID: step.UniqueID, DelayLevel: step.DelayLevel,
	})
	if err != nil {
		return nil, err
	}
	result, err := future.Wait(ctx)
	d.sent = result
	return fields{
		"queue_id": result.QueueID, "queue_offset": result.QueueOffset, "physical_offset": result.PhysicalOffset,
		"store_time_ms": result.StoreTime.UnixMilli(),
		"durability":    strings.TrimPrefix(result.Durability.String(), "DURABILITY_"),
		"unique_id":     result.UniqueID, "offset_message_id": result.OffsetMessageID(),
	}, err
}

func (d *driver) sendMany(ctx context.Context, step *step) (fields, error) {
	producer, err := d.producer(step)
	if err != nil {
		return nil, err
	}
	defer producer.Close()
	end := time.Now().Add(duration(step.Seconds, time.Second))
	var futures []*reput.Future
	for index := 0; index < step.Count || step.Seconds > 0 && time.Now().Before(end); index++ {
		topic := step.Topic
		if bad, isBad := step.BadTopics[strconv.Itoa(index)]; isBad {
			topic = bad
		}
		body := step.Prefix + strconv.Itoa(index)
		body += strings.Repeat(".", max(0, step.SizeBytes-len(body)))
		future, err := producer.Send(ctx, reput.Message{Topic: topic, Body: []byte(body), QueueID: step.QueueID})
		if err != nil {
			return nil, err
		}
		futures = append(futures, future)
		time.Sleep(duration(step.PauseMs, time.Millisecond))
	}
	failed, lastQueueOffset := [][2]any{}, int64(-1)
	for index, future := range futures {
		result, err := future.Wait(ctx)
		if err != nil {
			failed = append(failed, [2]any{index, describe(err)["reason"]})
			continue
		}
		lastQueueOffset = max(lastQueueOffset, result.QueueOffset)
	}
	return fields{
		"count": len(futures), "stored_count": len(futures) - len(failed), "failed": failed,
		"last_queue_offset": lastQueueOffset,
	}, nil
}

func (d *driver) pull(ctx context.Context, step *step) (fields, error) {
	result, err := d.client.Pull(ctx, reput.PullRequest{
		Topic: step.Topic, QueueID: *step.QueueID, QueueOffset: step.QueueOffset,
		MessageCountMax: step.MessageCountMax, Tags: step.Tags, Wait: duration(step.WaitMs, time.Millisecond),
	})
	if err != nil {
		return nil, err
	}
	bodies := []string{}
	for _, message := range result.Messages {
		bodies = append(bodies, string(message.Body))
	}
	return fields{
		"status": strings.TrimPrefix(result.Status.String(), "PULL_STATUS_"),
		"bodies": bodies, "next_queue_offset": result.NextQueueOffset,
		"min_queue_offset": result.MinQueueOffset, "max_queue_offset": result.MaxQueueOffset,
	}, nil
}

func (d *driver) query(ctx context.Context, step *step) (fields, error) {
	span := reput.Span{Start: moment(step.StartMs), End: moment(step.EndMs)}
	found := d.client.ByKey(ctx, step.Topic, step.Key, span)
	if step.Do == "query_by_time" {
		found = d.client.ByTime(ctx, step.Topic, step.QueueID, span)
	}
	bodies := []string{}
	for message, err := range found {
		if err != nil {
			return nil, err
		}
		bodies = append(bodies, string(message.Body))
	}
	return fields{"bodies": bodies}, nil
}

func (d *driver) queryByKeys(ctx context.Context, step *step) (fields, error) {
	keys, bodies := []string{}, [][]string{}
	span := reput.Span{Start: moment(step.StartMs), End: moment(step.EndMs)}
	for found, err := range d.client.ByKeys(ctx, step.Topic, step.Keys, span) {
		if err = cmp.Or(err, found.Err); err != nil {
			return nil, err
		}
		of := []string{}
		for _, message := range found.Messages {
			of = append(of, string(message.Body))
		}
		keys, bodies = append(keys, found.Key), append(bodies, of)
	}
	return fields{"keys": keys, "bodies": bodies}, nil
}

func (d *driver) queryByID(ctx context.Context, step *step) (fields, error) {
	message, err := d.client.ByID(ctx, step.ID, step.Topic)
	if err != nil {
		return nil, err
	}
	return fields{
		"topic": message.Topic, "queue_id": message.QueueId, "queue_offset": message.QueueOffset,
		"physical_offset": message.PhysicalOffset, "body": string(message.Body), "tag": message.Tag(),
		"keys": append([]string{}, message.Keys()...), "properties": message.Properties,
		"unique_id": message.UniqueID(), "store_time_ms": message.StoreTimeMs,
		"offset_message_id": message.OffsetMessageId,
	}, nil
}

func (d *driver) consume(ctx context.Context, step *step) (fields, error) {
	seconds := 30.0
	if step.TimeoutS != nil {
		seconds = *step.TimeoutS
	}
	ctx, cancel := context.WithTimeout(ctx, duration(seconds, time.Second))
	defer cancel()
	consumer, err := d.client.NewConsumer(ctx, step.Topic, func(options *reput.ConsumerOptions) {
		options.Group, options.QueueIDs, options.Tags = step.Group, step.QueueIDs, step.Tags
		options.Start = start(step.Start)
	})
	if err != nil {
		return nil, err
	}
	defer consumer.Close()
	for queueID, queueOffset := range step.Seek {
		if err := consumer.Seek(queueID, queueOffset); err != nil {
			return nil, err
		}
	}
	bodies := []string{}
	for len(bodies) < step.Count {
		message, err := consumer.Next(ctx)
		if errors.Is(err, context.DeadlineExceeded) && ctx.Err() != nil {
			break
		}
		if err != nil {
			return nil, err
		}
		bodies = append(bodies, string(message.Body))
	}
	positions := consumer.Positions()
	if step.Commit {
		if err := consumer.Commit(context.WithoutCancel(ctx)); err != nil {
			return nil, err
		}
	}
	return fields{"bodies": bodies, "positions": positions}, nil
}

// start returns the start of a consumer: a word, or milliseconds since the epoch.
func start(text json.RawMessage) time.Time {
	var timeMs int64
	if json.Unmarshal(text, &timeMs) == nil && timeMs != 0 {
		return time.UnixMilli(timeMs)
	}
	if string(text) == `"latest"` {
		return reput.Latest
	}
	return time.Time{}
}

// describe returns an error as the protocol has it.
func describe(err error) fields {
	failure, isCall := errors.AsType[*reput.Error](err)
	if !isCall {
		return fields{"code": "LOCAL", "text": err.Error(), "reason": "", "metadata": fields{}, "fields": []string{}}
	}
	return fields{
		"code": failure.CodeName(), "reason": failure.Reason, "text": failure.Error(),
		"metadata": maps.Collect(maps.All(failure.Metadata)), "fields": append([]string{}, failure.Fields...),
	}
}

func duration(count float64, unit time.Duration) time.Duration {
	return time.Duration(count * float64(unit))
}

func moment(timeMs *int64) time.Time {
	if timeMs == nil {
		return time.Time{}
	}
	return time.UnixMilli(*timeMs)
}
