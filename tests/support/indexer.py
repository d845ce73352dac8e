# SPDX-License-Identifier: Apache-2.0
"""An Indexer engine over MemoryFs and a FakeLog, opened and fed step by step or by its own loop."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

from libs.formats.store_layout import file_name
from libs.machine.fs import Fs
from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs
from services.indexer.config import IndexerConfig
from services.indexer.engine.build import NO_SINK, build
from services.indexer.engine.indexer import Indexer
from services.indexer.engine.log.source import LogSink
from tests.support.fake_log import FakeLog

DATA_DIR = Path("/data")
COMMIT_LOG = DATA_DIR / "commitlog"
SEGMENT_SIZE_BYTES = 1 << 12
SMALL = IndexerConfig(
    data_dir=DATA_DIR,
    queue_file_size_bytes=20 * 16,
    index_slot_count=16,
    index_entry_capacity=32,
    reconnect_ms_max=100,
    flush_interval_ms=20,
    disk_ballast_bytes=0,
)


def make_indexer(
    log: FakeLog,
    fs: Fs | None = None,
    config: IndexerConfig = SMALL,
    clock: ManualClock | None = None,
    sink: LogSink = NO_SINK,
) -> Indexer:
    """Return an Indexer that is recovered and follows no log yet. With a sink it shares its state."""
    indexer = build(
        config,
        fs or MemoryFs(),
        clock or ManualClock(),
        source=log,
        records=log,
        on_failure=log.failures.append,
        sink=sink,
    )
    indexer.open()
    return indexer


def write_log(log: FakeLog, fs: Fs, directory: Path = COMMIT_LOG) -> None:
    """Write the log as files, with a prepared segment behind the last."""
    fs.make_directory(directory)
    size = log.segment_size_bytes
    for base in range(log.min_physical_offset - log.min_physical_offset % size, len(log.data) + size, size):
        mapped = fs.create_mapped(directory / file_name(base), size)
        part = log.data[base : base + size]
        mapped.buffer[: len(part)] = part
        mapped.sync()


def feed(indexer: Indexer, log: FakeLog, *, record_count_max: int = 8_192, end: int | None = None) -> None:
    """Index all records of the log that are not indexed yet."""
    for batch in log.batches(
        indexer.indexes.reached.indexed_physical_offset, record_count_max=record_count_max, end=end
    ):
        indexer.indexes.apply(batch)
    indexer.follow.completeness.reach(indexer.indexes.reached.indexed_physical_offset, is_end=end is None)


@contextlib.asynccontextmanager
async def running(
    log: FakeLog,
    fs: MemoryFs | None = None,
    config: IndexerConfig = SMALL,
    clock: ManualClock | None = None,
    sink: LogSink = NO_SINK,
) -> AsyncIterator[Indexer]:
    """An Indexer that follows the log by itself, and is stopped cleanly in the end."""
    indexer = make_indexer(log, fs, config, clock, sink)
    indexer.start()
    try:
        yield indexer
    finally:
        indexer.drain()
        await indexer.close()


def files(fs: MemoryFs, directory: Path = DATA_DIR) -> dict[str, bytes]:
    """Return all files below a directory with their bytes."""
    found: dict[str, bytes] = {}
    for name in fs.list(directory):
        path = directory / name
        found.update(files(fs, path) if fs.is_directory(path) else {str(path.relative_to(DATA_DIR)): fs.read(path)})
    return found
