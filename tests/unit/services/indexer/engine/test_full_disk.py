# SPDX-License-Identifier: Apache-2.0
"""An Indexer on a disk without a free byte: it starts, stops, and deletes files that make room again."""

import dataclasses
import logging

import pytest

from libs.formats import store_layout
from libs.machine.errors import DiskFull
from libs.machine.fs import PAGE_SIZE_BYTES
from libs.machine.testing.memory_fs import MemoryFs, nothing_survives
from services.indexer.engine.indexer import Indexer
from tests.support.fake_log import FakeLog
from tests.support.indexer import DATA_DIR, SMALL, feed, files, make_indexer, running
from tests.support.patience import eventually
from tests.unit.services.indexer.engine.test_log_history import first_of

BALLAST_BYTES = 4 * PAGE_SIZE_BYTES
WITH_BALLAST = dataclasses.replace(SMALL, disk_ballast_bytes=BALLAST_BYTES)
PLENTY = 1 << 30


def fill_disk(fs: MemoryFs) -> None:
    """Take every free byte of the disk."""
    fs.capacity_bytes = fs.used_bytes()


def grown() -> FakeLog:
    """A log with a hundred records of a queue, and then a record of another."""
    log = FakeLog()
    for number in range(100):
        log.append("A", 0, keys=f"k{number}")
    log.append("B", 0)
    return log


async def indexed(log: FakeLog, fs: MemoryFs, *, has_ballast: bool) -> Indexer:
    """An Indexer that has all of the log, durably."""
    indexer = make_indexer(log, fs, WITH_BALLAST if has_ballast else SMALL)
    feed(indexer, log)
    await indexer.follow.flush.flush(is_thorough=True)
    return indexer


async def test_deletion_needs_no_space() -> None:
    """The ballast makes room for the progress that is written before files are removed, and is restored after."""
    log, fs = grown(), MemoryFs()
    indexer = await indexed(log, fs, has_ballast=True)
    fill_disk(fs)
    log.trim(first_of(log, "B"))
    trimmed = indexer.upkeep.trim.trim(log.min_physical_offset)
    assert trimmed.queue_file_count > 0
    assert trimmed.index_file_count > 0
    before = files(fs)
    await indexer.follow.flush.flush(is_thorough=False)
    assert len(before.keys() - files(fs).keys()) == trimmed.queue_file_count + trimmed.index_file_count
    assert fs.size(DATA_DIR / store_layout.INDEX_BALLAST) == BALLAST_BYTES
    await indexer.close()


async def test_without_ballast_a_deletion_says_what_it_lacks() -> None:
    """No file is removed that the progress still names; the files are removed when there is room."""
    log, fs = grown(), MemoryFs()
    indexer = await indexed(log, fs, has_ballast=False)
    fill_disk(fs)
    log.trim(first_of(log, "B"))
    trimmed = indexer.upkeep.trim.trim(log.min_physical_offset)
    before = files(fs)
    with pytest.raises(DiskFull, match=r"index_progress: the disk has no room for \d+ bytes"):
        await indexer.follow.flush.flush(is_thorough=False)
    assert files(fs) == before
    fs.capacity_bytes = PLENTY
    await indexer.follow.flush.flush(is_thorough=True)
    assert len(before.keys() - files(fs).keys()) == trimmed.queue_file_count + trimmed.index_file_count
    await indexer.close()


async def test_expired_queues_go_on_a_full_disk() -> None:
    """Expired queues are removed and their ends are kept, with the room of the ballast."""
    log, fs = grown(), MemoryFs()
    indexer = await indexed(log, fs, has_ballast=True)
    log.trim(first_of(log, "B"))
    indexer.upkeep.trim.trim(log.min_physical_offset)
    fill_disk(fs)
    removed = await indexer.upkeep.removal.remove_expired(dry_run=False)
    assert [(end.topic, end.end_queue_offset) for end in removed.ends] == [("A", 100)]
    assert fs.list(DATA_DIR / "consumequeue") == ["B"]
    await indexer.close()


