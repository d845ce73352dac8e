# SPDX-License-Identifier: Apache-2.0
"""FilterLoop: gives each finished index file its filter, stored or new, while the service runs.

Invariants: files are read and written in worker threads, a single one at a time, and at most one filter is made in a
round; a file without a filter is searched as before. A filter that a search found damaged is made again. The filter of
a file that was dropped meanwhile is removed.
Callers: the event loop's thread.
"""

import asyncio
import logging

from libs.machine.loop import SupervisedLoop
from libs.machine.uninterrupted import uninterrupted
from libs.segments.errors import IndexDamaged, StoreError
from services.indexer.engine.tables.index import IndexTable
from services.indexer.engine.tables.index_file import IndexFile
from services.indexer.engine.tables.index_filters import FilterInMaking

RETRY_MS_MIN, RETRY_MS_MAX = 30_000, 600_000
"""Waits after a failure, such as a full disk: another attempt reads the whole index file again."""

_log = logging.getLogger(__name__)


class FilterLoop:
    """The loop of an Indexer that makes filters."""

    def __init__(self, index: IndexTable, *, interval_ms: int) -> None:
        self.made_count = 0
        """Filters that were made since the start."""
        self.filter_count = 0
        """Index files whose filter is in use, as of the last round."""
        self._index = index
        self._unfit: set[str] = set()
        """Names of index files that are damaged. They are searched without a filter."""
        self._is_swept = self._is_stopping = False
        self._working = asyncio.Lock()
        self._loop = SupervisedLoop(
            "filter loop",
            self._round,
            interval_ms=interval_ms,
            backoff_ms_min=RETRY_MS_MIN,
            backoff_ms_max=RETRY_MS_MAX,
            expected_errors=(StoreError,),
        )

    def start(self) -> None:
        """Begin the rounds."""
        self._loop.start()

    async def stop(self) -> None:
        """End the rounds, and wait for the thread of the current round."""
        self._is_stopping = True
        await self._loop.stop()
        async with self._working:
            pass

    async def _round(self) -> None:
        await uninterrupted(self.give())
        self.filter_count = self._index.filter_count

    async def give(self) -> None:
        """Give finished files their stored filters, and at most one file a new filter. Raises StoreError, OSError."""
        async with self._working:
            if not self._is_swept:
                await asyncio.to_thread(self._index.filters.remove_others, self._index.names)
                self._is_swept = True
            for file in self._index.without_filter():
                if self._is_stopping or (file.name not in self._unfit and await self._give(file)):
                    return

    async def _give(self, file: IndexFile) -> bool:
        """Give a file a filter. Returns whether it was a new filter, or none because the file is damaged."""
        try:
            if file.searched.is_filter_damaged:
                _log.warning("the filter of index file %s is damaged: making it again", file.name)
                await asyncio.to_thread(self._index.filters.remove, file.name)
            mapped = await asyncio.to_thread(self._index.filters.open, file)
            is_new = mapped is None
            if mapped is None:
                await self._make(file)
                mapped = await asyncio.to_thread(self._index.filters.open, file)
        except Exception as error:
            if not self._index.has(file):
                return True  # it was closed meanwhile
            if not isinstance(error, IndexDamaged):
                raise
            self._unfit.add(file.name)
            _log.error("index file %s gets no filter: %s", file.name, error)
            return True
        if mapped is not None and self._index.has(file):
            file.use_filter(mapped)
        elif mapped is not None:
            mapped.close()
        return is_new

    async def _make(self, file: IndexFile) -> None:
        filters, making = self._index.filters, await asyncio.to_thread(FilterInMaking, file)
        while not await asyncio.to_thread(making.step):
            if self._is_stopping or not self._index.has(file):
                return
        await asyncio.to_thread(filters.write, file.name, making.data, spared_bytes=self._index.file_size_bytes)
        if self._index.has(file):
            self.made_count += 1
        else:
            await asyncio.to_thread(filters.remove, file.name)
