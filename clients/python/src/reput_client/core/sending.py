# SPDX-License-Identifier: Apache-2.0
"""SendQueue: the logic of a producer: batches, the window, outcomes, retries and splits. No I/O, no clock, no threads.

The states of a message: in the open batch -> ready -> in flight -> settled, or ready again when it is retried.

Invariants: batches are in flight in the order in which `pop` returned them, and outcomes come in this order.
`unsettled_bytes` is the size of all messages that were added and not settled. While `blocked_until_s` lies ahead, `pop`
returns no batch.

Messages are stored in the order of `add`, apart from repetitions behind their first copy. A batch that is sent while
others are in flight needs the batch before it: the server refuses it with AFTER_REFUSAL if that one was refused, and it
waits again behind the refused messages. After a refusal or a broken stream a single batch is in flight until a batch is
stored (`_is_probing`).

Callers: a single caller at a time (with a lock or an event loop). Outcomes are collected for `pop_settled` and not
given to their sinks here, so that the caller can release its lock before it wakes other threads. Times are seconds of a
monotonic clock, given by the caller.

A bad message must not fail the other messages of its batch. A refusal that names messages[i] fails this message, and
the rest is sent again. A refusal that names a topic fails all messages of this topic, and a refusal with QUEUE_NOT_HERE
all messages of the topic's queue. Any other refusal of the batch as invalid cuts the batch in halves.
"""

import bisect
import re
from array import array
from collections import deque
from collections.abc import Callable, Sequence
from itertools import accumulate, pairwise, repeat
from operator import attrgetter
from typing import Any, NamedTuple, Protocol, TypeAlias

from reput.commitlog.v1.append_service_pb2 import AppendOutcome, AppendResult, AppendStreamRequest
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

_TOPIC_REASONS = frozenset({"TOPIC_NOT_FOUND", "TOPIC_FORBIDDEN", "TOPIC_SET_APART", "BAD_TOPIC_NAME", "NOT_PERMITTED"})
_MESSAGE_INDEX = re.compile(r"messages\[(\d+)\]")
QUEUE_NOT_HERE = "QUEUE_NOT_HERE"
"""The reason of a refusal by a log that does not have the message's queue, or whose queue is sealed."""
AFTER_REFUSAL = "AFTER_REFUSAL"
"""The reason of the refusal of a batch that needs the batch before it."""
BATCH_MESSAGE_COUNT_MAX = 32_768
"""As in append_service.proto."""
PORT_MAX = 65_535
ONCE_PREFIX = "once/"
"""Prefix of the ids of writers with a single batch, as in append_service.proto."""


class Stored:
    """Where the messages of a batch are stored, as the columns of the answer: results are made when one is read.

    `unique_ids` has the unique ids of the messages. Raises ValueError for an inconsistent answer.
    """

    __slots__ = ("_rows",)

    def __init__(self, result: AppendResult, unique_ids: Sequence[str]) -> None:
        places = result.physical_offsets, result.queue_ids, result.queue_offsets
        if any(len(column) != len(unique_ids) for column in places):
            raise ValueError(f"the answer has {[*map(len, places)]} places for {len(unique_ids)} messages")
        if not 0 <= result.store_host.port <= PORT_MAX:
            raise ValueError(f"{result.store_host.port} is no port")
        store_host = result.store_host.address + result.store_host.port.to_bytes(4)
        store = repeat(result.store_time_ms), repeat(Durability(result.durability))
        self._rows: tuple[Any, ...] | list[SendResult] = (*places, *store, unique_ids, repeat(store_host))

    def at(self, row: int) -> SendResult:
        """Return where the message of a row of the batch is stored. Safe to call from any thread."""
        rows = self._rows
        if isinstance(rows, tuple):
            rows = self._rows = list(map(_new_tuple, repeat(SendResult), zip(*rows, strict=False)))
        return rows[row]


_new_tuple: Any = tuple.__new__
"""SendResult's own constructor costs a call in Python more."""


