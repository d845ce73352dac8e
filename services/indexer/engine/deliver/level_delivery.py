# SPDX-License-Identifier: Apache-2.0
"""LevelDelivery: appends the messages of a delay level to their real topics when they are due.

Invariants: messages of a level are delivered in the order of its queue; the offset moves after the append, and the
next batch waits until the file has the offset; a message that the log refuses stays the next message until the log
accepts it. A crash between the append and the file delivers this batch again (at most 512 messages or 1 MiB and a
message). If the state is shared, the batch itself contains the progress and a writer's number, so that no batch is
delivered twice.
Callers: the event loop's thread. Rules: RocketMQ's ScheduleMessageService.DeliverDelayedMessageTimerTask.
"""

import asyncio
import logging
from collections.abc import Sequence

import numpy as np

from libs.formats.errors import FormatError
from libs.formats.indexes.consume_queue_ext import ADDRESS_MAX
from libs.formats.records import record
from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.formats.records.record import Record
from libs.log.log_clock import LogClock
from libs.machine.clock import Clock
from libs.machine.failpoints import failpoint
from libs.machine.loop import SupervisedLoop
from libs.machine.uninterrupted import uninterrupted
from libs.requests.errors import DependencyUnavailable, RecordDamaged, Stopping, WindowFull
from libs.segments.errors import StoreError
from services.indexer.engine.deliver import due_message
from services.indexer.engine.follow.long_poll import LongPolls
from services.indexer.engine.follow.reput_loop import ReputLoop
from services.indexer.engine.follow.reput_state import ReputState
from services.indexer.engine.log.record_reader import store_times_ms
from services.indexer.engine.log.source import LogSink, RecordBlock, RecordSource
from services.indexer.engine.share.delay_offsets import DelayOffsets
from services.indexer.engine.share.shared_state import SharedState
from services.indexer.engine.tables.queue import ConsumeQueue, Units
from services.indexer.engine.tables.queues import ConsumeQueueTable
from services.indexer.errors import AppendRefused, NotARecord, Undeliverable

BATCH_COUNT_MAX = 512
BATCH_SIZE_BYTES_MAX = 1 << 20
PAUSE_S_MIN = 0.01
"""Messages that become due within this time share a batch."""

BACKOFF_MS_MIN, BACKOFF_MS_MAX = 100, 10_000
"""RocketMQ's DELAY_FOR_A_WHILE and DELAY_FOR_A_PERIOD."""

QUEUE_GONE = "QUEUE_OUT_OF_RANGE"
"""The topic has fewer queues than when the message was sent: then the log chooses a queue."""

BATCH_TOO_LARGE = "BATCH_TOO_LARGE"
"""The log has small segments or accepts only small requests: batches are smaller then, until the process ends."""

_log = logging.getLogger(__name__)


