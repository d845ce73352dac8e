// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	reput "reput/clients/go"
)

// names are the keys that messages have, made before the clock starts: a client's own work is what is measured.
const names = 1 << 13

// producer sends single messages through Reput's own client, which puts them into batches. All producers of a generator
// share the client's producer, as threads of a program do.
type producer struct {
	producer *reput.Producer
	messages []reput.Message
	next     int
}

// newProducer makes a producer of messages. Batches have so many bytes as the command line says.
func (s *system) newProducer() (*producer, error) {
	shared, err := s.shared()
	if err != nil {
		return nil, err
	}
	made := &producer{producer: shared, messages: make([]reput.Message, names)}
	for number := range made.messages {
		made.messages[number] = reput.Message{
			Topic: topic,
			Body:  s.arguments.Body(),
			Tag:   fmt.Sprintf("tag%d", number%8),
			Keys:  []string{orderKey(number), fmt.Sprintf("user-%d", number%997)},
		}
	}
	return made, nil
}

// openProducer connects, and opens the producer of the client.
func (s *system) openProducer() (*reput.Producer, error) {
	client, err := reput.Connect(func(options *reput.Options) { options.Commitlog = s.arguments.Target })
	if err != nil {
		return nil, err
	}
	return client.NewProducer(func(options *reput.ProducerOptions) {
		options.BatchSizeBytes = s.arguments.BatchBytes
		options.Durability = reput.Durability(durabilities[*durability])
	})
}

// Call sends a message and waits for its outcome, which ends the linger of its batch.
func (p *producer) Call() error {
	message := p.messages[p.next%names]
	p.next++
	future, err := p.producer.Send(context.Background(), message)
	if err != nil {
		return err
	}
	_, err = future.Wait(context.Background())
	return err
}

func (p *producer) Send(until time.Time) (int64, error) {
	futures := []*reput.Future{}
	for time.Now().Before(until) {
		message := p.messages[p.next%names]
		if *keys == "distinct" {
			message.Keys = []string{orderKey(p.next), message.Keys[1]}
		}
		p.next++
		future, err := p.producer.Send(context.Background(), message)
		if err != nil {
			return 0, err
		}
		futures = append(futures, future)
	}
	if err := p.producer.Flush(context.Background()); err != nil {
		return 0, err
	}
	for _, future := range futures {
		if _, err := future.Wait(context.Background()); err != nil {
			return 0, err
		}
	}
	return int64(len(futures)), nil
}

// orderKey is the key of the number-th message, from 0.
func orderKey(number int) string { return fmt.Sprintf("order-%012d", number) }
