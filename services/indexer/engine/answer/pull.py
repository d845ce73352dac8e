# SPDX-License-Identifier: Apache-2.0
"""Pull: returns messages of a queue from a queue offset on, with RocketMQ's statuses, and waits for the first message.

Invariants: next_queue_offset is past all skipped messages, and never past a message that passes and was not returned;
the first message always fits, however large; an answer ends before a record that can't be read, and an answer that
would begin with it fails; a scan reads a bounded number of units, and with a filter of properties, for which records
must be read, a bounded number of bytes.
Callers: the event loop's thread. Rules: DefaultMessageStore.getMessage of RocketMQ 5.3; unlike there, tags are compared
as text here, so the client need not do it.
"""

import asyncio
import enum

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from libs.filters.property_filter import EVERYTHING, PropertyFilter
from libs.formats.limits import READ_COUNT_MAX
from services.indexer.engine.answer.damage import UNREADABLE
from services.indexer.engine.answer.pulled import Pulled
from services.indexer.engine.answer.tags import TagFilter
from services.indexer.engine.answer.where import passing
from services.indexer.engine.follow.live_end import LiveEnd
from services.indexer.engine.follow.long_poll import LongPolls
from services.indexer.engine.log.source import NO_RECORDS, RecordBlock, RecordSource
from services.indexer.engine.tables.queue import ConsumeQueue
from services.indexer.engine.tables.queues import ConsumeQueueTable
from services.indexer.engine.tables.unit_scan import Units

SCAN_UNIT_COUNT_MIN = 800
"""Units that a pull reads, at least: maxFilterMessageSize of 16,000 bytes."""

FILTERED_UNIT_COUNT, FILTERED_SIZE_BYTES = 8_192, 8 << 20
"""Units, and bytes of records, that a pull with a filter of properties reads: about ten milliseconds, in steps."""

FILTERED_READ_SIZE_BYTES = 1 << 20
"""Bytes of records that a pull with a filter of properties reads at once, at most."""


class PullStatus(enum.IntEnum):
    """The result of a pull, with the numbers of the protocol."""

    FOUND = 1
    NO_MATCHED_MESSAGE = 2
    MESSAGE_WAS_REMOVING = 3
    NO_MATCHED_LOGIC_QUEUE = 4
    NO_MESSAGE_IN_QUEUE = 5
    OFFSET_TOO_SMALL = 6
    OFFSET_OVERFLOW_ONE = 7
    OFFSET_OVERFLOW_BADLY = 8
    OFFSET_FOUND_NULL = 9


WAITABLE = frozenset(
    {PullStatus.NO_MATCHED_LOGIC_QUEUE, PullStatus.NO_MESSAGE_IN_QUEUE, PullStatus.OFFSET_OVERFLOW_ONE}
)
"""Statuses for which no message exists yet, provided that the offset is the end of the queue."""


class PullQuery(Struct, frozen=True):
    """The arguments of a pull: checked values."""

    topic: str
    queue_id: int
    queue_offset: int
    message_count_max: int
    size_bytes_max: int
    tags: TagFilter
    where: PropertyFilter = EVERYTHING


class PullResult(Struct, frozen=True):
    """The result of a pull. The minimum and the maximum are the queue's bounds when it was read."""

    status: PullStatus
    found: RecordBlock
    next_queue_offset: int
    min_queue_offset: int = 0
    max_queue_offset: int = 0


