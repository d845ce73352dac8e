// SPDX-License-Identifier: Apache-2.0

package reput

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	commitlogv1 "reput/clients/go/reputpb/commitlog/v1"
	commonv1 "reput/clients/go/reputpb/common/v1"
	indexerv1 "reput/clients/go/reputpb/indexer/v1"
)

// fake is a store in memory behind gRPC, without a network. Each test sets its differences.
type fake struct {
	commitlogv1.UnimplementedAppendServiceServer
	commitlogv1.UnimplementedTopicServiceServer
	indexerv1.UnimplementedQueueServiceServer
	indexerv1.UnimplementedConsumerOffsetServiceServer

	mu     sync.Mutex
	bodies []string
	// outcome answers a batch of an AppendStream. An error ends the stream.
	outcome func(*commitlogv1.AppendStreamRequest) (*commitlogv1.AppendOutcome, error)
	// unary answers all other calls but ListQueues, which knows queue 0.
	unary func(ctx context.Context, request any) error
	// subscribe is a stream of a queue.
	subscribe func(*indexerv1.SubscribeRequest, grpc.ServerStreamingServer[indexerv1.SubscribeResponse]) error
}

// store stores a batch.
func (f *fake) store(request *commitlogv1.AppendStreamRequest) (*commitlogv1.AppendOutcome, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	offsets := make([]int64, len(request.Messages))
	for index, message := range request.Messages {
		offsets[index] = int64(len(f.bodies))
		f.bodies = append(f.bodies, string(message.Body))
	}
	return stored(0, offsets...), nil
}

// all returns the bodies that are stored, in their order.
func (f *fake) all() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.bodies[:len(f.bodies):len(f.bodies)]
}

func (f *fake) AppendStream(
	stream grpc.BidiStreamingServer[commitlogv1.AppendStreamRequest, commitlogv1.AppendStreamResponse],
) error {
	for {
		request, err := stream.Recv()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		outcome, err := f.outcome(request)
		if err != nil {
			return err
		}
		if outcome == nil {
			continue
		}
		response := &commitlogv1.AppendStreamResponse{Outcomes: []*commitlogv1.AppendOutcome{outcome}}
		if err := stream.Send(response); err != nil {
			return err
		}
	}
}

func (f *fake) CreateTopic(
	ctx context.Context, request *commitlogv1.CreateTopicRequest,
) (*commitlogv1.CreateTopicResponse, error) {
	return &commitlogv1.CreateTopicResponse{}, f.unary(ctx, request)
}

func (f *fake) GetTopic(
	ctx context.Context, request *commitlogv1.GetTopicRequest,
) (*commitlogv1.GetTopicResponse, error) {
	return &commitlogv1.GetTopicResponse{Topic: &commitlogv1.Topic{ReadQueueCount: 2}}, f.unary(ctx, request)
}

func (f *fake) Pull(ctx context.Context, request *indexerv1.PullRequest) (*indexerv1.PullResponse, error) {
	return &indexerv1.PullResponse{Status: indexerv1.PullStatus_PULL_STATUS_FOUND}, f.unary(ctx, request)
}

func (f *fake) ListQueues(context.Context, *indexerv1.ListQueuesRequest) (*indexerv1.ListQueuesResponse, error) {
	queue := &indexerv1.Queue{QueueId: 0, MinQueueOffset: 3, MaxQueueOffset: 9}
	return &indexerv1.ListQueuesResponse{Queues: []*indexerv1.Queue{queue}}, nil
}

func (f *fake) GetOffsetByTime(
	ctx context.Context, request *indexerv1.GetOffsetByTimeRequest,
) (*indexerv1.GetOffsetByTimeResponse, error) {
	return &indexerv1.GetOffsetByTimeResponse{QueueOffset: 5}, f.unary(ctx, request)
}

func (f *fake) GetConsumerOffset(
	ctx context.Context, request *indexerv1.GetConsumerOffsetRequest,
) (*indexerv1.GetConsumerOffsetResponse, error) {
	offset := &indexerv1.ConsumerOffset{QueueOffset: 7}
	return &indexerv1.GetConsumerOffsetResponse{Offset: offset}, f.unary(ctx, request)
}

func (f *fake) CommitConsumerOffset(
	ctx context.Context, request *indexerv1.CommitConsumerOffsetRequest,
) (*indexerv1.CommitConsumerOffsetResponse, error) {
	return &indexerv1.CommitConsumerOffsetResponse{}, f.unary(ctx, request)
}

func (f *fake) Subscribe(
	request *indexerv1.SubscribeRequest, stream grpc.ServerStreamingServer[indexerv1.SubscribeResponse],
) error {
	return f.subscribe(request, stream)
}

// answerOf is an answer with a message for each queue offset.
func answerOf(offsets ...int64) *indexerv1.SubscribeResponse {
	answer := &indexerv1.SubscribeResponse{}
	for _, offset := range offsets {
		answer.Messages = append(answer.Messages, &commonv1.StoredMessage{QueueOffset: offset})
		answer.NextQueueOffset = offset + 1
	}
	return answer
}

func newFake() *fake {
	made := &fake{unary: func(context.Context, any) error { return nil }}
	made.outcome = made.store
	return made
}

// connect returns a client of stores at the addresses a, b and so on, whose retries are quick. Its goroutines have
// ended when the test ends.
func connect(t testing.TB, fakes ...*fake) *Client {
	t.Helper()
	listeners := map[string]*bufconn.Listener{}
	addresses := ""
	var servers []*grpc.Server
	for index, store := range fakes {
		server, name := grpc.NewServer(), string(rune('a'+index))
		commitlogv1.RegisterAppendServiceServer(server, store)
		commitlogv1.RegisterTopicServiceServer(server, store)
		indexerv1.RegisterQueueServiceServer(server, store)
		indexerv1.RegisterConsumerOffsetServiceServer(server, store)
		listeners[name] = bufconn.Listen(1 << 20)
		go server.Serve(listeners[name])
		servers = append(servers, server)
		addresses += "passthrough:///" + name + ","
	}
	before := runtime.NumGoroutine()
	client, err := Connect(func(options *Options) {
		options.Commitlog, options.Indexer = addresses, addresses
		options.Retry = RetryPolicy{Retries: 20, DelayMin: time.Millisecond, DelayMax: 5 * time.Millisecond}
	})
	if err != nil {
		t.Fatal(err)
	}
	dial := grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
		if listener := listeners[address]; listener != nil {
			return listener.DialContext(ctx)
		}
		return nil, errors.New("nobody is there")
	})
	client.connections.dialOptions = append(client.connections.dialOptions, dial)
	t.Cleanup(func() {
		if err := client.Close(); err != nil {
			t.Error(err)
		}
		for _, server := range servers {
			server.Stop()
		}
		for end := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; {
			if time.Now().After(end) {
				t.Errorf("%d goroutines are left of %d", runtime.NumGoroutine(), before)
				return
			}
			time.Sleep(time.Millisecond)
		}
	})
	return client
}

// limit returns a context that ends before the time-out of the tests.
func limit(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	return ctx
}

func unavailable() error { return status.Error(codes.Unavailable, "gone") }
