# SPDX-License-Identifier: Apache-2.0
"""Queries by key, by time and by id. Each returns a page. A page may be short, and its token says where to continue.

Invariants: a key is compared with the stored record, never only by hash; a record is returned only once, even if the
index holds it several times; pages of a query neither overlap nor miss records that were indexed when the query began.
Callers: the event loop's thread. A step reads a limited number of entries, even if many keys have the same hash, and
other tasks run between steps. Memory: a page and an answer of the log.
Rules: IndexService.queryOffset and DefaultMessageStore.queryMessage of RocketMQ 5.3, with exact bounds.
"""

import asyncio
from typing import Annotated, NamedTuple

import msgspec
import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from libs.filters.property_filter import EVERYTHING, PropertyFilter
from libs.formats.errors import FormatError
from libs.formats.indexes.index_file import key_hash, key_text
from libs.formats.limits import INT32_MAX, INT64_MAX
from libs.formats.records.message_id import decode_offset_id
from libs.formats.state.set_apart import BATCH_QUEUE
from libs.kernel.answer.match_cy import matching_records
from libs.requests.errors import BadArgument, RecordDamaged, TopicSetApart
from libs.requests.page_token import decode_token, encode_token
from services.indexer.engine.answer.damage import UNREADABLE
from services.indexer.engine.answer.time_search import first_at_or_after
from services.indexer.engine.answer.where import passing
from services.indexer.engine.log.record_reader import join
from services.indexer.engine.log.record_view import RecordView
from services.indexer.engine.log.source import RecordBlock, RecordSource
from services.indexer.engine.tables.index import IndexCursor, IndexTable
from services.indexer.engine.tables.queue import ConsumeQueue
from services.indexer.engine.tables.queues import ConsumeQueueTable
from services.indexer.errors import LogEndsEarlier, MessageNotFound, NotARecord

CANDIDATE_COUNT = 256
"""Records that a step of a key query reads at most."""

STEP_COUNT_MAX = 64
"""Steps of a page of a key query: many collisions end a page early, so that they do not block the server."""

FILTERED_COUNT_MAX = 16_384
"""Messages that a page of a time query with a filter of properties reads: a page ends early after this number."""

STEP_SIZE_BYTES_MAX = 1 << 20
"""Bytes of records that are compared with a key before other tasks run: a record may have thousands of keys."""
STEP_COUNT = 32
"""Records of larger blocks that are compared before other tasks run; the properties of each have 32 KiB at most."""

TIME_MIN_MS, TIME_MAX_MS = 0, 2**62


class _KeyPosition(NamedTuple):
    """The place where a key query continues: below a physical offset, and from an entry of a named index file on."""

    below_physical_offset: int = INT64_MAX
    file: str = ""
    entry: Annotated[int, msgspec.Meta(ge=0, le=INT32_MAX)] = 0


class KeyQuery(Struct, frozen=True):
    """A topic's messages with a key, stored in [start, end). A page token is bound to all of these values."""

    topic: str
    key: str
    start_time_ms: int = TIME_MIN_MS
    end_time_ms: int = TIME_MAX_MS
    is_unique_id: bool = False
    """Whether the key must be the message's unique id; otherwise it may be any of its keys."""
    where: PropertyFilter = EVERYTHING

    @property
    def arguments(self) -> tuple[object, ...]:
        """The values that a page token is bound to."""
        times = self.start_time_ms, self.end_time_ms
        return (self.topic, self.key, *times, self.is_unique_id, self.where.text)


class TimeQuery(Struct, frozen=True):
    """Messages of a topic's queue, or of all of its queues, stored in [start, end). As to tokens, see KeyQuery."""

    topic: str
    queue_id: int | None
    start_time_ms: int = TIME_MIN_MS
    end_time_ms: int = TIME_MAX_MS
    where: PropertyFilter = EVERYTHING

    @property
    def arguments(self) -> tuple[object, ...]:
        """The values that a page token is bound to."""
        return (self.topic, self.queue_id, self.start_time_ms, self.end_time_ms, self.where.text)


class Page(Struct, frozen=True):
    """Messages, and the token of the next page. The token is empty at the end."""

    found: RecordBlock
    next_page_token: str = ""


class PageBuilder:
    """The builder of a page of up to `count_max` records and `size_bytes_max` bytes. The first record always fits."""

    def __init__(self, count_max: int, size_bytes_max: int) -> None:
        self.room_count = count_max
        self.is_full = False
        """Whether a record was refused, or enough records were read: the page has a successor."""
        self.looked_count = 0
        """Records that were read for the page."""
        self._room_bytes = size_bytes_max
        self._chosen: list[tuple[RecordBlock, list[int]]] = []

    def put(self, block: RecordBlock, index: int) -> bool:
        """Add a record of a block. Returns False if it does not fit any more."""
        size = int(block.sizes[index])
        if self.room_count == 0 or (self._chosen and size > self._room_bytes):
            self.is_full = True
            return False
        if not self._chosen or self._chosen[-1][0] is not block:
            self._chosen.append((block, []))
        self._chosen[-1][1].append(index)
        self.room_count -= 1
        self._room_bytes -= size
        return True

    @property
    def is_empty(self) -> bool:
        """Whether the page has no record: a page may end before a record that can't be read, but not begin there."""
        return not self._chosen

    def found(self) -> RecordBlock:
        """Return the collected records."""
        return join([block.select(indexes) for block, indexes in self._chosen])


