# SPDX-License-Identifier: Apache-2.0
"""SendQueue: the logic of a producer: batches, the window, outcomes, retries and splits. No I/O, no clock, no threads.

The states of a message: in the open batch -> ready -> in flight -> settled, or ready again when it is retried.

Invariants: batches are in flight in the order in which `pop` returned them, and outcomes come in this order.
`unsettled_bytes` is the size of all messages that were added and not settled. Messages are sent in the order of `add`,
except for retried messages. While `blocked_until_s` lies ahead, `pop` returns no batch.
Callers: a single caller at a time (with a lock or an event loop). Outcomes are collected for `pop_settled` and not
given to their sinks here, so that the caller can release its lock before it wakes other threads. Times are seconds of a
monotonic clock, given by the caller.

A bad message must not fail the other messages of its batch. A refusal that names messages[i] fails this message, and
the rest is sent again. A refusal that names a topic fails all messages of this topic. Any other refusal of the batch as
invalid cuts the batch in halves.
"""

import bisect
import re
from collections import deque
from collections.abc import Sequence
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeAlias

from reput.commitlog.v1.append_service_pb2 import AppendOutcome, AppendResult
from reput.common.v1.message_pb2 import StoredMessage

from reput_client.core.encode import request_end
from reput_client.core.errors import (
    InvalidArgumentError,
    OutcomeUnknownError,
    ReputError,
    from_status,
    was_never_taken,
)
from reput_client.core.options import ProducerOptions
from reput_client.core.retry import RetryPolicy, is_followed
from reput_client.core.route import LEASE_OVER, NOT_LEADER
from reput_client.core.telemetry.metrics import ProducerMetrics, SendCounts
from reput_client.core.telemetry.unread import Round
from reput_client.core.types import Durability, SendResult

Outcome: TypeAlias = SendResult | ReputError

_TOPIC_REASONS = frozenset({"TOPIC_NOT_FOUND", "TOPIC_FORBIDDEN", "TOPIC_SET_APART", "BAD_TOPIC_NAME"})
_MESSAGE_INDEX = re.compile(r"messages\[(\d+)\]")
BATCH_MESSAGE_COUNT_MAX = 32_768
"""As in append_service.proto."""
PORT_MAX = 65_535
ONCE_PREFIX = "once/"
"""Prefix of the ids of writers with a single batch, as in append_service.proto."""


class Sink(Protocol):
    """The receiver of a message's outcome. `sink_index` is the index of the message in its sink."""

    def settle(self, sink_index: int, outcome: Outcome) -> None:
        """Accept the outcome. Called a single time per message."""
        ...

    def note_failure(self, round_: Round, error: ReputError) -> None:
        """Count a message that is about to fail, unless the program has asked for its outcome."""
        ...


class Entry(NamedTuple):
    """An encoded message in the queue, with its sink."""

    chunk: bytes
    topic: str
    unique_id: str
    sink: Sink
    sink_index: int


class Settlement(NamedTuple):
    """The outcomes of messages, in their order, to be given to their sinks."""

    entries: Sequence[Entry]
    outcomes: Sequence[Outcome]


class Batch:
    """Messages that are sent together, and the number of failed attempts.

    `order` is the batch's place among all batches: a number; for a part of a split batch the part's number is added.
    `follow_count` is the number of attempts in a row that were sent to the leader of an answer; these are no failed
    attempts. `was_sent`: an earlier attempt may have stored it. `begun_s` is the time when its first message was added.
    """

    __slots__ = ("attempt", "begun_s", "entries", "follow_count", "order", "size_bytes", "was_sent")

    def __init__(
        self,
        entries: list[Entry],
        *,
        order: tuple[int, ...],
        begun_s: float,
        attempt: int = 0,
        follow_count: int = 0,
        was_sent: bool = False,
    ) -> None:
        self.entries, self.order, self.begun_s = entries, order, begun_s
        self.attempt, self.follow_count, self.was_sent = attempt, follow_count, was_sent
        self.size_bytes = sum([len(entry.chunk) for entry in entries])

    def to_request(self, durability: int) -> bytes:
        """Return the serialized request."""
        return b"".join([entry.chunk for entry in self.entries]) + request_end(durability)


def results_of(result: AppendResult, unique_ids: Sequence[str]) -> list[SendResult]:
    """Return where the messages of a batch are stored. Raises ValueError for an inconsistent answer."""
    store_time_ms, durability = result.store_time_ms, Durability(result.durability)
    if not 0 <= result.store_host.port <= PORT_MAX:
        raise ValueError(f"{result.store_host.port} is no port")
    store_host = result.store_host.address + result.store_host.port.to_bytes(4)
    columns: Any = zip(unique_ids, result.physical_offsets, result.queue_ids, result.queue_offsets, strict=True)
    return [
        SendResult(physical_offset, queue_id, queue_offset, store_time_ms, durability, unique_id, store_host)
        for unique_id, physical_offset, queue_id, queue_offset in columns
    ]


