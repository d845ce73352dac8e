// SPDX-License-Identifier: Apache-2.0

package reput

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	commitlogv1 "reput/clients/go/reputpb/commitlog/v1"
	indexerv1 "reput/clients/go/reputpb/indexer/v1"
)

// service makes the calls to a service, which may have several addresses. It is a grpc.ClientConnInterface, so that
// every stub over it retries calls that failed for a temporary reason, follows the leader, and returns an *Error. Safe
// for any number of goroutines. Connections are made at their first use.
type service struct {
	// kind is the name of the service in errors: "a CommitLog".
	kind        string
	timeout     time.Duration
	retry       RetryPolicy
	connections *connections

	mu    sync.Mutex
	route route
}

// connections are the connections of a client, one for each address: services at the same address share it. Made at
// their first use. Safe for any number of goroutines.
type connections struct {
	dialOptions []grpc.DialOption

	mu        sync.Mutex
	byAddress map[string]*grpc.ClientConn
	isClosed  bool
}

// to returns the connection to an address.
func (c *connections) to(address string) (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosed {
		return nil, ErrClosed
	}
	connection := c.byAddress[address]
	if connection == nil {
		var err error
		if connection, err = grpc.NewClient(address, c.dialOptions...); err != nil {
			return nil, badArgument("the address %q: %v", address, err)
		}
		c.byAddress[address] = connection
	}
	return connection, nil
}

// close ends all connections. Calls fail from now on.
func (c *connections) close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isClosed = true
	var failures []error
	for address, connection := range c.byAddress {
		failures = append(failures, connection.Close())
		delete(c.byAddress, address)
	}
	return errors.Join(failures...)
}

// unrepeatable are the calls whose second attempt could have another effect than the first attempt, which may have
// taken effect although its answer was lost.
var unrepeatable = map[string]bool{
	commitlogv1.AppendService_Append_FullMethodName:        true,
	commitlogv1.AppendService_AppendState_FullMethodName:   true,
	commitlogv1.TopicService_CreateTopic_FullMethodName:    true,
	commitlogv1.TopicService_DeleteTopic_FullMethodName:    true,
	commitlogv1.TopicService_PurgeTopic_FullMethodName:     true,
	commitlogv1.ReplicationService_Demote_FullMethodName:   true,
	indexerv1.IndexService_RemoveQueues_FullMethodName:     true,
	indexerv1.RebuildService_RebuildIndexes_FullMethodName: true,
}

func newService(kind, addresses string, options *Options, connections *connections) (*service, error) {
	route, err := newRoute(addresses)
	if err != nil {
		return nil, err
	}
	return &service{
		kind: kind, timeout: options.Timeout, retry: options.Retry, connections: connections, route: route,
	}, nil
}

// Invoke makes a call with a single answer, and retries it until the context's deadline, or for the client's time-out
// if the context has no deadline.
func (s *service) Invoke(ctx context.Context, method string, request, answer any, options ...grpc.CallOption) error {
	ctx, cancel := s.limited(ctx, 0)
	defer cancel()
	end, _ := ctx.Deadline()
	for attempt, followCount := 0, 0; ; {
		address, connection, err := s.connection()
		if err != nil {
			return err
		}
		err = connection.Invoke(ctx, method, request, answer, options...)
		if err == nil {
			return nil
		}
		failure := s.onFailure(address, err)
		if isFollowed(failure, followCount) && ctx.Err() == nil {
			followCount++
			continue
		}
		delay, isRepeated := s.retry.delay(attempt, failure, !unrepeatable[method])
		attempt, followCount = attempt+1, 0
		if !isRepeated || !time.Now().Add(delay).Before(end) {
			return failure
		}
		if sleep(ctx, delay) != nil {
			return &Error{Code: codes.Canceled, Text: "canceled between two attempts; the last one: " + failure.Error()}
		}
	}
}

// limited gives a context without a deadline the client's time-out, and the time that the call waits by design.
func (s *service) limited(ctx context.Context, wait time.Duration) (context.Context, context.CancelFunc) {
	if _, hasDeadline := ctx.Deadline(); hasDeadline {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, s.timeout+wait)
}

// NewStream begins a stream, without retries and time-outs.
func (s *service) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, options ...grpc.CallOption,
) (grpc.ClientStream, error) {
	address, connection, err := s.connection()
	if err != nil {
		return nil, err
	}
	opened, err := connection.NewStream(ctx, desc, method, options...)
	if err != nil {
		return nil, s.onFailure(address, err)
	}
	return &stream{ClientStream: opened, service: s, address: address}, nil
}

// connection returns the connection and the address of the next call.
func (s *service) connection() (string, *grpc.ClientConn, error) {
	s.mu.Lock()
	address := s.route.address
	s.mu.Unlock()
	connection, err := s.connections.to(address)
	return address, connection, err
}

// onFailure changes the address of the next call if the error of a call to an address asks for it.
func (s *service) onFailure(address string, err error) *Error {
	failure := asError(err)
	if failure.Code == codes.Unimplemented && failure.Reason == "" {
		failure.Text += "; the server at " + address + " is not " + s.kind + ", or one of another version"
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.route.onFailure(address, failure)
	return failure
}

// stream is a stream whose failure is an *Error, which was passed to the route.
type stream struct {
	grpc.ClientStream
	service *service
	address string
}

// RecvMsg returns the next answer, io.EOF at the end, or an *Error.
func (s *stream) RecvMsg(answer any) error {
	err := s.ClientStream.RecvMsg(answer)
	if err == nil || err == io.EOF {
		return err
	}
	return s.service.onFailure(s.address, err)
}
