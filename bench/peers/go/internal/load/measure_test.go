// SPDX-License-Identifier: Apache-2.0

package load

import (
	"testing"
	"time"
)

// TestPercentilesAreRanks holds that a percentile is a latency that was measured, by the nearest-rank rule.
func TestPercentilesAreRanks(t *testing.T) {
	latencies := []time.Duration{}
	for number := 1000; number >= 1; number-- {
		latencies = append(latencies, time.Duration(number)*time.Millisecond)
	}
	for _, row := range []struct {
		name  string
		count int
		want  float64
	}{{"p50", 1000, 500}, {"p99", 1000, 990}, {"p999", 1000, 999}, {"p999", 1, 1000}, {"p50", 2, 999}} {
		if got := Percentiles(latencies[:row.count])[row.name]; got != row.want {
			t.Errorf("%s of %d: got %v ms, want %v ms", row.name, row.count, got, row.want)
		}
	}
}

// TestArgumentsSizeBatches holds that a batch has at least one message.
func TestArgumentsSizeBatches(t *testing.T) {
	for _, row := range []struct{ body, batch, want int }{{1024, 1 << 20, 1024}, {1024, 1, 1}, {0, 8, 8}} {
		if got := (Arguments{BodyBytes: row.body, BatchBytes: row.batch}).BatchMessages(); got != row.want {
			t.Errorf("body %d, batch %d: got %d, want %d", row.body, row.batch, got, row.want)
		}
	}
}
