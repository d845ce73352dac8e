# SPDX-License-Identifier: Apache-2.0
"""The blocks of queue files: few for few messages, in steps for more, always before a unit is written there."""

import asyncio
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from libs.formats.indexes.consume_queue import FILE_SIZE_BYTES, UNIT_SIZE_BYTES
from libs.formats.state.index_progress import IndexProgress
from libs.machine.fs import PAGE_SIZE_BYTES
from libs.machine.posix_fs import PosixFs
from libs.machine.testing.faulty_fs import FaultyFs
from libs.machine.testing.memory_fs import MemoryFs
from libs.segments.errors import StoreFull
from libs.segments.map_budget import MapBudget
from libs.segments.segment import GROWTH_BYTES_MAX
from services.indexer.engine.tables.queue import ConsumeQueue
from services.indexer.engine.tables.queues import ConsumeQueueTable
from services.indexer.engine.tables.unit_memory import MemoryBudget
from tests.support.fake_log import FakeLog
from tests.unit.services.indexer.engine.test_consume_queue import append, columns

UNIT_COUNT = FILE_SIZE_BYTES // UNIT_SIZE_BYTES
FILE_NAME = f"{0:020d}"
SHARED_MEMORY = Path("/dev/shm")
"""Takes a page for every look at a hole."""


@pytest.fixture
def memory_disk() -> Iterator[Path]:
    """A directory on a tmpfs."""
    if not SHARED_MEMORY.is_dir():
        pytest.skip("there is no tmpfs")
    home = Path(tempfile.mkdtemp(dir=SHARED_MEMORY))
    yield home
    shutil.rmtree(home)


def open_queue(fs: PosixFs | MemoryFs | FaultyFs, directory: Path, *, is_clean: bool = True) -> ConsumeQueue:
    return ConsumeQueue(
        fs,
        directory,
        topic="T",
        queue_id=0,
        file_size_bytes=FILE_SIZE_BYTES,
        maps=MapBudget(64),
        memories=MemoryBudget(),
        bound_physical_offset=2**62,
        is_clean=is_clean,
    )


def allocated_bytes(directory: Path) -> int:
    return sum(path.stat().st_blocks * 512 for path in directory.rglob("*") if path.is_file())


def test_a_file_grows_by_steps() -> None:
    """The blocks of a file are its written size and as much again, at most a mebibyte ahead.

    A busy queue reserves blocks about a dozen times for a file.
    """
    asked: list[str] = []
    fs = FaultyFs(MemoryFs(), lambda operation, _path: asked.append(operation))  # type: ignore[func-returns-value]
    directory = Path("/data/consumequeue/T/0")
    queue = open_queue(fs, directory)
    count = 1
    while queue.max_queue_offset < UNIT_COUNT:
        append(queue, columns(queue.max_queue_offset, min(count, UNIT_COUNT - queue.max_queue_offset)))
        count = min(2 * count, 1_000)
        wrote_bytes = queue.max_queue_offset * UNIT_SIZE_BYTES
        ahead_bytes = fs.allocated_bytes(directory / FILE_NAME) - wrote_bytes
        assert 0 <= ahead_bytes <= min(3 * wrote_bytes, GROWTH_BYTES_MAX) + PAGE_SIZE_BYTES
    assert asked.count("reserve") <= 14
    assert fs.allocated_bytes(directory / FILE_NAME) == FILE_SIZE_BYTES
    queue.sync()


def test_what_is_written_far_into_a_file_has_its_blocks() -> None:
    """A queue that begins anew in the middle of a file reserves the blocks before it, too."""
    fs, directory = MemoryFs(), Path("/data/consumequeue/T/0")
    queue = open_queue(fs, directory)
    append(queue, columns(0, 1))
    append(queue, columns(2_000, 3, physical=10**6), min_physical_offset=10**6)
    queue.sync()
    assert fs.allocated_bytes(directory / FILE_NAME) >= 2_003 * UNIT_SIZE_BYTES
    assert queue.read(2_000, 3).physical_offsets[0] == 10**6


def test_a_file_of_another_store_gets_blocks_before_it_is_written() -> None:
    """RocketMQ leaves holes; MemoryFs fails a sync of bytes that were stored into a hole."""
    fs, directory = MemoryFs(), Path("/data/consumequeue/T/0")
    queue = open_queue(fs, directory)
    append(queue, columns(0, 204))
    queue.sync()
    queue.close()
    fs.crash()
    queue = open_queue(fs, directory)
    assert queue.lacks_room(1)
    append(queue, columns(204, 1))
    queue.sync()


def test_a_full_disk_is_met_before_a_unit_is_written() -> None:
    """A full disk raises StoreFull before a unit is written, and the same rows are entered when there is room."""
    fs, directory = MemoryFs(), Path("/data/consumequeue/T/0")
    queue = open_queue(fs, directory)
    append(queue, columns(0, 204))
    fs.capacity_bytes = fs.used_bytes()
    with pytest.raises(StoreFull):
        append(queue, columns(204, 1))
    assert queue.max_queue_offset == 204
    fs.capacity_bytes *= 10
    append(queue, columns(204, 1))
    queue.sync()


async def test_room_is_made_before_the_batch_is_entered() -> None:
    """A thread makes room for all queues that lack it, so that the event loop waits for no file system."""
    fs, log = MemoryFs(), FakeLog()
    table = ConsumeQueueTable(fs, Path("/data/consumequeue"), file_size_bytes=20_000, mapped_file_count_max=64)
    table.load(IndexProgress(is_clean=True, queue_end_sum=0))
    for index in range(1_000):
        log.append("T", index % 2)
    for batch in log.batches():
        await table.prepare(batch)
        used_bytes = fs.used_bytes()
        table.append(batch)
        assert fs.used_bytes() == used_bytes
    assert used_bytes > 2 * PAGE_SIZE_BYTES


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_start_takes_no_blocks(memory_disk: Path, *, is_clean: bool) -> None:
    """The end of the units is found without reading the holes behind them, which a tmpfs would fill."""
    queue = open_queue(PosixFs(), memory_disk / "T" / "0")
    append(queue, columns(0, 204 + 17))
    queue.close()
    before = allocated_bytes(memory_disk)
    queue = open_queue(PosixFs(), memory_disk / "T" / "0", is_clean=is_clean)
    assert queue.max_queue_offset == 204 + 17
    assert allocated_bytes(memory_disk) == before < 6 * PAGE_SIZE_BYTES


def test_many_queues_of_one_message(tmp_path: Path) -> None:
    """Each queue takes a single block of the disk, so 8,500 of them take 35 MB of files, and not 51 GB."""
    queue_count = 100
    log = FakeLog()
    for queue_id in range(queue_count):
        log.append("T", queue_id)
    table = ConsumeQueueTable(PosixFs(), tmp_path, file_size_bytes=FILE_SIZE_BYTES, mapped_file_count_max=64)
    table.load(IndexProgress(is_clean=True, queue_end_sum=0))
    for batch in log.batches():
        asyncio.run(table.prepare(batch))
        for queue_id in range(queue_count):
            assert table.queue_ids("T")[queue_id] == queue_id
    table.close()
    block_bytes = max(os.statvfs(tmp_path).f_bsize, PAGE_SIZE_BYTES)
    assert sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file()) == queue_count * FILE_SIZE_BYTES
    assert allocated_bytes(tmp_path) <= queue_count * block_bytes
