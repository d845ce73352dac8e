# SPDX-License-Identifier: Apache-2.0
"""AppendPipeline: turns serialized AppendRequests into records at the end of the log.

Invariants: a batch is contiguous inside a single segment and has a single store time. Store times never decrease within
the log. A refused batch leaves no message and no topic behind. A failed write sets the seal, because the batch already
has its queue offsets.
Callers: the loop that owns the log (the loop is RocketMQ's put lock). Nothing here waits, with two exceptions: for
topics.json when a batch names a topic that does not exist yet, and for the next segment (LogTailWriter).
Not handled: the place of the bytes (LogTailWriter), durability (Syncer) and the acknowledgement (Acknowledgements).
Rules: docs/formats/commit_log.md section 8; RocketMQ's counterpart is CommitLog.asyncPutMessages.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgspec.structs import replace

from libs.formats.limits import BATCH_MESSAGE_COUNT_MAX, BLANK_SIZE_BYTES_MIN, RECORD_SIZE_SLACK_BYTES
from libs.formats.records import writer_stamp
from libs.formats.state.queue_snapshot import WriterBatch
from libs.formats.state.system_topics import DEAD_LETTER_PREFIX
from libs.kernel import layout
from libs.kernel.append import append_cy
from libs.kernel.append.append_columns import AppendColumns, AppendLimits
from libs.kernel.append.topic_table import TopicTable
from libs.log.log_clock import LogClock
from libs.machine.failpoints import failpoint
from libs.requests.errors import BadArgument, ServiceError, Stopping
from libs.segments.segment import Segment
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.write.gate import WriteGate
from services.commitlog.engine.write.new_queues import NewQueueBudget
from services.commitlog.engine.write.refusal import refusal_of
from services.commitlog.engine.write.state import LogState
from services.commitlog.engine.write.tail import LogTailWriter
from services.commitlog.engine.write.topics import TopicRegistry
from services.commitlog.engine.write.writers import claim_of, is_system_writer
from services.commitlog.errors import BatchTooLarge

NEW_BATCH_TOPIC_COUNT_MAX = 1_000
"""Most topics of a batch with a new topic: each is checked while no other append can proceed."""

REPEATED = -1_000
"""A code in addition to the kernel's codes: the log already has the batch."""


class AppendedBatch(NamedTuple):
    """The place of a batch. The columns are packed little-endian numbers for each message: 8, 8 and 4 bytes."""

    start_physical_offset: int
    end_physical_offset: int
    store_time_ms: int
    requested_durability: int
    message_count: int = 0
    physical_offsets: bytes = b""
    queue_offsets: bytes = b""
    queue_ids: bytes = b""
    is_repeated: bool = False
    """The log already had this writer's batch. Nothing was appended, and the columns are empty."""
    ahead_ms: int = 0
    """By how much the log's time was ahead of the clock at the answer."""


class Limits(NamedTuple):
    """The kernel's limits for a batch: at first, and after its new queues were counted."""

    first: AppendLimits
    checked: AppendLimits

    def changed(self, **changes: Any) -> "Limits":
        """Return limits with these changes."""
        return Limits(replace(self.first, **changes), replace(self.checked, **changes))


