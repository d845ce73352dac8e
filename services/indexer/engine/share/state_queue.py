# SPDX-License-Identifier: Apache-2.0
"""StateQueue: reads the records of rmq_sys_reput_state, in order, as they are indexed.

Invariants: a record is passed to `on_record` once, in the order of the queue, with its physical offset. Records that
were read while the log's history changed are dropped. At a record that can't be decoded, because a newer version wrote
it, reading stops: `unreadable` has the reason. Below `skip_below` such a record is skipped instead.
Callers: the event loop's thread.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from libs.formats.errors import FormatError, NewerVersion
from libs.formats.records import record
from libs.formats.records.state_record import StateRecord
from libs.formats.state.system_topics import STATE_QUEUE_ID, STATE_TOPIC
from libs.machine.loop import SupervisedLoop
from libs.requests.errors import DependencyUnavailable, RecordDamaged, Stopping, WindowFull
from libs.segments.errors import StoreError
from services.indexer.engine.follow.long_poll import LongPolls
from services.indexer.engine.log.source import RecordBlock, RecordSource
from services.indexer.engine.tables.queue import ConsumeQueue
from services.indexer.engine.tables.queues import ConsumeQueueTable
from services.indexer.errors import NotARecord

READ_COUNT = 64
LOOK_INTERVAL_S = 1.0

_log = logging.getLogger(__name__)


class StateQueue:
    """The reader of the state queue. `loop` runs it. `on_gap` is called when unread records are gone."""

    def __init__(
        self,
        queues: ConsumeQueueTable,
        polls: LongPolls,
        records: RecordSource,
        *,
        on_record: Callable[[StateRecord, int], Awaitable[None]],
        on_gap: Callable[[], None],
        skip_below: int = 0,
    ) -> None:
        self.next_queue_offset = 0
        self.unreadable = ""
        """The record that can't be decoded, and the reason. Empty while all records can be decoded."""
        self._skip_below = skip_below
        self._queues = queues
        self._polls = polls
        self._records = records
        self._on_record = on_record
        self._on_gap = on_gap
        self._restart_count = 0
        self.loop = SupervisedLoop(
            "shared state",
            self._step,
            expected_errors=(DependencyUnavailable, RecordDamaged, NotARecord, StoreError),
        )

    @property
    def is_level(self) -> bool:
        """Whether all indexed records were read."""
        queue = self._queue()
        return queue is None or self.next_queue_offset >= queue.max_queue_offset

    def restart(self, queue_offset: int = 0) -> None:
        """Continue at this queue offset. At 0 all remaining records are read."""
        self.next_queue_offset = queue_offset
        self.unreadable = ""
        self._restart_count += 1

    def _queue(self) -> ConsumeQueue | None:
        return self._queues.find(STATE_TOPIC, STATE_QUEUE_ID)

    async def _step(self) -> None:
        """Read some records, or wait for the next record."""
        queue = self._queue()
        if queue is None or self.unreadable:
            await asyncio.sleep(LOOK_INTERVAL_S)
            return
        if self.next_queue_offset >= queue.max_queue_offset:
            await self._wait()
            return
        if self.next_queue_offset < queue.min_queue_offset:
            self._on_gap()
            self.next_queue_offset = queue.min_queue_offset
        restart_count, start = self._restart_count, self.next_queue_offset
        units = queue.read(start, READ_COUNT)
        block = await self._records.read(units.physical_offsets, units.record_sizes)
        if restart_count != self._restart_count:
            return
        for index, size in enumerate(block.sizes.tolist()):
            if size:
                await self._give(block, index, start + index)
            if restart_count != self._restart_count or self.unreadable:
                return
            self.next_queue_offset = start + index + 1

    async def _give(self, block: RecordBlock, index: int, queue_offset: int) -> None:
        position, size = int(block.positions[index]), int(block.sizes[index])
        try:
            stored = record.decode(block.records, position, end=position + size, check_crc=False)
            if (stored.topic, stored.queue_offset) != (STATE_TOPIC, queue_offset):
                reason = f"another record is at physical offset {stored.physical_offset}"
                raise DependencyUnavailable("commitlog", reason)
            shared = StateRecord.decode(stored.body)
        except (FormatError, NewerVersion) as error:
            reason = f"the record of {STATE_TOPIC} at queue offset {queue_offset} can't be read: {error}"
            if queue_offset < self._skip_below:
                _log.error("%s: it is skipped", reason)
                return
            self.unreadable = (
                f"{reason}; consumer offsets that it tells are unknown here; the setting shared_state_skip_below = "
                f"{queue_offset + 1} accepts that"
            )
            _log.error("%s", self.unreadable)
        else:
            await self._on_record(shared, stored.physical_offset)

    async def _wait(self) -> None:
        try:
            await self._polls.wait(STATE_TOPIC, STATE_QUEUE_ID, LOOK_INTERVAL_S)
        except (WindowFull, Stopping):
            await asyncio.sleep(LOOK_INTERVAL_S)