def as_first(result: AppendResult, message: StoredMessage | None) -> str:
    """Put the place of the first message into the answer to a repeated send. Returns the first message's unique id."""
    result.physical_offsets.append(result.start_physical_offset)
    result.queue_ids.append(-1 if message is None else message.queue_id)
    result.queue_offsets.append(-1 if message is None else message.queue_offset)
    return "" if message is None else message.properties.get("UNIQ_KEY", "")


class SendQueue:
    """The send queue of a producer. The window bounds `unsettled_bytes`. An empty queue takes a message of any size."""

    def __init__(self, options: ProducerOptions) -> None:
        self.unsettled_bytes = 0
        self.blocked_until_s = 0.0
        self._moved: ReputError | None = None
        self._batch_size_bytes, self._window_bytes = options.batch_size_bytes, options.window_bytes
        self._linger_s, self._retry = options.linger_ms / 1000, options.retry or RetryPolicy()
        self._open: list[Entry] = []
        self._open_size_bytes = 0
        self._open_since_s = self._open_until_s = 0.0
        self._batch_count = 0
        self._ready: deque[Batch] = deque()
        self._in_flight: deque[Batch] = deque()
        self._settled: list[Settlement] = []
        self._counts = SendCounts()

    @property
    def is_idle(self) -> bool:
        """Whether every message is settled."""
        return self.unsettled_bytes == 0

    def pop_moved(self) -> ReputError | None:
        """Pop the refusal that moves appends to another target, when no batch is in flight: then the stream may end."""
        if self._in_flight:
            return None
        moved, self._moved = self._moved, None
        return moved

    def has_room(self, size_bytes: int) -> bool:
        """Return whether a message of this size may be added now."""
        return self.unsettled_bytes == 0 or self.unsettled_bytes + size_bytes <= self._window_bytes

    def add(self, entry: Entry, now_s: float) -> bool:
        """Add a message. Returns whether a batch began or became ready, so that the sender must look again."""
        size_bytes = len(entry.chunk)
        is_news = False
        if self._open and self._open_size_bytes + size_bytes > self._batch_size_bytes:
            self.close_batch()
            is_news = True
        if not self._open:
            self._open_since_s, self._open_until_s = now_s, now_s + self._linger_s
            is_news = True
        self._open.append(entry)
        self._open_size_bytes += size_bytes
        self.unsettled_bytes += size_bytes
        if self._open_size_bytes >= self._batch_size_bytes or len(self._open) >= BATCH_MESSAGE_COUNT_MAX:
            self.close_batch()
            is_news = True
        return is_news

    @property
    def batch_number(self) -> int:
        """The number of the batch that the last message was added to."""
        return self._batch_count + bool(self._open)

    def hurry(self, batch_number: int) -> bool:
        """End the linger of the open batch, if it has this number: a caller waits for the outcome of its messages.

        Further messages are added until the batch is popped. Returns whether the sender must look again.
        """
        if not self._open or batch_number != self.batch_number or self._open_until_s == 0.0:
            return False
        self._open_until_s = 0.0
        return True

    def close_batch(self) -> None:
        """Make the open batch ready, at any age."""
        if self._open:
            self._batch_count += 1
            self._ready.append(Batch(self._open, order=(self._batch_count,), begun_s=self._open_since_s))
            self._open, self._open_size_bytes = [], 0

    def pop(self, now_s: float) -> Batch | None:
        """Pop the next batch to send, None if no batch is due. It is in flight from now on.

        After a refusal that moves appends to another target, it returns None until the stream has ended.
        """
        if now_s < self.blocked_until_s or self._moved is not None:
            return None
        if not self._ready and self._open and now_s >= self._open_until_s:
            self.close_batch()
        if not self._ready:
            return None
        batch = self._ready.popleft()
        self._in_flight.append(batch)
        self._counts.request_count += 1
        return batch

    def wait_s(self, now_s: float) -> float | None:
        """Return seconds until `pop` may return a batch, None if it returns none before another event."""
        if (not self._ready and not self._open) or self._moved is not None:
            return None
        until_s = 0.0 if self._ready else self._open_until_s
        return max(0.0, max(until_s, self.blocked_until_s) - now_s)

    def on_outcomes(self, outcomes: Sequence[AppendOutcome], now_s: float) -> None:
        """Apply the server's answers to the batches in flight, oldest first.

        Raises ReputError or ValueError for an inconsistent answer; its batch is still in flight then.
        """
        for outcome in outcomes:
            if not self._in_flight:
                raise ReputError("the server answered more batches than it was sent")
            batch = self._in_flight[0]
            if outcome.HasField("result"):
                self._on_stored(batch, outcome.result, now_s)
                self._in_flight.popleft()
            else:
                error = from_status(outcome.error)
                self._in_flight.popleft()
                self._on_refused(batch, error, now_s)

    def on_broken(self, error: ReputError, now_s: float) -> None:
        """Make the batches in flight ready again after the end of the stream, or fail them if no retry is left."""
        self._moved = None
        for batch in self._in_flight:
            delay_s = self._retry.delay_s(batch.attempt, error)
            batch.was_sent = batch.was_sent or not was_never_taken(error)
            if delay_s is not None:
                self._again(batch, batch.entries, attempt=batch.attempt + 1, not_before_s=now_s + delay_s)
            else:
                self._fail(batch.entries, _outcome_of(batch, error))
        self._in_flight.clear()

    def fail_all(self, error: ReputError) -> int:
        """Fail all messages, for a producer that is closed without waiting. Returns their number."""
        self.close_batch()
        for batch in self._in_flight:
            batch.was_sent = True
        batches = (*self._in_flight, *self._ready)
        for batch in batches:
            self._fail(batch.entries, _outcome_of(batch, error))
        self._in_flight.clear()
        self._ready.clear()
        return sum(len(batch.entries) for batch in batches)

    def pop_settled(self) -> list[Settlement]:
        """Pop the outcomes that the caller has to give to their sinks (`settle_all`), each a single time."""
        settled, self._settled = self._settled, []
        return settled

    def metrics(self) -> ProducerMetrics:
        """Return the counters of the producer."""
        waiting = [len(batch.entries) for batch in (*self._ready, *self._in_flight)]
        return self._counts.snapshot([*waiting, len(self._open)], self.unsettled_bytes)

    def _on_stored(self, batch: Batch, result: AppendResult, now_s: float) -> None:
        results = results_of(result, [entry.unique_id for entry in batch.entries])
        self._settled.append(Settlement(batch.entries, results))
        self.unsettled_bytes -= batch.size_bytes
        self._counts.acknowledge(len(batch.entries), batch.size_bytes, now_s - batch.begun_s)

    def _on_refused(self, batch: Batch, error: ReputError, now_s: float) -> None:
        if error.reason in (NOT_LEADER, LEASE_OVER):
            self._moved = error
        if error.reason == LEASE_OVER:  # stored, and perhaps dropped by the next leader: as after a broken connection
            batch.was_sent = True
        if is_followed(error, batch.follow_count):
            follow_count = batch.follow_count + 1
            self._again(batch, batch.entries, attempt=batch.attempt, follow_count=follow_count, not_before_s=0.0)
            return
        delay_s = self._retry.delay_s(batch.attempt, error)
        if delay_s is not None:
            self._again(batch, batch.entries, attempt=batch.attempt + 1, not_before_s=now_s + delay_s)
            return
        bad, rest = _split(batch.entries, error)
        self._fail(bad, error if isinstance(error, InvalidArgumentError) else _outcome_of(batch, error))
        for part, entries in enumerate(rest):
            self._again(batch, entries, part=(part,), attempt=batch.attempt, not_before_s=0.0)

    def _again(
        self,
        batch: Batch,
        entries: list[Entry],
        *,
        part: tuple[int, ...] = (),
        attempt: int,
        follow_count: int = 0,
        not_before_s: float,
    ) -> None:
        """Put messages of a batch back among the ready batches, at their place in the order."""
        if entries:
            order = (*batch.order, *part)
            again = Batch(
                entries,
                order=order,
                begun_s=batch.begun_s,
                attempt=attempt,
                follow_count=follow_count,
                was_sent=batch.was_sent,
            )
            self._counts.retried_count += attempt > batch.attempt or follow_count > 0
            bisect.insort(self._ready, again, key=attrgetter("order"))
            self.blocked_until_s = max(self.blocked_until_s, not_before_s)

    def _fail(self, entries: Sequence[Entry], error: ReputError) -> None:
        self._counts.failed_count += len(entries)
        self._settled.append(Settlement(entries, [error] * len(entries)))
        self.unsettled_bytes -= sum([len(entry.chunk) for entry in entries])