class LevelDelivery:
    """The delivery of a level, by the id of its queue in the schedule topic. `loop` runs it."""

    def __init__(
        self,
        reput: ReputLoop,
        queues: ConsumeQueueTable,
        polls: LongPolls,
        records: RecordSource,
        sink: LogSink,
        offsets: DelayOffsets,
        shared_state: SharedState,
        clock: Clock,
        queue_id: int,
        *,
        look_interval_ms: int,
        delay_levels_ms: Sequence[int],
    ) -> None:
        self.queue_id = queue_id
        self.delivered_count = 0
        self.lost_count = 0
        """Messages that were gone from the log before they were delivered."""
        self.waiting_count = 0
        self.head_due_ms: int | None = None
        """Time when the next message is due; None if no message waits."""
        self._reput = reput
        self._queues = queues
        self._polls = polls
        self._records = records
        self._sink = sink
        self._offsets = offsets
        self._shared_state = shared_state
        self._delay_ms = delay_levels_ms[min(queue_id, len(delay_levels_ms) - 1)]
        self._time = LogClock(clock)
        self._seen_queue_offset = -1
        self._look_interval_s = look_interval_ms / 1000
        self._batch_count_max = BATCH_COUNT_MAX
        self._batch_lock = asyncio.Lock()
        self.loop = SupervisedLoop(
            f"delivery of delay level {queue_id + 1}",
            self.step,
            backoff_ms_min=BACKOFF_MS_MIN,
            backoff_ms_max=BACKOFF_MS_MAX,
            expected_errors=(
                DependencyUnavailable,
                AppendRefused,
                Undeliverable,
                RecordDamaged,
                NotARecord,
                StoreError,
            ),
        )

    @property
    def lateness_ms(self) -> int:
        """Milliseconds since the next message became due."""
        return 0 if self.head_due_ms is None else max(0, self._time.now_ms() - self.head_due_ms)

    async def stop(self) -> None:
        """End after the current batch."""
        await self.loop.stop()
        async with self._batch_lock:
            pass

    async def step(self) -> None:
        """Deliver a batch of due messages, or wait until the head becomes due or a message arrives.

        It waits for a second at most, so that a step of the wall clock is noticed. Raises the error if nothing was
        delivered.
        """
        await self._offsets.save()
        history_count = self._offsets.history_count
        queue = self._queues.find(SCHEDULE_TOPIC, self.queue_id)
        units = None if queue is None else await self._timed(self._waiting(queue))
        if units is None or not len(units.physical_offsets):
            await self._wait_for_message()
        elif self._reput.state not in (ReputState.CATCHING_UP, ReputState.LIVE) or not self._shared_state.may_deliver:
            await asyncio.sleep(self._look_interval_s)
        elif (wait_ms := await self._wait_ms(units)) > 0:
            await asyncio.sleep(max(PAUSE_S_MIN, min(self._look_interval_s, wait_ms / 1000)))
        else:
            await uninterrupted(self._deliver(units, history_count))

    def _waiting(self, queue: ConsumeQueue) -> Units:
        """Read units from the next message on. An offset outside of the queue moves to its border, as in RocketMQ."""
        start = self._offsets.next_of(self.queue_id)
        end = queue.max_queue_offset
        is_complete = self._reput.state is ReputState.LIVE and self._reput.is_level
        if start < queue.min_queue_offset:
            _log.error("%s: %d messages are gone from the log", self.loop.name, queue.min_queue_offset - start)
            self.lost_count += queue.min_queue_offset - start
            start = queue.min_queue_offset
            self._offsets.step_over(self.queue_id, start)
        elif start > end and is_complete:
            _log.error("%s: the queue ends at %d, before the next offset %d", self.loop.name, end, start)
            start = end
            self._offsets.move(self.queue_id, start)
        self.waiting_count = max(0, end - start)
        return queue.read(start, self._batch_count_max)

    async def _timed(self, units: Units) -> Units:
        """Add the delivery times that RocketMQ keeps in extensions of its queues, which are not read here.

        They come from the records, or for the head alone if a record is damaged: it must not delay messages before it.
        """
        rows = np.flatnonzero(units.tags_codes <= ADDRESS_MAX)
        if len(rows):
            try:
                times = await store_times_ms(self._records, units.physical_offsets[rows], units.record_sizes[rows])
            except (NotARecord, RecordDamaged):
                if len(units.tags_codes) == 1:
                    raise
                return await self._timed(
                    Units(units.physical_offsets[:1], units.record_sizes[:1], units.tags_codes[:1])
                )
            due_times = units.tags_codes.copy()
            due_times[rows] = [0 if time is None else time + self._delay_ms for time in times]
            units = units._replace(tags_codes=due_times)
        self.head_due_ms = int(units.tags_codes[0]) if len(units.tags_codes) else None
        return units

    async def _wait_for_message(self) -> None:
        self.head_due_ms, self.waiting_count = None, 0
        try:
            await self._polls.wait(SCHEDULE_TOPIC, self.queue_id, self._look_interval_s)
        except (WindowFull, Stopping):
            await asyncio.sleep(self._look_interval_s)

    async def _wait_ms(self, units: Units) -> int:
        """Return how long the head still waits. Its store time is read once: the clock may be behind the log's."""
        due_ms, queue_offset = int(units.tags_codes[0]), self._offsets.next_of(self.queue_id)
        if due_ms > self._time.now_ms() and self._seen_queue_offset != queue_offset:
            (seen_ms,) = await store_times_ms(self._records, units.physical_offsets[:1], units.record_sizes[:1])
            if seen_ms is None:
                return 0  # gone from the log: nothing to wait for
            self._time.saw(seen_ms)
            self._seen_queue_offset = queue_offset
        return due_ms - self._time.now_ms()

    async def _deliver(self, units: Units, history_count: int) -> None:
        """Append the due messages of the units, at least the head, and save the progress.

        Nothing happens if the log's history has changed since the units were read.
        """
        async with self._batch_lock:
            start = self._offsets.next_of(self.queue_id)
            block = await self._read(units, self._due_count(units))
            if history_count != self._offsets.history_count:
                return
            waiting: list[Record] = []
            for index, size in enumerate(block.sizes.tolist()):
                if size:
                    waiting.append(self._message(block, index, start + index))
                else:
                    self.lost_count += 1
                    _log.error("%s: the message of queue offset %d is gone from the log", self.loop.name, start + index)
            await self._append(waiting, start + len(block.sizes))
            self.waiting_count -= self._offsets.next_of(self.queue_id) - start
            await self._offsets.save()

    async def _read(self, units: Units, count: int) -> RecordBlock:
        """Read records of the first units, or of the head alone if a record is damaged: it must not delay others."""
        try:
            return await self._records.read(units.physical_offsets[:count], units.record_sizes[:count])
        except (NotARecord, RecordDamaged):
            if count == 1:
                raise
            return await self._records.read(units.physical_offsets[:1], units.record_sizes[:1])

    def _due_count(self, units: Units) -> int:
        """Return the number of units for a batch: due units in order, limited by number and size."""
        late = np.flatnonzero(units.tags_codes > self._time.now_ms())
        ends = np.cumsum(units.record_sizes, dtype=np.int64)
        fitting = int(np.searchsorted(ends, BATCH_SIZE_BYTES_MAX, side="right"))
        return max(1, min(fitting, int(late[0]) if len(late) else len(ends)))

    def _message(self, block: RecordBlock, index: int, queue_offset: int) -> Record:
        """Decode a record. Refuse another record: the log's history may have changed since the unit was read."""
        position, size = int(block.positions[index]), int(block.sizes[index])
        try:
            message = record.decode(block.records, position, end=position + size, check_crc=False)
        except FormatError as error:
            raise DependencyUnavailable("commitlog", f"a record that it sent can't be read: {error}") from error
        if (message.topic, message.queue_id, message.queue_offset) != (SCHEDULE_TOPIC, self.queue_id, queue_offset):
            raise DependencyUnavailable("commitlog", f"another record is at physical offset {message.physical_offset}")
        return message

    async def _append(self, waiting: list[Record], end: int) -> None:
        """Append these messages, then continue at `end`. If a message is refused, messages before it are appended."""
        due: list[Record] = []
        for record_waiting in waiting:
            try:
                message = due_message.delivered(record_waiting)
            except Undeliverable:
                if not due:
                    raise
                end = record_waiting.queue_offset
                break
            if message.topic == due_message.HALF_TOPIC:  # a broken transaction, dropped as in RocketMQ
                _log.error("%s: dropping the half message of queue offset %d", self.loop.name, message.queue_offset)
            else:
                due.append(message)
        try:
            await self._send(due, end)
        except AppendRefused as refusal:
            refused = refusal.message_index
            if refusal.reason == BATCH_TOO_LARGE and len(due) > 1:
                self._batch_count_max = len(due) // 2
            elif refused > 0:
                await self._send(due[:refused], due[refused].queue_offset)
            elif refused == 0 and refusal.reason == QUEUE_GONE:
                await self._send(due[:1], due[0].queue_offset + 1, names_queue=False)
            else:
                raise

    async def _send(self, messages: list[Record], end: int, *, names_queue: bool = True) -> None:
        if not messages:
            self._offsets.step_over(self.queue_id, end)
            return
        history_count = self._offsets.history_count
        failpoint("delay.before_append")
        state = self._shared_state.batch(self.queue_id, end)
        appended = await self._sink.append(messages, names_queue=names_queue, state=state)
        failpoint("delay.after_append")
        self.delivered_count += len(messages)
        if history_count == self._offsets.history_count:
            if state is not None:
                self._shared_state.delivered(state)
            self._offsets.delivered(
                self.queue_id,
                end,
                end_physical_offset=appended.end_physical_offset,
                is_on_disk=appended.is_on_disk and state is None,
            )