class Sink(Protocol):
    """The receiver of a message's outcome: its future, or its place among the messages of a future."""

    stored: Stored | SendResult | None
    """The columns that have the message's result. They are set before `set_result`."""

    def done(self) -> bool:
        """Return whether the program has cancelled it."""
        ...

    def set_result(self, row: int, /) -> None:
        """Accept the message's row in `stored`. Called at most once, and not after `set_exception`."""
        ...

    def set_exception(self, error: ReputError, /) -> None:
        """Accept the error of a message that is not stored, or may be stored."""
        ...

    def note_failure(self, round_: Round, error: ReputError) -> None:
        """Count a message that is about to fail, unless the program has asked for its outcome."""
        ...


class Settlement(NamedTuple):
    """The outcome of messages, in their order, to be given to their sinks: columns, or the error of all of them.

    In the place of sinks a producer over shards has entries of its own.
    """

    sinks: Sequence[Any]
    outcome: Stored | ReputError


class Batch:
    """Messages that are sent together, as columns, and the number of failed attempts.

    Its request is made when it is sent for the first time; a further attempt sends the same messages.
    `needs_previous`: it was sent while other batches were in flight.
    `order` is the batch's place among all batches: a number; for a part of a split batch the part's number is added.
    `follow_count` is the number of attempts in a row that were sent to the leader of an answer; these are no failed
    attempts. `was_sent`: an earlier attempt may have stored it. `begun_s` is the time when its first message was added.
    """

    __slots__ = (
        "_request", "_sizes_bytes", "attempt", "begun_s", "chunks", "follow_count", "needs_previous", "order", "sinks",
        "size_bytes", "unique_ids", "was_sent",
    )  # fmt: skip

    def __init__(self, *, order: tuple[int, ...], begun_s: float) -> None:
        self.order, self.begun_s = order, begun_s
        self.attempt, self.follow_count, self.was_sent, self.needs_previous = 0, 0, False, False
        self.chunks: list[bytes] = []
        self.unique_ids: list[str] = []
        self.sinks: list[Sink] = []
        self.size_bytes = 0
        self._request = b""
        self._sizes_bytes: array[int] = array("I")

    def to_request(self, durability: int) -> bytes:
        """Return the serialized request. The durability of all attempts is the same."""
        end = request_end(durability, needs_previous=self.needs_previous)
        if not self._request:
            self._request = b"".join([*self.chunks, end])
            self._sizes_bytes = array("I", map(len, self.chunks))
            self.chunks = []
        elif self._request[self.size_bytes :] != end:
            self._request = self._request[: self.size_bytes] + end
        return self._request

    def queues(self) -> list[tuple[str, str]]:
        """Return the topics of the messages, and the queues that they name: -1 for none, as the server writes it."""
        messages = AppendStreamRequest.FromString(b"".join(self._cut())).messages
        return [(one.topic, str(one.queue_id if one.HasField("queue_id") else -1)) for one in messages]

    def part(self, number: int, rows: Sequence[int]) -> "Batch":
        """Return some of the messages as a batch of its own, which takes its place in the order from this one."""
        part = Batch(order=(*self.order, number), begun_s=self.begun_s)
        part.attempt, part.was_sent = self.attempt, self.was_sent
        chunks = self._cut()
        part.chunks = [chunks[row] for row in rows]
        part.unique_ids = [self.unique_ids[row] for row in rows]
        part.sinks = [self.sinks[row] for row in rows]
        part.size_bytes = sum(map(len, part.chunks))
        return part

    def _cut(self) -> list[bytes]:
        """Return the chunks of the messages, cut from the request if it is made."""
        ends = list(accumulate(self._sizes_bytes, initial=0))
        return self.chunks or [self._request[start:end] for start, end in pairwise(ends)]


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
        self._is_probing = False
        self._batch_size_bytes, self._window_bytes = options.batch_size_bytes, options.window_bytes
        self._linger_s, self._retry = options.linger_ms / 1000, options.retry or RetryPolicy()
        self._open: Batch | None = None
        self._open_until_s = 0.0
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

    def add(self, chunk: bytes, unique_id: str, sink: Sink, clock: Callable[[], float]) -> bool:
        """Add a message. Returns whether a batch began or became ready, so that the sender must look again.

        `clock` returns the current time. It is read when a batch begins.
        """
        size_bytes, batch = len(chunk), self._open
        is_news = batch is None or batch.size_bytes + size_bytes > self._batch_size_bytes
        if is_news or batch is None:
            batch = self._begin_batch(clock())
        batch.chunks.append(chunk)
        batch.unique_ids.append(unique_id)
        batch.sinks.append(sink)
        batch.size_bytes += size_bytes
        self.unsettled_bytes += size_bytes
        if batch.size_bytes >= self._batch_size_bytes or len(batch.sinks) >= BATCH_MESSAGE_COUNT_MAX:
            self.close_batch()
            return True
        return is_news

    @property
    def batch_number(self) -> int:
        """The number of the batch that the last message was added to."""
        return self._batch_count

    def hurry(self, batch_number: int) -> bool:
        """End the linger of the open batch, if it has this number: a caller waits for the outcome of its messages.

        Further messages are added until the batch is popped. Returns whether the sender must look again.
        """
        if self._open is None or batch_number != self._batch_count or self._open_until_s == 0.0:
            return False
        self._open_until_s = 0.0
        return True

    def close_batch(self) -> None:
        """Make the open batch ready, at any age."""
        if self._open is not None:
            self._ready.append(self._open)
            self._open = None

    def _begin_batch(self, now_s: float) -> Batch:
        """Open a batch, after the batch that is open."""
        self.close_batch()
        self._batch_count += 1
        self._open_until_s = now_s + self._linger_s
        self._open = Batch(order=(self._batch_count,), begun_s=now_s)
        return self._open

    def pop(self, now_s: float) -> Batch | None:
        """Pop the next batch to send, None if no batch is due. It is in flight from now on.

        After a refusal that moves appends to another target, it returns None until the stream has ended.
        """
        if now_s < self.blocked_until_s or self._must_wait:
            return None
        if not self._ready and self._open is not None and now_s >= self._open_until_s:
            self.close_batch()
        if not self._ready:
            return None
        batch = self._ready.popleft()
        batch.needs_previous = bool(self._in_flight)
        self._in_flight.append(batch)
        self._counts.request_count += 1
        return batch

    @property
    def _must_wait(self) -> bool:
        """Whether `pop` returns no batch before another outcome, or before the end of the stream."""
        return self._moved is not None or (self._is_probing and bool(self._in_flight))

    def wait_s(self, now_s: float) -> float | None:
        """Return seconds until `pop` may return a batch, None if it returns none before another event."""
        if (not self._ready and self._open is None) or self._must_wait:
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
        self._moved, self._is_probing = None, True
        for batch in self._in_flight:
            delay_s = self._retry.delay_s(batch.attempt, error)
            batch.was_sent = batch.was_sent or not was_never_taken(error)
            if delay_s is not None:
                self._again(batch, attempt=batch.attempt + 1, not_before_s=now_s + delay_s)
            else:
                self._fail(batch, _outcome_of(batch, error))
        self._in_flight.clear()

    def fail_all(self, error: ReputError) -> int:
        """Fail all messages, for a producer that is closed without waiting. Returns their number."""
        self.close_batch()
        for batch in self._in_flight:
            batch.was_sent = True
        batches = (*self._in_flight, *self._ready)
        for batch in batches:
            self._fail(batch, _outcome_of(batch, error))
        self._in_flight.clear()
        self._ready.clear()
        return sum(len(batch.sinks) for batch in batches)

    def pop_settled(self) -> list[Settlement]:
        """Pop the outcomes that the caller has to give to their sinks (`settle_all`), each a single time."""
        settled, self._settled = self._settled, []
        return settled

    def metrics(self) -> ProducerMetrics:
        """Return the counters of the producer."""
        batches = (*self._ready, *self._in_flight, *(() if self._open is None else (self._open,)))
        return self._counts.snapshot([len(batch.sinks) for batch in batches], self.unsettled_bytes)

    def _on_stored(self, batch: Batch, result: AppendResult, now_s: float) -> None:
        self._settled.append(Settlement(batch.sinks, Stored(result, batch.unique_ids)))
        self._is_probing = False
        self.unsettled_bytes -= batch.size_bytes
        self._counts.acknowledge(len(batch.sinks), batch.size_bytes, now_s - batch.begun_s)

    def _on_refused(self, batch: Batch, error: ReputError, now_s: float) -> None:
        self._is_probing = True
        if error.reason == AFTER_REFUSAL and batch.needs_previous:
            self._insert(batch)
            return
        if error.reason in (NOT_LEADER, LEASE_OVER):
            self._moved = error
        if error.reason == LEASE_OVER:  # stored, and perhaps dropped by the next leader: as after a broken connection
            batch.was_sent = True
        if is_followed(error, batch.follow_count):
            follow_count = batch.follow_count + 1
            self._again(batch, attempt=batch.attempt, follow_count=follow_count, not_before_s=0.0)
            return
        delay_s = self._retry.delay_s(batch.attempt, error)
        if delay_s is not None:
            self._again(batch, attempt=batch.attempt + 1, not_before_s=now_s + delay_s)
            return
        bad, rest = _split(batch, error)
        if bad:
            failed = batch if len(bad) == len(batch.sinks) else batch.part(0, bad)
            self._fail(failed, error if isinstance(error, InvalidArgumentError) else _outcome_of(batch, error))
        for number, rows in enumerate(rest):
            if rows:
                self._insert(batch.part(number, rows))

    def _again(self, batch: Batch, *, attempt: int, follow_count: int = 0, not_before_s: float) -> None:
        """Put a batch back among the ready batches."""
        self._counts.retried_count += attempt > batch.attempt or follow_count > 0
        batch.attempt, batch.follow_count = attempt, follow_count
        self.blocked_until_s = max(self.blocked_until_s, not_before_s)
        self._insert(batch)

    def _insert(self, batch: Batch) -> None:
        """Put a batch among the ready batches, at its place in the order."""
        bisect.insort(self._ready, batch, key=attrgetter("order"))

    def _fail(self, batch: Batch, error: ReputError) -> None:
        self._counts.failed_count += len(batch.sinks)
        self._settled.append(Settlement(batch.sinks, error))
        self.unsettled_bytes -= batch.size_bytes