class Puller:
    """The engine that answers pulls from the queues and the log's records."""

    def __init__(
        self, queues: ConsumeQueueTable, records: RecordSource, polls: LongPolls, live: LiveEnd, pulled: Pulled
    ) -> None:
        self._queues = queues
        self._pulled = pulled
        self._records = records
        self._polls = polls
        self._live = live

    async def pull(self, query: PullQuery, *, wait_s: float) -> PullResult:
        """Read, and wait up to `wait_s` for the first message if the offset is the end of the queue.

        Messages that arrive meanwhile and do not pass are skipped. Raises WindowFull, Stopping and the errors of
        RecordSource. Raises DependencyUnavailable also instead of a wait, or at its end, while the log is silent.
        """
        time_s = asyncio.get_running_loop().time
        deadline_s = time_s() + wait_s
        is_stepped = False
        while True:
            self._polls.check_open()
            result = await self._pull_once(query)
            if wait_s > 0 and (self._is_at_end(query, result) or result.status is PullStatus.OFFSET_OVERFLOW_BADLY):
                self._live.check()
            left_s = deadline_s - time_s()
            if left_s <= 0 or not self._is_at_end(query, result):
                break
            if result.status is PullStatus.NO_MATCHED_MESSAGE:
                is_stepped = True
                query = replace(query, queue_offset=result.next_queue_offset)
            if self._end(query) == query.queue_offset:
                await self._polls.wait(query.topic, query.queue_id, left_s)
        if count := len(sizes := result.found.sizes):
            self._pulled.count(query.topic, count, int(sizes[0] if count == 1 else sizes.sum()))
        if is_stepped and result.status is PullStatus.OFFSET_OVERFLOW_ONE:
            return replace(result, status=PullStatus.NO_MATCHED_MESSAGE)
        return result

    def _end(self, query: PullQuery) -> int:
        queue = self._queues.find(query.topic, query.queue_id)
        return 0 if queue is None else queue.max_queue_offset

    def _is_at_end(self, query: PullQuery, result: PullResult) -> bool:
        if result.status is PullStatus.NO_MATCHED_MESSAGE:
            return result.next_queue_offset == result.max_queue_offset
        return result.status in WAITABLE and query.queue_offset == result.max_queue_offset

    async def _pull_once(self, query: PullQuery) -> PullResult:
        queue = self._queues.find(query.topic, query.queue_id)
        if queue is None:
            return PullResult(PullStatus.NO_MATCHED_LOGIC_QUEUE, NO_RECORDS, 0)
        low, high, start = queue.min_queue_offset, queue.max_queue_offset, query.queue_offset
        status, next_queue_offset = PullStatus.FOUND, start
        if high == 0:
            status, next_queue_offset = PullStatus.NO_MESSAGE_IN_QUEUE, 0
        elif start < low:
            status, next_queue_offset = PullStatus.OFFSET_TOO_SMALL, low
        elif start == high:
            status = PullStatus.OFFSET_OVERFLOW_ONE
        elif start > high:
            status, next_queue_offset = PullStatus.OFFSET_OVERFLOW_BADLY, high
        if status is not PullStatus.FOUND:
            return PullResult(status, NO_RECORDS, next_queue_offset, low, high)
        if query.tags.passes_all and query.where.passes_all:
            found = await self._next(query, queue)
            if found is not None:
                return found
        unit_count = SCAN_UNIT_COUNT_MIN if query.where.passes_all else FILTERED_UNIT_COUNT
        units = queue.read(start, max(unit_count, query.message_count_max))
        if not len(units.physical_offsets):
            next_queue_offset = queue.next_file_queue_offset(start)
            return PullResult(PullStatus.OFFSET_FOUND_NULL, NO_RECORDS, next_queue_offset, low, high)
        return await self._scan(query, queue, units)

    async def _next(self, query: PullQuery, queue: ConsumeQueue) -> PullResult | None:
        """Read the next messages of a query without filters. None if a record is gone: then a scan decides."""
        low, high, start = queue.min_queue_offset, queue.max_queue_offset, query.queue_offset
        units = queue.read(start, min(query.message_count_max, READ_COUNT_MAX))
        if not len(units.physical_offsets):
            return None
        count = _fitting_count(units.record_sizes, query)
        block = await self._records.read(units.physical_offsets[:count], units.record_sizes[:count])
        if block.sizes.min() <= 0:
            return None
        return PullResult(PullStatus.FOUND, block, start + len(block.sizes), low, high)

    async def _scan(self, query: PullQuery, queue: ConsumeQueue, units: Units) -> PullResult:
        """Read units up to the first records that pass."""
        low, high, start = queue.min_queue_offset, queue.max_queue_offset, query.queue_offset
        total = len(units.physical_offsets)
        rows = np.flatnonzero(query.tags.may_pass(units.tags_codes))
        last_gone, read_count, read_bytes = -1, 0, 0
        while len(rows) and (query.where.passes_all or read_bytes < FILTERED_SIZE_BYTES):
            batch = rows[: _batch_count(units.record_sizes[rows], query, read_count)]
            try:
                block = await self._records.read(units.physical_offsets[batch], units.record_sizes[batch])
            except UNREADABLE:
                if not rows[0]:
                    raise
                break  # the records before it were read, or need not be
            batch = batch[: len(block.sizes)]
            read_count, read_bytes = read_count + len(batch), read_bytes + int(block.sizes.sum(dtype=np.int64))
            gone = batch[block.sizes == 0]
            last_gone = max(last_gone, int(gone[-1])) if len(gone) else last_gone
            found = await passing(query.where, block, _passing(query.tags, block))
            rows = rows[len(batch) :]
            # Records below the oldest kept byte are gone too: no need to request them.
            is_kept = units.physical_offsets[rows] >= block.min_physical_offset
            if not is_kept.all():
                last_gone = max(last_gone, int(rows[~is_kept][-1]))
                rows = rows[is_kept]
            if len(found):
                count = _fitting_count(block.sizes[found], query)
                next_row = batch[found[count]] if count < len(found) else rows[0] if len(rows) else total
                return PullResult(PullStatus.FOUND, block.select(found[:count]), start + int(next_row), low, high)
        stepped_count = int(rows[0]) if len(rows) else total
        is_gone = last_gone == stepped_count - 1  # the last failure decides, as in RocketMQ
        status = PullStatus.MESSAGE_WAS_REMOVING if is_gone else PullStatus.NO_MATCHED_MESSAGE
        return PullResult(status, NO_RECORDS, start + stepped_count, low, high)


def _batch_count(sizes: NDArray[np.int32], query: PullQuery, read_count: int) -> int:
    """Return how many records to read next, at least 1: as many as fit into the answer if all of them pass.

    With a filter of properties it is at least the number of records that were read without a match, within limits.
    """
    count = _fitting_count(sizes, query)
    if query.where.passes_all or count >= read_count:
        return count
    return _count_within(sizes[: min(read_count, READ_COUNT_MAX)], FILTERED_READ_SIZE_BYTES)


def _fitting_count(sizes: NDArray[np.int32], query: PullQuery) -> int:
    """Return how many records, at least 1, fit into the answer."""
    return _count_within(sizes[: min(query.message_count_max, READ_COUNT_MAX)], query.size_bytes_max)


def _count_within(sizes: NDArray[np.int32], size_bytes_max: int) -> int:
    """Return how many of the first records, at least 1, have at most this many bytes together."""
    if len(sizes) == 1:
        return 1
    ends = np.cumsum(sizes, dtype=np.int64)
    return max(1, int(np.searchsorted(ends, size_bytes_max, side="right")))


def _passing(tags: TagFilter, block: RecordBlock) -> list[int] | NDArray[np.intp]:
    """Return the numbers of the records of a block that are kept and whose tag passes as text."""
    kept = np.flatnonzero(block.sizes)
    if tags.passes_all:
        return kept
    return [index for index in kept.tolist() if tags.passes(block.view(index).tag)]
