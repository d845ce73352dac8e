# SPDX-License-Identifier: Apache-2.0
"""Queries for many keys at once: one walk over the index files, and records that are read together.

Invariants: each key has the messages that `QueryEngine.by_key` returns for it as its first page; a key whose records
can't be read has an error of its own, and the other keys have their messages. Keys are answered in their order, until
an answer is full: the rest is asked for again.
A key with many records, a long chain or a doubtful file is queried alone, SINGLE_KEY_COUNT_MAX of them in an answer.
Callers: the event loop's thread. Memory: an answer and an answer of the log.
"""

import asyncio
from collections.abc import AsyncGenerator
from itertools import pairwise

import numpy as np
from msgspec import Struct
from msgspec.structs import replace
from numpy.typing import NDArray

from libs.filters.property_filter import EVERYTHING, PropertyFilter
from libs.requests.errors import ServiceError
from libs.segments.errors import IndexDamaged
from services.indexer.engine.answer.damage import UNREADABLE
from services.indexer.engine.answer.query import (
    TIME_MAX_MS,
    TIME_MIN_MS,
    KeyQuery,
    QueryEngine,
    matching,
)
from services.indexer.engine.answer.where import passing
from services.indexer.engine.log.record_reader import join
from services.indexer.engine.log.source import NO_RECORDS, RecordBlock, RecordSource
from services.indexer.engine.tables.index import IndexTable
from services.indexer.engine.tables.queues import ConsumeQueueTable

KEY_COUNT_OF_A_STEP = 256
"""Keys whose records are read together; other tasks run between steps."""

ROOM = 8
"""Records that a key may have in the index to be read together with others."""

SINGLE_KEY_COUNT_MAX = 64
"""Keys of an answer that are queried alone: each may read as much as a page of its own."""


class KeysQuery(Struct, frozen=True):
    """A topic's messages with any of these keys, stored in [start, end)."""

    topic: str
    keys: tuple[str, ...]
    start_time_ms: int = TIME_MIN_MS
    end_time_ms: int = TIME_MAX_MS
    where: PropertyFilter = EVERYTHING

    def single(self, key: str) -> KeyQuery:
        """Return the query of a single key."""
        return KeyQuery(self.topic, key, self.start_time_ms, self.end_time_ms, where=self.where)


class KeyMatches(Struct):
    """The messages of a key, newest first, and the token with which `by_key` continues; or why they are unknown."""

    found: RecordBlock = NO_RECORDS
    next_page_token: str = ""
    error: ServiceError | IndexDamaged | None = None

    @property
    def is_something(self) -> bool:
        """Whether the key has messages, or may have messages."""
        return bool(len(self.found.sizes) or self.next_page_token or self.error is not None)


