// SPDX-License-Identifier: Apache-2.0

package reput

import (
	"context"
	"math/rand/v2"
	"time"

	"google.golang.org/grpc/codes"
)

// retryableReasons are reasons of a temporary refusal: the server did nothing, and a later attempt may work. See
// docs/errors.md.
var retryableReasons = map[string]bool{
	"STORE_FULL": true, "QUEUE_OFFSETS_UNKNOWN": true, "WINDOW_FULL": true, "RECOVERING": true, reasonStopping: true,
	reasonDependencyUnavailable: true, reasonNotLeader: true, "NOT_ENOUGH_REPLICAS": true, "STORE_REPLACED": true,
	"QUOTA_EXCEEDED": true,
}

// RetryPolicy decides whether and when a failed attempt is repeated: with delays that double, never shorter than the
// delay that the server asks for. The delay before retry n, from 0, is between a half and all of DelayMin * 2^n, at
// most DelayMax.
type RetryPolicy struct {
	// Retries is the number of attempts after the first attempt. 0: never repeat.
	Retries int
	// DelayMin is the longest delay before the first retry. More than 0.
	DelayMin time.Duration
	// DelayMax is the longest delay, unless the server asks for more. At least DelayMin.
	DelayMax time.Duration
}

// DefaultRetryPolicy gives a server about half a minute: 12 retries, 50 ms to 5 s.
func DefaultRetryPolicy() RetryPolicy {
	return RetryPolicy{Retries: 12, DelayMin: 50 * time.Millisecond, DelayMax: 5 * time.Second}
}

func (p RetryPolicy) check() error {
	if p.Retries < 0 || p.DelayMin <= 0 || p.DelayMax < p.DelayMin {
		return badArgument("the retry policy needs 0 or more retries, and delays above 0, the shortest first")
	}
	return nil
}

// delay returns the wait after failed attempt number attempt, from 0, and false to give up. A call that is not
// repeatable is repeated only if the server says that it did nothing.
func (p RetryPolicy) delay(attempt int, failure *Error, isRepeatable bool) (time.Duration, bool) {
	isPassing := retryableReasons[failure.Reason] || isRepeatable && failure.Code == codes.Unavailable
	if !isPassing || attempt >= p.Retries {
		return 0, false
	}
	ceiling := p.DelayMin
	for n := 0; n < attempt && ceiling < p.DelayMax; n++ {
		ceiling *= 2
	}
	ceiling = min(ceiling, p.DelayMax)
	jittered := ceiling - time.Duration(rand.Int64N(int64(ceiling)/2+1))
	return max(jittered, failure.RetryAfter), true
}

// followsMax is the most answers in a row whose leader is tried at once: logs that change their leader may name each
// other.
const followsMax = 3

// isFollowed reports whether the next attempt is sent at once to the leader that an answer names. The server did
// nothing, so this is no failed attempt. count is the number of such answers in a row.
func isFollowed(failure *Error, count int) bool {
	return failure.Reason == reasonNotLeader && failure.Metadata["leader"] != "" && count < followsMax
}

// sleep waits, and returns the context's error if the context ends before.
func sleep(ctx context.Context, delay time.Duration) error {
	select {
	case <-time.After(delay):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
