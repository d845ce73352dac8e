// SPDX-License-Identifier: Apache-2.0

package reput

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	commitlogv1 "reput/clients/go/reputpb/commitlog/v1"
	indexerv1 "reput/clients/go/reputpb/indexer/v1"
)

// failing lets the first calls fail and counts all.
func failing(count int, code codes.Code) (func(context.Context, any) error, *int) {
	calls := new(int)
	return func(context.Context, any) error {
		if *calls++; *calls <= count {
			return status.Error(code, "not now")
		}
		return nil
	}, calls
}

// A call that failed without a server is repeated, unless a second attempt could have another effect.
func TestServiceRepeats(t *testing.T) {
	store := newFake()
	client, ctx := connect(t, store), limit(t)
	var calls *int
	store.unary, calls = failing(3, codes.Unavailable)
	if _, err := client.Pull(ctx, PullRequest{}); err != nil || *calls != 4 {
		t.Error(err, *calls)
	}
	topics := commitlogv1.NewTopicServiceClient(client.Commitlog())
	store.unary, calls = failing(3, codes.Unavailable)
	_, err := topics.CreateTopic(ctx, &commitlogv1.CreateTopicRequest{})
	if failure, isCall := errors.AsType[*Error](err); !isCall || failure.Code != codes.Unavailable || *calls != 1 {
		t.Error(err, *calls)
	}
	store.unary, calls = failing(3, codes.InvalidArgument)
	if _, err := client.Pull(ctx, PullRequest{}); err == nil || *calls != 1 {
		t.Error(err, *calls)
	}
}

// Services at the same address share a connection, which ends with the client.
func TestServicesShareConnections(t *testing.T) {
	client, ctx := connect(t, newFake()), limit(t)
	if _, err := client.Pull(ctx, PullRequest{}); err != nil {
		t.Error(err)
	}
	topics := commitlogv1.NewTopicServiceClient(client.Commitlog())
	if _, err := topics.CreateTopic(ctx, &commitlogv1.CreateTopicRequest{}); err != nil {
		t.Error(err)
	}
	if count := len(client.connections.byAddress); count != 1 {
		t.Error(count)
	}
	client.Close()
	if _, err := client.Pull(ctx, PullRequest{}); !errors.Is(err, ErrClosed) {
		t.Error(err)
	}
}

// The time-out bounds a call whose context has no deadline, and adds the time that a pull waits by design.
func TestServiceTimeout(t *testing.T) {
	store := newFake()
	client := connect(t, store)
	var left time.Duration
	store.unary = func(ctx context.Context, _ any) error {
		end, _ := ctx.Deadline()
		left = time.Until(end)
		return nil
	}
	about := func(want time.Duration) {
		t.Helper()
		if left > want || left < want-5*time.Second {
			t.Error(left, want)
		}
	}
	client.Pull(context.Background(), PullRequest{Wait: 20 * time.Second})
	about(50 * time.Second)
	ctx, cancel := context.WithTimeout(context.Background(), 100*time.Second)
	defer cancel()
	client.Pull(ctx, PullRequest{Wait: 20 * time.Second})
	about(100 * time.Second)
}

// A call fails with the last error if the next attempt would begin too late, and as a canceled call when its context is
// canceled between two attempts.
func TestServiceGivesUp(t *testing.T) {
	store := newFake()
	client := connect(t, store)
	client.indexer.retry = RetryPolicy{Retries: 100, DelayMin: time.Hour, DelayMax: time.Hour}
	store.unary = func(context.Context, any) error { return unavailable() }
	_, err := client.Pull(limit(t), PullRequest{})
	if failure, isCall := errors.AsType[*Error](err); !isCall || failure.Code != codes.Unavailable {
		t.Error(err)
	}
	client.indexer.timeout = 10 * time.Hour
	canceled, cancel := context.WithCancel(context.Background())
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := client.Pull(canceled, PullRequest{}); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Calls change to the next address, and stay there.
func TestServiceMovesOn(t *testing.T) {
	first, second := newFake(), newFake()
	first.unary = func(context.Context, any) error { return unavailable() }
	var calls *int
	second.unary, calls = failing(0, codes.OK)
	client, ctx := connect(t, first, second), limit(t)
	for range 3 {
		if _, err := client.Pull(ctx, PullRequest{}); err != nil {
			t.Error(err)
		}
	}
	if *calls != 3 {
		t.Error(*calls)
	}
}

// An error says when another server is at the address, and a closed client makes no calls.
func TestServiceOfAnotherKind(t *testing.T) {
	client, ctx := connect(t, newFake()), limit(t)
	_, err := indexerv1.NewScanServiceClient(client.Indexer()).PlanScan(ctx, &indexerv1.PlanScanRequest{})
	if err == nil || !strings.Contains(err.Error(), "is not an Indexer") {
		t.Error(err)
	}
	client.Close()
	if _, err := client.Pull(ctx, PullRequest{}); err != ErrClosed {
		t.Error(err)
	}
}
