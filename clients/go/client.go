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

// Client is the connection to a store. Made by [Connect]; close it. Safe for any number of goroutines.
type Client struct {
	options            Options
	connections        *connections
	commitlog, indexer *service
	queues             indexerv1.QueueServiceClient
	groups             indexerv1.ConsumerOffsetServiceClient

	mu sync.Mutex
	// open are the producers and consumers that are not closed yet; nil when the client is closed.
	open map[io.Closer]struct{}
}

// Connect returns a client: Connect(At("localhost:8081")). The options are filled from the environment and the defaults;
// the arguments change them. Connections are made at their first use. It fails with ErrArgument for invalid options, and for files that can't be
// read.
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
	connections := &connections{dialOptions: dialOptions, byAddress: map[string]*grpc.ClientConn{}}
	commitlog, err := newService("a CommitLog", options.Commitlog, &options, connections)
	if err != nil {
		return nil, err
	}
	indexer, err := newService("an Indexer", options.Indexer, &options, connections)
	if err != nil {
		return nil, err
	}
	return &Client{
		options: options, connections: connections, commitlog: commitlog, indexer: indexer,
		queues: indexerv1.NewQueueServiceClient(indexer),
		groups: indexerv1.NewConsumerOffsetServiceClient(indexer),
		open:   map[io.Closer]struct{}{},
	}, nil
}

// Commitlog is for stubs of the package commitlogv1, such as commitlogv1.NewTopicServiceClient(client.Commitlog()).
// Calls with a single answer have the retries and the time-out of the client, and follow the leader; errors are an
// *Error.
func (c *Client) Commitlog() grpc.ClientConnInterface { return c.commitlog }

// Indexer is for stubs of the package indexerv1, like Commitlog.
func (c *Client) Indexer() grpc.ClientConnInterface { return c.indexer }

// NewProducer returns a producer. The options are filled with the defaults; the arguments change them. The client
// closes it if you do not. It fails with ErrArgument for invalid options, and with ErrClosed.
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

// Close closes producers (it waits for their messages), consumers and connections. May be repeated.
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
	all := []error{c.connections.close()}
	for failure := range failures {
		all = append(all, failure)
	}
	return errors.Join(all...)
}

// forget records that a producer or a consumer was closed.
func (c *Client) forget(part io.Closer) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.open, part)
}
