# SPDX-License-Identifier: Apache-2.0
"""An Indexer over a ComputedLog, with all of the log entered."""

import dataclasses
from typing import Any

from libs.machine.fs import PAGE_SIZE_BYTES
from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs
from services.indexer.config import IndexerConfig
from services.indexer.engine.build import build
from services.indexer.engine.indexer import Indexer
from tests.cost.computed_log import ComputedLog
from tests.cost.counting_fs import CountingFs
from tests.support.indexer import DATA_DIR

QUIET_MS = 3_600_000
SMALL = IndexerConfig(
    data_dir=DATA_DIR,
    queue_file_size_bytes=20 * 1024,
    index_slot_count=1 << 17,
    index_entry_capacity=1 << 17,
    flush_interval_ms=QUIET_MS,
    consumer_offset_interval_ms=QUIET_MS,
    disk_ballast_bytes=0,
)
"""Room for all keys of a test in a single index file, and no background work."""


class IndexedStore:
    """A disk, a log, and the Indexers that work on them in turn."""

    def __init__(self, log: ComputedLog, **config: Any) -> None:
        self.log = log
        self.disk = MemoryFs()
        self.fs = CountingFs(self.disk)
        self.config = dataclasses.replace(SMALL, **config)
        self.clock = ManualClock()

    def make(self) -> Indexer:
        """An Indexer that is not open."""
        return build(
            self.config, self.fs, self.clock, source=self.log, records=self.log, on_failure=self.log.failures.append
        )

    async def filled(self) -> Indexer:
        """An Indexer that has entered the whole log and follows nothing."""
        indexer = self.make()
        indexer.open()
        await self.catch_up(indexer)
        return indexer

    def buffers(self, directory: str) -> list[memoryview]:
        """The bytes of the files in a directory of the indexes, as they are mapped, without small files."""
        path = DATA_DIR / directory
        files = [self.disk.file(path / name) for name in sorted(self.disk.list(path))]
        return [memoryview(file.data) for file in files if len(file.data) > 2 * PAGE_SIZE_BYTES]

    async def catch_up(self, indexer: Indexer) -> None:
        """Enter the records that the log has more."""
        for step in self.log.steps(indexer.indexes.reached.indexed_physical_offset // self.log.record_size_bytes):
            await indexer.follow.reput.apply(step)
        indexer.follow.completeness.reach(indexer.indexes.reached.indexed_physical_offset, is_end=True)


async def indexed(log: ComputedLog, **config: Any) -> Indexer:
    """See `IndexedStore.filled`, for a test that needs nothing else."""
    return await IndexedStore(log, **config).filled()