class ManyKeysEngine:
    """The engine that answers queries for many keys, from the parts of the QueryEngine."""

    def __init__(
        self, queues: ConsumeQueueTable, index: IndexTable, records: RecordSource, queries: QueryEngine
    ) -> None:
        self._queues = queues
        self._index = index
        self._records = records
        self._queries = queries

    async def by_keys(self, query: KeysQuery, *, page_size: int) -> list[KeyMatches]:
        """Return the first messages of each key, `page_size` at most, for as many of the first keys as fit, at least 1.

        Raises the errors of RecordSource that concern all keys.
        """
        made: list[KeyMatches] = []
        size_bytes = single_count = 0
        for first in range(0, len(query.keys), KEY_COUNT_OF_A_STEP):
            await asyncio.sleep(0)
            keys = query.keys[first : first + KEY_COUNT_OF_A_STEP]
            together = await self._together(query, keys, page_size)
            for key, known in zip(keys, together, strict=False):
                if known is None and single_count == SINGLE_KEY_COUNT_MAX:
                    return made
                single_count += known is None
                matches = await self._alone(query, key, page_size) if known is None else known
                size_bytes += int(matches.found.sizes.sum())
                if made and size_bytes > self._queries.page_size_bytes_max:
                    return made
                made.append(matches)
            if len(together) < len(keys):
                return made
        return made

    async def all_pages(self, query: KeysQuery, *, page_size: int) -> AsyncGenerator[tuple[str, RecordBlock], None]:
        """Yield each key with its messages, newest first, `page_size` at most at a time. Raises the error of a key."""
        keys = query.keys
        while keys:
            found = await self.by_keys(replace(query, keys=keys), page_size=page_size)
            for key, matches in zip(keys, found, strict=False):
                if matches.error is not None:
                    raise matches.error
                yield key, matches.found
                token = matches.next_page_token
                while token:
                    page = await self._queries.by_key(query.single(key), page_size=page_size, page_token=token)
                    yield key, page.found
                    token = page.next_page_token
            keys = keys[len(found) :]

    async def _alone(self, query: KeysQuery, key: str, page_size: int) -> KeyMatches:
        try:
            page = await self._queries.by_key(query.single(key), page_size=page_size, page_token="")
        except (*UNREADABLE, IndexDamaged) as error:
            return KeyMatches(error=error)
        return KeyMatches(page.found, page.next_page_token)

    async def _together(self, query: KeysQuery, keys: tuple[str, ...], page_size: int) -> list[KeyMatches | None]:
        """Return the matches of the first keys, at least 1, and None for a key that must be queried alone.

        It ends before the keys whose records would be more than a page of bytes.
        """
        names = [key.encode() for key in keys]
        offsets, counts = await self._candidates(query, names)
        made = [None if count < 0 else KeyMatches() for count in counts.tolist()]
        numbers = np.repeat(np.arange(len(keys), dtype=np.int32), np.maximum(counts, 0))
        kept = offsets >= self._queues.kept_from(query.topic)
        offsets, numbers = offsets[kept], numbers[kept]
        parts: list[list[RecordBlock]] = [[] for _ in keys]
        read_bytes = 0
        while len(offsets):
            if read_bytes > self._queries.page_size_bytes_max:
                made = made[: numbers[0]] or [None]
                break
            try:
                block = await self._records.read(offsets)
                count = len(block.sizes)
                rows = await matching(block, query.single(""), names, numbers[:count])
                chosen = await passing(query.where, block, rows)
            except UNREADABLE:
                made = [None if number in numbers else known for number, known in enumerate(made)]
                break
            _share(block.select(chosen), numbers[chosen], parts)
            offsets, numbers = offsets[count:], numbers[count:]
            read_bytes += len(block.records)
        for number, known in enumerate(made):
            if known is not None and parts[number]:
                known.found = join(parts[number])
                if len(known.found.sizes) > page_size:
                    made[number] = None
        return made

    async def _candidates(self, query: KeysQuery, names: list[bytes]) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
        """Return the offsets that may have the keys, key by key, and the number of each key, -1 if it is unknown."""
        hashes = self._index.hashes(query.topic, names)
        counts, found, first = np.zeros(len(names), np.int32), np.empty((len(names), ROOM), np.int64), 0
        times = query.start_time_ms, query.end_time_ms
        while first < len(names):
            if first:
                await asyncio.sleep(0)
            first = self._index.search_many(hashes, first, *times, found, counts)
        return found[np.arange(ROOM) < counts[:, None]], counts


def _share(found: RecordBlock, numbers: NDArray[np.int32], parts: list[list[RecordBlock]]) -> None:
    """Give each key its records, which are in the order of the keys."""
    bounds = [0, *(np.flatnonzero(np.diff(numbers)) + 1).tolist(), len(numbers)]
    for first, last in pairwise(bounds):
        if first < last:
            sizes, positions = found.sizes[first:last], found.positions[first:last]
            parts[numbers[first]].append(RecordBlock(found.records, positions, sizes, found.min_physical_offset))
