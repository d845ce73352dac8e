# SPDX-License-Identifier: Apache-2.0
"""The number of mapped queue files, with many more queues than the limit: during writes, reads and cuts."""

import asyncio
import dataclasses
import errno
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from libs.machine.failpoints import armed
from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs, MemoryMappedFile, everything_survives, nothing_survives
from libs.segments.errors import SyncFailed
from services.indexer.engine.follow.reput_state import ReputState
from services.indexer.engine.offline_rebuild import rebuild
from services.indexer.engine.tables.progress import ProgressFile
from tests.support.fake_log import FakeLog
from tests.support.indexer import (
    DATA_DIR,
    PROGRESS,
    SEGMENT_SIZE_BYTES,
    SMALL,
    derived,
    feed,
    make_indexer,
    running,
    write_log,
)
from tests.support.patience import LIMIT_S, eventually

QUEUE_COUNT = 150
MAPPED_MAX = 8
THREAD_COUNT_MAX = 32
"""Threads of asyncio's pool; each may map a file that it makes."""
FEW = dataclasses.replace(SMALL, queue_mapped_file_count_max=MAPPED_MAX, index_slot_count=500, index_entry_capacity=999)


class CountingFs(MemoryFs):
    """Counts the queue files that are mapped, and remembers the most."""

    def __init__(self) -> None:
        super().__init__()
        self.most = 0
        self._open: set[MemoryMappedFile] = set()
        self._turn = threading.Lock()

    def create_mapped(
        self, path: Path, size_bytes: int, *, reserved_bytes: int | None = None, is_durable: bool = True
    ) -> MemoryMappedFile:
        mapped = super().create_mapped(path, size_bytes, reserved_bytes=reserved_bytes, is_durable=is_durable)
        return self._counted(mapped)

    def open_mapped(self, path: Path, *, writable: bool = True) -> MemoryMappedFile:
        return self._counted(super().open_mapped(path, writable=writable))

    def _counted(self, mapped: MemoryMappedFile) -> MemoryMappedFile:
        if "consumequeue" in mapped.path.parts:
            with self._turn:
                self._open = {one for one in self._open if len(one.buffer)} | {mapped}
                self.most = max(self.most, len(self._open))
        return mapped


def filled(record_count: int, queue_count: int = QUEUE_COUNT) -> FakeLog:
    log = FakeLog(segment_size_bytes=SEGMENT_SIZE_BYTES)
    for index in range(record_count):
        log.append("T", index * 7 % queue_count)
    return log


def clean_build(log: FakeLog) -> dict[str, bytes]:
    fs = MemoryFs()
    feed(make_indexer(log, fs), log)
    return derived(fs, "consumequeue")


def live(log: FakeLog) -> Callable[[MemoryFs], asyncio.Future[None]]:
    async def follow(fs: MemoryFs) -> None:
        async with running(log, fs, FEW) as indexer:
            await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)

    return lambda fs: asyncio.ensure_future(follow(fs))


def offline(log: FakeLog) -> Callable[[MemoryFs], asyncio.Future[None]]:
    async def build(fs: MemoryFs) -> None:
        write_log(log, fs)
        await rebuild(fs, FEW, log_data_dir=DATA_DIR, segment_size_bytes=SEGMENT_SIZE_BYTES, clock=ManualClock())

    return lambda fs: asyncio.ensure_future(build(fs))


@pytest.mark.parametrize("way", [live, offline])
@pytest.mark.parametrize("record_count", [QUEUE_COUNT, 20 * QUEUE_COUNT])
async def test_the_number_is_bounded(
    way: Callable[[FakeLog], Callable[[MemoryFs], asyncio.Future[None]]], record_count: int
) -> None:
    """A batch has more queues than may be mapped, and each fills files: all is indexed, and the stop is clean."""
    log, fs = filled(record_count), CountingFs()
    await way(log)(fs)
    assert fs.most <= MAPPED_MAX + THREAD_COUNT_MAX
    assert derived(fs, "consumequeue") == clean_build(log)
    progress = ProgressFile(fs, PROGRESS).load()
    assert progress.is_clean


@pytest.mark.parametrize("survives", [everything_survives, nothing_survives])
async def test_a_start_after_a_crash_is_bounded(survives: Callable[[Path, int | None], bool]) -> None:
    """A start after a crash cuts every queue, and the kept part of a queue need not stay mapped."""
    log, fs = filled(3 * QUEUE_COUNT), CountingFs()
    indexer = make_indexer(log, fs)
    feed(indexer, log, end=log.records[2 * QUEUE_COUNT].physical_offset)
    await indexer.follow.flush.flush(is_thorough=True)
    feed(indexer, log)
    fs.crash(survives)
    fs.most = 0
    fs._open.clear()
    again = make_indexer(log, fs, FEW)
    assert 0 < fs.most <= MAPPED_MAX + 1
    await again.close()
    await live(log)(fs)
    assert fs.most <= MAPPED_MAX + THREAD_COUNT_MAX
    assert derived(fs, "consumequeue") == clean_build(log)


async def test_a_batch_that_is_entered_in_part_is_no_clean_stop() -> None:
    """A stop while a sync is to make room leaves units past the end, which the next start looks for."""
    log, fs = filled(QUEUE_COUNT), MemoryFs()
    indexer = make_indexer(log, fs, FEW)
    indexer.indexes.queues.unsynced.memories.bytes_max = 0
    begun, may_end = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        may_end.wait(LIMIT_S)

    with armed("file.sync", wait):
        indexer.follow.reput.start()
        assert await asyncio.to_thread(begun.wait, LIMIT_S)
        closing = asyncio.create_task(indexer.close())
        await asyncio.sleep(0)
        may_end.set()
        await closing
    progress = ProgressFile(fs, PROGRESS).load()
    assert not progress.is_clean
    await live(log)(fs)
    assert derived(fs, "consumequeue") == clean_build(log)


def eio() -> None:
    raise OSError(errno.EIO, "the disk is gone")


async def test_a_sync_that_fails_ends_the_indexer() -> None:
    """If the sync that is to make room fails, the Indexer ends."""
    log = filled(QUEUE_COUNT)
    indexer = make_indexer(log, MemoryFs(), FEW)
    indexer.indexes.queues.unsynced.memories.bytes_max = 0
    with armed("file.sync", eio):
        indexer.follow.reput.start()
        await eventually(lambda: bool(log.failures))
        await eventually(lambda: indexer.follow.reput.state is ReputState.STOPPED)
    assert isinstance(log.failures[0], SyncFailed)
    with pytest.raises(SyncFailed):
        await indexer.close()
