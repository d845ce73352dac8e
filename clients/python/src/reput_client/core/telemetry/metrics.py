# SPDX-License-Identifier: Apache-2.0
"""Metrics: counters of producers and consumers, as values. The producer or consumer itself counts."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

LATENCY_BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000)


class Latencies(NamedTuple):
    """A histogram of latencies: `counts[i]` messages took up to `LATENCY_BOUNDS_MS[i]` and more than the bound before.

    The last count is the number of messages that took longer than all bounds.
    """

    counts: tuple[int, ...]

    def percentile_ms(self, percent: float) -> float:
        """Return the bound in ms that `percent` of the messages met: infinity above the last bound, 0 without messages.

        Raises ValueError for a value outside 0 to 100.
        """
        if not 0 <= percent <= 100:
            raise ValueError(f"percent is {percent}: expected 0 to 100")
        wanted, seen_count = sum(self.counts) * percent / 100, 0
        for bound_ms, count in zip(LATENCY_BOUNDS_MS, self.counts, strict=False):
            seen_count += count
            if seen_count and seen_count >= wanted:
                return float(bound_ms)
        return float("inf") if any(self.counts) else 0.0


class ProducerMetrics(NamedTuple):
    """Counters of a producer since it was made. Sizes are sizes in requests: body, properties and a few bytes."""

    message_count: int
    """Messages that were sent with it."""

    acknowledged_message_count: int
    """Messages that are stored."""

    acknowledged_bytes: int

    failed_message_count: int
    """Messages whose future failed."""

    waiting_message_count: int
    """Messages without an outcome."""

    waiting_bytes: int
    """Bytes of messages without an outcome, at most `ProducerOptions.window_bytes`."""

    request_count: int
    """Batches that were sent; each attempt counts."""

    retried_request_count: int
    """Batches that were or will be sent again, because the connection broke or the store was not able to take them."""

    latencies: Latencies
    """From `send` of a batch's first message to the answer, of stored messages."""


class ConsumerMetrics(NamedTuple):
    """Counters of a consumer since it was made."""

    message_count: int
    """Messages that were returned to the caller."""

    answer_count: int
    """Answers with messages that arrived. `message_count` divided by it shows the messages per answer."""

    answer_bytes: int
    """Bytes of these answers."""

    waiting_message_count: int
    """Messages that have arrived and were not returned yet."""

    broken_stream_count: int
    """Streams that ended. Each was opened again, or a poll raised the error."""


class ShareConsumerMetrics(NamedTuple):
    """Counters of a share consumer since it was made."""

    message_count: int
    """Messages that it received."""

    held_message_count: int
    """Messages that are received and not settled."""

    failed_message_count: int
    """Messages that were given back because the callback of `run` failed."""

    failed_receive_count: int
    """Receives of `run` and of an iteration that failed for a temporary reason, and were retried."""

    outage_count: int
    """Outages: several such receives failed in a row. Each outage is logged."""

    outage_s: float
    """Seconds since receives began to fail, 0 while they work."""


class SendCounts:
    """The counters of a producer. The send queue itself knows the messages that wait."""

    def __init__(self) -> None:
        self.acknowledged_count = self.acknowledged_bytes = self.failed_count = 0
        self.request_count = self.retried_count = 0
        self._latency_counts = [0] * (len(LATENCY_BOUNDS_MS) + 1)

    def acknowledge(self, message_count: int, size_bytes: int, latency_s: float) -> None:
        """Count a batch that is stored."""
        self.acknowledged_count += message_count
        self.acknowledged_bytes += size_bytes
        self._latency_counts[bisect_left(LATENCY_BOUNDS_MS, latency_s * 1000)] += message_count

    def snapshot(self, waiting: Sequence[int], waiting_bytes: int) -> ProducerMetrics:
        """Return the current metrics. `waiting` has the number of messages of each batch without an outcome."""
        waiting_count = sum(waiting)
        return ProducerMetrics(
            message_count=self.acknowledged_count + self.failed_count + waiting_count,
            acknowledged_message_count=self.acknowledged_count,
            acknowledged_bytes=self.acknowledged_bytes,
            failed_message_count=self.failed_count,
            waiting_message_count=waiting_count,
            waiting_bytes=waiting_bytes,
            request_count=self.request_count,
            retried_request_count=self.retried_count,
            latencies=Latencies(tuple(self._latency_counts)),
        )