def _split(batch: Batch, error: ReputError) -> tuple[Sequence[int], list[Sequence[int]]]:
    """Return the rows of the messages that a refusal names, and the rows of other messages in batches to send again."""
    rows = range(len(batch.sinks))
    match = _MESSAGE_INDEX.search(" ".join((*error.fields, error.metadata.get("field", ""))))
    index = int(match.group(1)) if match else None
    if error.reason == QUEUE_NOT_HERE:
        queues, queue = batch.queues(), (error.metadata.get("topic"), error.metadata.get("value"))
        bad = [row for row in rows if queues[row] == queue]
        if bad:
            return bad, [[row for row in rows if queues[row] != queue]]
    if index is not None and index in rows and error.reason not in _TOPIC_REASONS:
        return [index], [[row for row in rows if row != index]]
    if error.reason in _TOPIC_REASONS:
        topics = [topic for topic, _ in batch.queues()]
        topic = topics[index] if index is not None and index in rows else error.metadata.get("topic")
        bad = [row for row in rows if topics[row] == topic]
        if bad:
            return bad, [[row for row in rows if topics[row] != topic]]
    if isinstance(error, InvalidArgumentError) and len(rows) > 1:
        half = len(rows) // 2
        return [], [rows[:half], rows[half:]]
    return rows, []


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