class QueryEngine:
    """The engine that answers queries from the tables and the log's records."""

    def __init__(
        self, queues: ConsumeQueueTable, index: IndexTable, records: RecordSource, *, page_size_bytes_max: int
    ) -> None:
        self._queues = queues
        self._index = index
        self._records = records
        self.page_size_bytes_max = page_size_bytes_max

    async def by_key(self, query: KeyQuery, *, page_size: int, page_token: str) -> Page:
        """Return the messages with the key, newest first. Raises BadPageToken and the errors of RecordSource."""
        below, file, entry = decode_token("key", query.arguments, page_token, _KeyPosition) or _KeyPosition()
        cursor = IndexCursor(file, entry) if file else None
        code = key_hash(key_text(query.topic, query.key))
        page = PageBuilder(page_size, self.page_size_bytes_max)
        kept_from = self._queues.kept_from(query.topic)
        for step in range(STEP_COUNT_MAX):
            if step:
                await asyncio.sleep(0)
            candidates = self._index.search(
                code,
                start_time_ms=query.start_time_ms,
                end_time_ms=query.end_time_ms,
                below_physical_offset=below,
                cursor=cursor,
                # The limit grows with each step, because the candidates before did not match.
                limit=min(CANDIDATE_COUNT, max(page.room_count + 1, 2 << step)),
            )
            offsets = candidates.physical_offsets
            below = await self._fill(query, offsets[offsets >= kept_from], page, below)
            if page.is_full:
                break  # the cursor stays: the next page repeats this step, below the records of this page
            cursor = candidates.cursor
            if cursor is None or (len(offsets) and offsets[-1] < kept_from):
                return Page(page.found())
        file, entry = (cursor.file, cursor.entry) if cursor is not None else ("", 0)
        return Page(page.found(), encode_token("key", query.arguments, _KeyPosition(below, file, entry)))

    async def _fill(self, query: KeyQuery, offsets: NDArray[np.int64], page: PageBuilder, below: int) -> int:
        """Put matching records on the page until it is full. Returns the physical offset below which the rest lies."""
        keys, numbers = [query.key.encode()], np.zeros(len(offsets), np.int32)
        while len(offsets):
            try:
                block = await self._records.read(offsets)
            except UNREADABLE:
                if page.is_empty:
                    raise
                page.is_full = True
                return below
            rows = await matching(block, query, keys, numbers[: len(block.sizes)])
            for index in (await passing(query.where, block, rows)).tolist():
                if not page.put(block, index):
                    return int(offsets[index]) + 1
            below = int(offsets[len(block.sizes) - 1])
            offsets = offsets[len(block.sizes) :]
        return below

    async def by_time(self, query: TimeQuery, *, page_size: int, page_token: str) -> Page:
        """Return the messages of the time range by queue id and queue offset. Raises the errors of `by_key`."""
        first_queue_id, resume = decode_token("time", query.arguments, page_token, tuple[int, int]) or (-1, 0)
        page = PageBuilder(page_size, self.page_size_bytes_max)
        queue_ids = [
            queue_id
            for queue_id in self._queues.queue_ids(query.topic)
            if queue_id >= first_queue_id and query.queue_id in (None, queue_id)
        ]
        for number, queue_id in enumerate(queue_ids):
            if number:
                await asyncio.sleep(0)  # there may be many queues with nothing to read
            queue = self._queues.find(query.topic, queue_id)
            if queue is None:  # it was removed meanwhile
                continue
            if queue_id == first_queue_id:
                start = max(resume, queue.min_queue_offset)
            elif query.start_time_ms <= TIME_MIN_MS:
                start = queue.min_queue_offset  # a search would read records without need, perhaps damaged records
            else:
                start = await first_at_or_after(queue, self._records, query.start_time_ms)
            end = await self._fill_range(query, queue, start, page)
            if page.is_full:
                return Page(page.found(), encode_token("time", query.arguments, (queue_id, end)))
        return Page(page.found())

    async def _fill_range(self, query: TimeQuery, queue: ConsumeQueue, queue_offset: int, page: PageBuilder) -> int:
        """Put a queue's messages on the page until it is full or the range ends. Returns where it stopped."""
        is_filtered = not query.where.passes_all
        while queue_offset < queue.max_queue_offset:
            if is_filtered and page.looked_count >= FILTERED_COUNT_MAX:
                page.is_full = True
                break
            count = CANDIDATE_COUNT if is_filtered else min(CANDIDATE_COUNT, page.room_count + 1)
            units = queue.read(queue_offset, count)
            if not len(units.physical_offsets):  # trimmed meanwhile
                queue_offset = max(queue_offset + 1, queue.min_queue_offset)
                continue
            try:
                block = await self._records.read(units.physical_offsets, units.record_sizes)
            except UNREADABLE:
                if page.is_empty:
                    raise
                page.is_full = True
                return queue_offset
            if page.looked_count:
                await asyncio.sleep(0)
            kept = np.flatnonzero(block.sizes)
            wanted = set((await passing(query.where, block, kept)).tolist())
            # The last record tells whether the range continues: times never run backwards within a queue.
            looked: list[int] = sorted({*wanted, *kept[-1:].tolist()})
            for index in looked:
                time_ms = block.view(index).store_time_ms
                is_early = time_ms < query.start_time_ms or index not in wanted
                if time_ms >= query.end_time_ms or (not is_early and not page.put(block, index)):
                    return queue_offset + index
            queue_offset += len(block.sizes)
            page.looked_count += len(block.sizes)
        return queue_offset

    async def by_offset_id(self, message_id: str) -> RecordBlock:
        """Return the message with an offset message id. Raises BadArgument, MessageNotFound, TopicSetApart.

        Its queue must have the record at this place. Otherwise the index must have it by its first key: it may be of
        an older generation of the queue. The check is needed because a body may hold bytes that look like a record.
        """
        try:
            host, physical_offset = decode_offset_id(message_id)
        except FormatError as error:
            raise BadArgument(error.reason, field="message_id", value=message_id[:100]) from error
        try:
            block = await self._records.read(np.array([physical_offset], np.int64))
        except (NotARecord, LogEndsEarlier):
            raise MessageNotFound(message_id) from None
        if block.sizes[0]:
            view = block.view(0)
            topic = str(view.topic, "utf-8", "replace")
            if view.store_host == host.to_bytes():
                if why := self._queues.set_apart.why(topic) or (BATCH_QUEUE if view.is_batch else ""):
                    raise TopicSetApart(topic, why=why, field="message_id")
                if physical_offset < self._queues.kept_from(topic):
                    raise MessageNotFound(message_id)
                if self._is_queued(view, physical_offset) or await self._is_indexed(view, physical_offset):
                    return block.select([0])
        raise MessageNotFound(message_id)

    def _is_queued(self, view: RecordView, physical_offset: int) -> bool:
        queue = self._queues.find(str(view.topic, "utf-8", "replace"), view.queue_id)
        if queue is None or not queue.min_queue_offset <= view.queue_offset < queue.max_queue_offset:
            return False
        return queue.place_at(view.queue_offset) == (physical_offset, view.shape.size_bytes)

    async def _is_indexed(self, view: RecordView, physical_offset: int) -> bool:
        key = next(iter(view.keys), None)
        if key is None:
            return False
        code = key_hash(key_text(str(view.topic, "utf-8", "replace"), str(key, "utf-8", "replace")))
        cursor: IndexCursor | None = None
        for _ in range(STEP_COUNT_MAX):
            found = self._index.search(
                code,
                start_time_ms=view.store_time_ms,
                end_time_ms=view.store_time_ms + 1,
                below_physical_offset=physical_offset + 1,
                cursor=cursor,
                limit=CANDIDATE_COUNT,
            )
            cursor = found.cursor
            if physical_offset in found.physical_offsets:
                return True
            if cursor is None:
                break
            await asyncio.sleep(0)  # others have their turn
        return False

    async def by_unique_id(self, topic: str, unique_id: str) -> RecordBlock:
        """Return the newest message of a topic with a unique id. Raises MessageNotFound."""
        query, token = KeyQuery(topic, unique_id, is_unique_id=True), ""
        while True:
            page = await self.by_key(query, page_size=1, page_token=token)
            if len(page.found.sizes):
                return page.found
            if not page.next_page_token:
                raise MessageNotFound(unique_id)
            token = page.next_page_token


async def matching(block: RecordBlock, query: KeyQuery, keys: list[bytes], key_numbers: NDArray[np.int32]) -> list[int]:
    """Return the numbers of the records that match the query's other values, each with its own of these keys.

    Other tasks run after STEP_SIZE_BYTES_MAX. Raises RecordDamaged.
    """
    topic, times = query.topic.encode(), (query.start_time_ms, query.end_time_ms)
    count, found = len(block.sizes), list[int]()
    step = max(1, count) if len(block.records) <= STEP_SIZE_BYTES_MAX else STEP_COUNT
    for first in range(0, count, step):
        if first:
            await asyncio.sleep(0)
        part = slice(first, first + step)
        columns = block.positions[part], block.sizes[part]
        try:
            rows = matching_records(block.records, *columns, topic, keys, key_numbers[part], *times, query.is_unique_id)
        except ValueError as error:
            raise RecordDamaged(segment="of an answer", position=0, reason=str(error)) from error
        found += [first + row for row in rows]
    return found