def _split(entries: list[Entry], error: ReputError) -> tuple[Sequence[Entry], list[list[Entry]]]:
    """Return the messages that a refusal names, and the other messages in batches to send again."""
    match = _MESSAGE_INDEX.search(" ".join((*error.fields, error.metadata.get("field", ""))))
    index = int(match.group(1)) if match else None
    if index is not None and index < len(entries) and error.reason not in _TOPIC_REASONS:
        return [entries[index]], [entries[:index] + entries[index + 1 :]]
    if error.reason in _TOPIC_REASONS:
        topic = entries[index].topic if index is not None and index < len(entries) else error.metadata.get("topic")
        bad = [entry for entry in entries if entry.topic == topic]
        if bad:
            return bad, [[entry for entry in entries if entry.topic != topic]]
    if isinstance(error, InvalidArgumentError) and len(entries) > 1:
        half = len(entries) // 2
        return [], [entries[:half], entries[half:]]
    return entries, []


def _outcome_of(batch: Batch, error: ReputError) -> ReputError:
    """Return the error of messages that fail for good. If they were sent before, their outcome is unknown."""
    return _unknown(error) if batch.was_sent else error


def _unknown(error: ReputError) -> ReputError:
    """Return the error of messages that were sent and whose answer is lost."""
    return OutcomeUnknownError(
        f"{error.text}; the messages may or may not be stored",
        code=error.code,
        reason=error.reason,
        metadata=error.metadata,
    )