async def test_a_stop_on_a_full_disk_is_clean(caplog: pytest.LogCaptureFixture) -> None:
    """A stop saves the committed consumer offsets, and the next start, also on a full disk, accepts all files."""
    log, fs = grown(), MemoryFs()
    indexer = await indexed(log, fs, has_ballast=True)
    fill_disk(fs)
    indexer.groups.commit("group", {("A", 0): 7})
    await indexer.close()
    fill_disk(fs)
    indexer = make_indexer(log, fs, WITH_BALLAST)
    assert [found for found in caplog.records if found.levelno >= logging.ERROR] == []
    assert indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset
    assert indexer.groups.find("group", "A", 0) == 7
    await indexer.close()


async def test_an_indexer_that_was_killed_on_a_full_disk_starts_again() -> None:
    """A killed Indexer starts on a full disk again and again, although each free byte is taken in between."""
    log, fs = grown(), MemoryFs()
    await indexed(log, fs, has_ballast=True)
    for _ in range(10):
        fill_disk(fs)
        fs.crash(nothing_survives)
        indexer = make_indexer(log, fs, WITH_BALLAST)
        assert indexer.indexes.queues.topics() == ["A", "B"]
        fill_disk(fs)
        await indexer.follow.flush.flush(is_thorough=True)
    assert fs.size(DATA_DIR / store_layout.INDEX_BALLAST) > BALLAST_BYTES // 2


async def test_a_start_on_a_full_disk_without_ballast_says_what_it_lacks() -> None:
    """A start after a clean stop fails on a full disk, because it must remove the mark."""
    log, fs = grown(), MemoryFs()
    await (await indexed(log, fs, has_ballast=False)).close()
    fill_disk(fs)
    before = files(fs)
    with pytest.raises(DiskFull, match=r"index_progress: the disk has no room for \d+ bytes"):
        make_indexer(log, fs)
    assert files(fs) == before


async def test_what_consumers_store_is_written_on_a_full_disk() -> None:
    """Committed offsets are saved on a full disk, so that a later kill loses none."""
    log, fs = grown(), MemoryFs()
    indexer = await indexed(log, fs, has_ballast=True)
    fill_disk(fs)
    indexer.groups.commit("group", {("A", 0): 7})
    await indexer.groups.save()
    fs.crash(nothing_survives)
    assert make_indexer(log, fs, WITH_BALLAST).groups.find("group", "A", 0) == 7


async def test_indexes_are_built_again_on_a_full_disk() -> None:
    """A rebuild on a full disk records that nothing is certain, then removes all files and builds them."""
    log, fs = grown(), MemoryFs()
    async with running(log, fs, WITH_BALLAST) as indexer:
        await eventually(lambda: indexer.follow.completeness.is_complete)
        await indexer.follow.flush.flush(is_thorough=True)
        fill_disk(fs)
        indexer.upkeep.rebuild.begin()
        states = [state async for state in indexer.upkeep.rebuild.watch()]
        assert (states[-1].is_done, states[-1].record_count) == (True, 101)
        assert indexer.indexes.index.entry_count == 100


async def test_the_ballast_leaves_room_for_the_indexes() -> None:
    """The ballast is made only if another file of each index fits besides."""
    for missing_bytes, has_ballast in ((1, False), (0, True)):
        log, fs = FakeLog(), MemoryFs()
        await make_indexer(log, fs).close()
        next_files_bytes = SMALL.queue_file_size_bytes + make_indexer(log).indexes.index.file_size_bytes
        free_bytes = BALLAST_BYTES + next_files_bytes - missing_bytes
        fs.capacity_bytes = fs.used_bytes() + free_bytes
        indexer = make_indexer(log, fs, WITH_BALLAST)
        assert fs.exists(DATA_DIR / store_layout.INDEX_BALLAST) is has_ballast
        await indexer.close()
