// SPDX-License-Identifier: Apache-2.0

package reput

import (
	"errors"
	"io"
	"os"
	"sync"

	"google.golang.org/grpc"

	indexerv1 "reput/clients/go/reputpb/indexer/v1"
)

// Client is the door to a store. Made by [Connect]; close it. Safe for any number of goroutines.
type Client struct {
	options            Options
	commitlog, indexer *service
	queues             indexerv1.QueueServiceClient
	groups             indexerv1.ConsumerOffsetServiceClient

	mu sync.Mutex
	// open are the producers and consumers that nobody has closed yet; nil when the client is closed.
	open map[io.Closer]struct{}
}

// Connect returns a client. The options come filled from the environment and the defaults; the arguments change them.
// Connections are made when they are first used. It fails with ErrArgument for options that can't be meant, and for
// files that can't be read.
func Connect(changes ...func(*Options)) (*Client, error) {
	options, err := loadOptions(os.Getenv)
	if err != nil {
		return nil, err
	}
	for _, change := range changes {
		change(&options)
	}
	if err := options.check(); err != nil {
		return nil, err
	}
	dialOptions, err := options.dialOptions()
	if err != nil {
		return nil, err
	}
	commitlog, err := newService("a CommitLog", options.Commitlog, &options, dialOptions)
	if err != nil {
		return nil, err
	}
	indexer, err := newService("an Indexer", options.Indexer, &options, dialOptions)
	if err != nil {
		return nil, err
	}
	return &Client{
		options: options, commitlog: commitlog, indexer: indexer,
		queues: indexerv1.NewQueueServiceClient(indexer),
		groups: indexerv1.NewConsumerOffsetServiceClient(indexer),
		open:   map[io.Closer]struct{}{},
	}, nil
}

// Commitlog is for stubs of the package commitlogv1, such as commitlogv1.NewTopicServiceClient(client.Commitlog()).
// Calls with one answer are repeated and bounded as the client's own, and follow the leader; errors are an *Error.
func (c *Client) Commitlog() grpc.ClientConnInterface { return c.commitlog }

// Indexer is for stubs of the package indexerv1, as Commitlog is.
func (c *Client) Indexer() grpc.ClientConnInterface { return c.indexer }

// NewProducer returns a producer. The options come with the defaults; the arguments change them. The client closes it
// if nobody else does. It fails with ErrArgument for options that can't be meant, and with ErrClosed.
func (c *Client) NewProducer(changes ...func(*ProducerOptions)) (*Producer, error) {
	options := defaultProducerOptions(c.options.Retry)
	for _, change := range changes {
		change(&options)
	}
	if err := options.check(); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.open == nil {
		return nil, ErrClosed
	}
	producer := newProducer(c, options)
	c.open[producer] = struct{}{}
	return producer, nil
}

// Close closes producers, which waits for their messages, consumers and connections. May be repeated.
func (c *Client) Close() error {
	c.mu.Lock()
	open := c.open
	c.open = nil
	c.mu.Unlock()
	var closing sync.WaitGroup
	failures := make(chan error, len(open))
	for part := range open {
		closing.Go(func() { failures <- part.Close() })
	}
	closing.Wait()
	close(failures)
	all := []error{c.commitlog.close(), c.indexer.close()}
	for failure := range failures {
		all = append(all, failure)
	}
	return errors.Join(all...)
}

// forget takes note that somebody has closed a producer or a consumer.
func (c *Client) forget(part io.Closer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, part)
}