@dataclass(slots=True, eq=False)
class AppendPipeline:
    """The only writer of the log, which appends batches."""

    _tail: LogTailWriter
    _state: LogState
    _topics: TopicRegistry
    _gate: WriteGate
    _time: LogClock
    _config: CommitLogConfig
    _store_host: bytes
    message_count: int = 0
    batch_count: int = 0
    repeated_batch_count: int = 0
    refused_durability_count: int = 0
    """Batches that asked for more members than were connected."""
    _store_time_ms: int = 0
    _ahead_ms: int = 0
    _writer_batch: WriterBatch | None = None
    """The writer's batch of the current request. If the request is REPEATED, the batch that the log has."""
    _durability_refusal: Callable[[], ServiceError] = Stopping
    new_queues: NewQueueBudget = field(init=False)
    _limits: Limits = field(init=False)
    _internal_limits: Limits = field(init=False)
    _columns: AppendColumns = field(init=False)

    def __post_init__(self) -> None:
        config = self._config
        self.new_queues = NewQueueBudget(self._time.monotonic_s, per_s_max=config.new_queues_per_s_max)
        first = AppendLimits(
            body_size_bytes_max=config.message_size_bytes_max,
            record_size_bytes_max=min(
                config.message_size_bytes_max + RECORD_SIZE_SLACK_BYTES,
                config.segment_size_bytes - BLANK_SIZE_BYTES_MIN,
            ),
            message_count_max=BATCH_MESSAGE_COUNT_MAX,
            crc_property=config.crc_property,
            delay_level_count=len(config.delay_levels_ms()),
            begun_queue_count_max=config.batch_new_queue_count_max,
        )
        self._limits = Limits(first, replace(first, begun_queue_count_max=BATCH_MESSAGE_COUNT_MAX))
        self._internal_limits = self._limits.changed(is_internal=True)
        self._columns = AppendColumns(BATCH_MESSAGE_COUNT_MAX)

    @property
    def request_size_bytes_max(self) -> int:
        """Maximum size of a request. `append` refuses a larger request."""
        return self._config.append_request_size_bytes_max

    async def append(self, request: bytes, born_host: bytes, *, is_behind_refused: bool = False) -> AppendedBatch:
        """Append a serialized AppendRequest. On return its bytes are in the page cache.

        `born_host` (8 or 20 bytes) is for messages without a born host. `is_behind_refused`: the request before this
        one in its stream was refused. Raises AfterRefusal if this one needs it, a ServiceError that names the field at
        fault, StoreSealed, AppendsRefused or StoreFull; then nothing was appended. Nothing is appended either if the
        log already has the writer's batch; the answer has its place.
        """
        limits = self._limits.changed(is_behind_refused=True) if is_behind_refused else self._limits
        return await self._append(request, born_host, limits)

    async def append_state(self, request: bytes, born_host: bytes) -> AppendedBatch:
        """Append a batch of the store itself, as `append` does. It may name the topic of the store's own state."""
        self._gate.check()
        await self._topics.create_internal_topics()
        return await self._append(request, born_host, self._internal_limits)

    async def _append(self, request: bytes, born_host: bytes, limits: Limits) -> AppendedBatch:
        self._gate.check()
        size_bytes, limit = len(request), self.request_size_bytes_max
        if size_bytes > limit:
            reason = f"a batch of {size_bytes} bytes is too large, the limit is {limit}"
            raise BatchTooLarge(reason, value=size_bytes, limit=limit)
        segment = await self._tail.segment()
        code = self._place(segment, segment.room, request, born_host, self._topics.table, limits)
        if code == layout.E_TOPIC_UNKNOWN and (self._config.auto_create_topics or limits.first.is_internal):
            code = await self._create_topics(segment, request, born_host, limits)
            if code == layout.E_FULL:
                self._gate.check()
                segment = await self._tail.segment()
                code = self._place(segment, segment.room, request, born_host, self._topics.table, limits)
        while code == layout.E_FULL:
            self._check_fits()
            self._tail.close(segment)
            segment = await self._tail.segment()
            code = self._place(segment, segment.room, request, born_host, self._topics.table, limits)
        if code == REPEATED:
            return self._repeated()
        if code == layout.E_DURABILITY:
            self.refused_durability_count += 1
            raise self._durability_refusal()
        if code < 0:
            raise refusal_of(code, request, self._columns, limits.first, self._topics)
        start, columns = segment.end_physical_offset, self._columns
        self._publish(segment, code, columns.durability)
        self.new_queues.take(columns.new_queue_count, is_owed=not limits.first.is_internal)
        return self._batch(start, segment.end_physical_offset, columns.durability, 0, columns.count)

    def append_group(self, requests: Sequence[bytes], born_hosts: Sequence[bytes]) -> list[AppendedBatch]:
        """Append requests as a single piece, each as a batch of its own, up to the first that needs `append`.

        A request needs `append` if it is refused, names a writer, or needs a topic or another segment. On return the
        bytes of the returned batches are in the page cache. Raises the errors of `WriteGate.check`, or StoreSealed, for
        all requests.
        """
        self._gate.check()
        segment = self._tail.active()
        if segment is None:
            return []
        self._begin()
        start = segment.end_physical_offset
        place = segment.room, 0, start, self._store_time_ms, self._store_host, self._topics.table
        limits = self._as_of_now(self._limits).first
        placed = append_cy.append_group(requests, born_hosts, *place, limits, self._columns)
        if not placed:
            return []
        self._publish(segment, placed[-1][0], max(durability for _, _, durability in placed))
        self.new_queues.take(self._columns.new_queue_count)
        batches, first, at = [], 0, 0
        for position, count, durability in placed:
            batches.append(self._batch(start + at, start + position, durability, first, count))
            first, at = first + count, position
        return batches

    def refuse_durabilities(self, durabilities: Iterable[int], refusal: Callable[[], ServiceError]) -> None:
        """Refuse batches with these durabilities, and only these, before anything is written."""
        bits = sum(1 << durability for durability in durabilities)
        self._limits = self._limits.changed(refused_durabilities=bits)
        self._internal_limits = self._internal_limits.changed(refused_durabilities=bits)
        self._durability_refusal = refusal

    def _place(
        self, segment: Segment, room: memoryview, request: bytes, born_host: bytes, table: TopicTable, limits: Limits
    ) -> int:
        """Encode the records of a request. Returns their size in bytes, REPEATED, or a negative code of the kernel."""
        self._begin()
        limits = self._as_of_now(limits)
        place = request, room, 0, segment.end_physical_offset, self._store_time_ms, born_host, self._store_host, table
        code = append_cy.append(*place, limits.first, self._columns, b"")
        if code == layout.E_QUEUES:
            self._check_begun(table, limits)
            code = append_cy.append(*place, limits.checked, self._columns, b"")
        if code == layout.E_WRITER:
            stamp = self._stamp(segment, request, limits)
            if stamp is None:
                return REPEATED
            code = append_cy.append(*place, limits.checked, self._columns, stamp)
        return code

    def _begin(self) -> None:
        failpoint("append.before_write")
        self._time.saw(self._state.last_store_time_ms)
        self._store_time_ms = max(self._time.now_ms(), self._state.last_store_time_ms)
        self._ahead_ms = self._time.ahead_ms()
        self._writer_batch = None

    def _as_of_now(self, limits: Limits) -> Limits:
        """Return the current limits. Batches of the store itself may begin queues at any time."""
        if self._ahead_ms:
            limits = limits.changed(ahead_ms=self._ahead_ms)
        if not limits.first.is_internal and not self.new_queues.has_left():
            limits = limits._replace(first=replace(limits.first, begun_queue_count_max=0))
        return limits

    def _check_begun(self, table: TopicTable, limits: Limits) -> None:
        """Count the queues that a batch begins. The kernel only knows that they may be too many.

        Raises BatchTooLarge and TooManyNewQueues.
        """
        count, limit = table.begun_count(self._columns.places()), self._config.batch_new_queue_count_max
        if count > limit:
            reason = f"a batch with the first messages of {count} queues is too large, the limit is {limit}"
            raise BatchTooLarge(reason, value=count, limit=limit)
        if count > limits.first.begun_queue_count_max:
            raise self.new_queues.refusal(count)

    def _stamp(self, segment: Segment, request: bytes, limits: Limits) -> bytes | None:
        """Return the stamp for a request that names a writer, or None if the log already has the batch.

        Raises WriterError, MalformedRequest and BadArgument.
        """
        columns = self._columns
        claim = claim_of(request, request[columns.writer_start : columns.writer_start + columns.writer_size])
        if is_system_writer(claim.writer_id) and not limits.first.is_internal:
            raise BadArgument("belongs to the store itself", field="writer.id", value=claim.writer_id)
        self._writer_batch = self._state.writers.stored(claim)
        if self._writer_batch is not None:
            return None
        stamp = claim.stamp(start_physical_offset=segment.end_physical_offset, plain_size_bytes=columns.error_value)
        self._writer_batch = WriterBatch.of(stamp, self._store_time_ms)
        return writer_stamp.encode_property(stamp)

    def _repeated(self) -> AppendedBatch:
        """Return the place of the batch that the log already has."""
        stored = self._writer_batch
        assert stored is not None
        self.repeated_batch_count += 1
        return AppendedBatch(
            start_physical_offset=stored.start_physical_offset,
            end_physical_offset=stored.end_physical_offset,
            store_time_ms=stored.store_time_ms,
            requested_durability=self._columns.durability,
            is_repeated=True,
            ahead_ms=self._ahead_ms,
        )

    def _publish(self, segment: Segment, size_bytes: int, durability: int) -> None:
        """Append the placed records to the log. `durability` is the highest requested durability."""
        is_first = segment.wrote_position == 0
        self._tail.put(segment, size_bytes, durability)
        if self._writer_batch is not None:  # at once: the log has the batch, also if a later step fails
            self._state.writers.note(self._writer_batch)
        self._state.last_store_time_ms = self._store_time_ms
        self._time.saw(self._store_time_ms)
        if is_first:
            segment.first_store_time_ms = self._store_time_ms
        segment.last_store_time_ms = self._store_time_ms
        failpoint("append.after_write")

    def _batch(self, start: int, end: int, durability: int, first: int, count: int) -> AppendedBatch:
        """Return the outcome of a request. Its `count` messages begin at index `first` of the columns."""
        columns, until = self._columns, first + count
        self.message_count += count
        self.batch_count += 1
        return AppendedBatch(
            start_physical_offset=start,
            end_physical_offset=end,
            store_time_ms=self._store_time_ms,
            requested_durability=durability,
            message_count=count,
            physical_offsets=memoryview(columns.physical_offsets)[first:until].tobytes(),
            queue_offsets=memoryview(columns.queue_offsets)[first:until].tobytes(),
            queue_ids=memoryview(columns.queue_ids)[first:until].tobytes(),
            ahead_ms=self._ahead_ms,
        )

    def _check_fits(self) -> None:
        """Refuse a batch that no segment can hold, before any segment is closed for it (RocketMQ closes two)."""
        needed, limit = self._columns.error_value, self._config.segment_size_bytes - BLANK_SIZE_BYTES_MIN
        if needed > limit:
            reason = f"the records of the batch take {needed} bytes, more than a segment"
            raise BatchTooLarge(reason, value=needed, limit=limit)

    async def _create_topics(self, segment: Segment, request: bytes, born_host: bytes, limits: Limits) -> int:
        """Create the missing topics of the batch if it has no other fault. Returns E_FULL then.

        With auto_create_topics off, the store still creates dead letter topics, as RocketMQ does.
        """
        field = f"messages[{self._columns.error_index}].topic"
        names = [topic.decode("ascii") for topic in self._columns.topics(request)]
        if len(names) > NEW_BATCH_TOPIC_COUNT_MAX:
            reason = f"a batch that makes a topic names at most {NEW_BATCH_TOPIC_COUNT_MAX}"
            raise BatchTooLarge(reason, value=len(names), limit=NEW_BATCH_TOPIC_COUNT_MAX)
        missing, table = self._topics.trial(names, field=field)
        if not self._config.auto_create_topics and not all(
            topic.name.startswith(DEAD_LETTER_PREFIX) for topic in missing
        ):
            return layout.E_TOPIC_UNKNOWN
        # Without room nothing fits, so E_FULL means a request without a fault, and nothing is left behind.
        code = self._place(segment, segment.room[:0], request, born_host, table, limits)
        if code == layout.E_FULL:
            self._check_fits()
            await self._topics.create_missing(missing, field=field)
        return code
