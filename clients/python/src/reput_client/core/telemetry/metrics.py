# SPDX-License-Identifier: Apache-2.0
"""Metrics: what a producer and a consumer have done so far, as values. Counting is left to who does it."""

from bisect import bisect_left
from collections.abc import Sequence
from typing import NamedTuple

LATENCY_BOUNDS_MS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000, 2_000, 5_000, 10_000, 30_000, 60_000)


class Latencies(NamedTuple):
    """How long messages took: `counts[i]` of them up to `LATENCY_BOUNDS_MS[i]` and longer than the bound before.

    The last count is of those that took longer than all bounds.
    """

    counts: tuple[int, ...]

    def percentile_ms(self, percent: float) -> float:
        """Return the bound that so many percent of the messages kept, infinity above the last one, 0 without any.

        Raises ValueError for what is not within 0 and 100.
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
    """What a producer has done since it was made. Sizes are those of requests: body, properties and a few bytes."""

    message_count: int
    """Messages that were handed to it."""

    acknowledged_message_count: int
    """Messages that are stored."""

    acknowledged_bytes: int

    failed_message_count: int
    """Messages whose future failed."""

    waiting_message_count: int
    """Messages without an outcome."""

    waiting_bytes: int
    """The same in bytes; `ProducerOptions.window_bytes` is the most."""

    request_count: int
    """Batches that were sent, again if need be."""

    retried_request_count: int
    """Batches that were, or will be, sent again: the connection broke, or the store was not able to take them."""

    latencies: Latencies
    """From `send` of a batch's first message to the answer, of stored messages."""


class ConsumerMetrics(NamedTuple):
    """What a consumer has done since it was made."""

    message_count: int
    """Messages that were handed out."""

    answer_count: int
    """Answers with messages that arrived: how many messages travel together."""

    answer_bytes: int
    """Bytes of these answers."""

    waiting_message_count: int
    """Messages that have arrived and are not handed out."""

    broken_stream_count: int
    """Streams that ended; each was opened again, or a poll told why not."""


class ShareConsumerMetrics(NamedTuple):
    """What a share consumer has done since it was made."""

    message_count: int
    """Messages that it received."""

    held_message_count: int
    """Messages that are received and not settled."""

    failed_message_count: int
    """Messages that were given back because the callback of `run` failed."""

    failed_receive_count: int
    """Receives of `run` and of an iteration that failed for a reason that passes, and were tried again."""

    outage_count: int
    """Times at which several of them failed in a row; each was told in the log."""

    outage_s: float
    """How long receives have failed by now, 0 while they work."""


class SendCounts:
    """The counters of a producer; what waits is told by who keeps it."""

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
        """Return the numbers of now. `waiting` are the messages of each batch without an outcome."""
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
