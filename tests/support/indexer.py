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
from services.indexer.engine.answer.query import KeyQuery
from services.indexer.engine.build import NO_SINK, build
from services.indexer.engine.indexer import Indexer
from services.indexer.engine.log.source import LogSink
from services.indexer.engine.upkeep.queue_removal import RemovedQueues
from tests.support.fake_log import FakeLog
from tests.support.patience import eventually

DATA_DIR = Path("/data")
COMMIT_LOG = DATA_DIR / "commitlog"
SEGMENT_SIZE_BYTES = 1 << 12
PROGRESS = DATA_DIR / "reput" / "index_progress"
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


def removed_names(removed: RemovedQueues) -> list[tuple[str, int]]:
    """Topic and queue id of the removed queues."""
    return [(end.topic, end.queue_id) for end in removed.ends]


def derived(fs: MemoryFs, room: str) -> dict[str, bytes]:
    """Return the files of a room of the store with their bytes."""
    return {name: data for name, data in files(fs).items() if name.startswith(room)}


async def assert_complete(fs: MemoryFs, log: FakeLog) -> None:
    """The queues' files equal a clean build's, and every record is found by its key exactly once."""
    async with running(log, fs) as indexer:
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
        found = await indexer.answers.queries.by_key(KeyQuery("T", "all"), page_size=1000, page_token="")
        assert [view.physical_offset for view in found.found.views()] == [
            made.physical_offset for made in reversed(log.records)
        ]
    clean = MemoryFs()
    feed(make_indexer(log, clean), log)
    assert derived(fs, "consumequeue") == derived(clean, "consumequeue")
