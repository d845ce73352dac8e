# SPDX-License-Identifier: Apache-2.0
"""The indexes that remain after a stop, a kill and a power cut, and the indexes that are built again."""

from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from libs.formats.state.index_progress import IndexProgress
from libs.machine.errors import StoreLocked
from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs, everything_survives, nothing_survives
from libs.segments.errors import StoreFull
from services.indexer.engine.follow.indexes import Reached
from services.indexer.engine.tables.index import IndexTable
from services.indexer.engine.tables.progress import ProgressFile
from tests.support.fake_log import FakeLog
from tests.support.indexer import DATA_DIR, PROGRESS, SMALL, assert_complete, derived, feed, make_indexer, running
from tests.support.patience import eventually


def filled(count: int, log: FakeLog | None = None) -> FakeLog:
    log = log or FakeLog()
    for index in range(count):
        log.append("T", index % 3, tag="A", keys=f"all k{index % 5}")
    return log


async def test_a_clean_stop_needs_no_replay() -> None:
    """After an orderly stop the next start replays no indexed record, and the index file is continued."""
    log, fs = filled(20), MemoryFs()
    async with running(log, fs) as indexer:
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
    progress = ProgressFile(fs, PROGRESS).load()
    assert progress.is_clean
    assert progress.queue_physical_offset == progress.index_physical_offset == log.end_physical_offset
    end, names = log.end_physical_offset, set(derived(fs, "index"))
    fs.crash(nothing_survives)
    filled(3, log)
    log.follow_starts.clear()
    await assert_complete(fs, log)
    assert log.follow_starts == [end]
    assert set(derived(fs, "index")) == names


def rocketmq_goes_on(fs: MemoryFs, log: FakeLog, progress: IndexProgress) -> None:
    """RocketMQ enters the new records into the newest file and makes further files."""
    _write(fs, log, progress, is_clean=True)


def rocketmq_crashes(fs: MemoryFs, log: FakeLog, progress: IndexProgress) -> None:
    """RocketMQ drops the unfinished file and makes it again from a later record on."""
    remove_index_files(fs, progress.index_finished_file)
    _write(fs, log, msgspec.structs.replace(progress, index_replay_physical_offset=log.records[-9].physical_offset))


def rocketmq_believes_nothing(fs: MemoryFs, log: FakeLog, progress: IndexProgress) -> None:
    """It drops finished files too, and makes them again from a later record on, under later names."""
    remove_index_files(fs, min(derived(fs, "index")).removeprefix("index/"))
    _write(fs, log, IndexProgress(index_replay_physical_offset=log.records[-9].physical_offset))


def everything_is_removed(fs: MemoryFs, log: FakeLog, progress: IndexProgress) -> None:
    """Remove all index files."""
    remove_index_files(fs, "")


def remove_index_files(fs: MemoryFs, last_kept: str) -> None:
    for name in derived(fs, "index"):
        if name.removeprefix("index/") > last_kept:
            fs.remove(DATA_DIR / name)


def _write(fs: MemoryFs, log: FakeLog, progress: IndexProgress, *, is_clean: bool = False) -> None:
    kept = sorted(name.removeprefix("index/") for name in derived(fs, "index"))
    clock = ManualClock()
    clock.advance(3_600_000)
    table = IndexTable(
        fs, DATA_DIR / "index", clock,
        slot_count=SMALL.index_slot_count, entry_capacity=SMALL.index_entry_capacity,
    )  # fmt: skip
    table.load(
        IndexProgress(
            index_physical_offset=progress.index_physical_offset,
            index_replay_physical_offset=progress.index_replay_physical_offset,
            index_finished_file=progress.index_finished_file if is_clean else max(kept, default=""),
            is_clean=is_clean,
        )
    )
    for batch in log.batches(table.next_physical_offset):
        table.put(batch)
    table.close()


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean stop", "kill"])
@pytest.mark.parametrize("new_count", [0, 3, 40])
@pytest.mark.parametrize(
    "change", [rocketmq_goes_on, rocketmq_crashes, rocketmq_believes_nothing, everything_is_removed]
)
async def test_index_files_that_rocketmq_changed_are_made_again(
    change: Callable[[MemoryFs, FakeLog, IndexProgress], None], new_count: int, is_clean: bool
) -> None:
    """After any change of the index files by RocketMQ, every record is found by its key exactly once."""
    log, fs = filled(50), MemoryFs()
    if is_clean:
        async with running(log, fs) as indexer:
            await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
    else:
        indexer = make_indexer(log, fs)
        feed(indexer, log)
        await indexer.follow.flush.flush(is_thorough=True)
        fs.crash(everything_survives)
    progress = ProgressFile(fs, PROGRESS).load()
    assert progress.index_finished_file
    filled(new_count, log)
    change(fs, log, progress)
    await assert_complete(fs, log)


async def test_the_clean_mark_is_gone_while_it_runs() -> None:
    """A kill right after the start is an unclean stop."""
    log, fs = filled(20), MemoryFs()
    async with running(log, fs) as indexer:
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
    make_indexer(log, fs)
    progress = ProgressFile(fs, PROGRESS).load()
    assert not progress.is_clean


@pytest.mark.parametrize("survives", [nothing_survives, everything_survives], ids=["power cut", "kill"])
@pytest.mark.parametrize("flushed_count", [None, 0, 7, 40, 63])
async def test_an_unclean_stop_loses_nothing(survives: object, flushed_count: int | None) -> None:
    """After a crash queues and keys are complete after the replay (Q9), without duplicates (Q13).

    Any part may be synced.
    """
    log, fs = filled(63), MemoryFs()
    indexer = make_indexer(log, fs)
    if flushed_count is not None:
        end = log.records[flushed_count].physical_offset if flushed_count < 63 else log.end_physical_offset
        feed(indexer, log, end=end)
        await indexer.follow.flush.flush(is_thorough=True)
    feed(indexer, log)
    fs.crash(survives)  # type: ignore[arg-type]
    filled(5, log)
    await assert_complete(fs, log)


async def test_some_pages_of_a_crash_may_survive(chance: object) -> None:
    """With any unsynced pages and names on the disk, the indexes are complete after the replay."""
    import random

    assert isinstance(chance, random.Random)
    for _ in range(12):
        log, fs = filled(45), MemoryFs()
        indexer = make_indexer(log, fs)
        for made in chance.sample(log.records, 3):
            if made.physical_offset > indexer.indexes.reached.indexed_physical_offset:
                feed(indexer, log, end=made.physical_offset)
                await indexer.follow.flush.flush(is_thorough=chance.random() < 0.5)
        feed(indexer, log)
        fs.crash(lambda path, page: chance.random() < 0.5)
        await assert_complete(fs, log)


async def test_finished_index_files_survive_a_crash() -> None:
    """Only the unfinished index file is built again: the replay begins where it began."""
    log, fs = filled(63), MemoryFs()
    indexer = make_indexer(log, fs)
    feed(indexer, log)
    await indexer.follow.flush.flush(is_thorough=True)
    names = sorted(derived(fs, "index"))
    assert len(names) == 5
    fs.crash(nothing_survives)
    log.follow_starts.clear()
    again = make_indexer(log, fs)
    assert sorted(derived(fs, "index")) == names[:-1]
    assert again.indexes.reached.indexed_physical_offset == log.records[60].physical_offset
    assert again.follow.flush.flushed_physical_offset == log.end_physical_offset


async def test_a_crash_after_a_lost_tail_does_not_bring_it_back() -> None:
    """Units of a lost tail do not return, also after a crash before progress is written."""
    log, fs = filled(30), MemoryFs()
    async with running(log, fs) as indexer:
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
    log.lose_tail(log.records[10].physical_offset)
    indexer = make_indexer(log, fs)
    indexer.start()
    await eventually(lambda: indexer.indexes.reached.epoch == 2)
    await indexer.follow.reput.stop()
    fs.crash(nothing_survives)
    for _ in range(8):
        log.append("T", 2, keys="all")
    await assert_complete(fs, log)


@pytest.mark.parametrize("end", [5, 25])
async def test_a_replay_from_before_a_lost_tail_drops_it_all_the_same(end: int) -> None:
    """After a kill the index files are replayed from before the lost tail, and the queues are cut, too."""
    log, fs = filled(30), MemoryFs()
    indexer = make_indexer(log, fs)
    feed(indexer, log)
    end_of_log = log.end_physical_offset
    indexer.indexes.reached = Reached(end_of_log, end_of_log, 1)
    await indexer.follow.flush.flush(is_thorough=True)
    assert indexer.indexes.index.replay_physical_offset < log.records[25].physical_offset
    fs.crash(nothing_survives)
    log.lose_tail(log.records[end].physical_offset)
    for _ in range(12):
        log.append("T", 2, keys="all")
    await assert_complete(fs, log)


@pytest.mark.parametrize("is_clean", [True, False])
async def test_a_batch_of_which_only_some_index_files_had_room_is_entered_once(is_clean: bool) -> None:
    """Index files that were filled before the disk was full count.

    The batch as a whole is entered again, without duplicates.
    """
    log, fs = filled(60), MemoryFs()
    indexer = make_indexer(log, fs)
    (batch,) = log.batches()
    await indexer.indexes.queues.prepare(batch)
    indexer.indexes.queues.append(batch)
    fs.capacity_bytes = fs.used_bytes() + 2 * indexer.indexes.index.file_size_bytes
    with pytest.raises(StoreFull):
        indexer.indexes.apply(batch)
    fs.capacity_bytes = 1 << 30
    assert indexer.indexes.index.file_count == 2
    if is_clean:
        await indexer.close()
    else:
        await indexer.follow.flush.flush(is_thorough=True)
    fs.crash(nothing_survives)
    await assert_complete(fs, log)
    clean = make_indexer(log)
    feed(clean, log)
    assert make_indexer(log, fs).indexes.index.entry_count == clean.indexes.index.entry_count


@pytest.mark.parametrize("data", [b"", b"RPUT", b"x" * 100], ids=["empty", "cut", "foreign"])
async def test_without_believable_progress_everything_is_built_anew(data: bytes) -> None:
    """With a damaged or missing progress file all is built anew, and no old unit stays."""
    log, fs = filled(30), MemoryFs()
    feed(make_indexer(log, fs), log)
    other, other_fs = filled(50, FakeLog(step_ms=5)), fs
    other_fs.crash(everything_survives)
    if data:
        fs.write_atomic(PROGRESS, data)
    elif fs.exists(PROGRESS):
        fs.remove(PROGRESS)
    other.append("T", 0, keys="all")
    await assert_complete(other_fs, other)


def test_a_flipped_bit_in_the_progress_file_is_found() -> None:
    """A change of any byte of the progress file is found."""
    fs = MemoryFs()
    file = ProgressFile(fs, Path("/p"))
    good = IndexProgress(epoch=3, queue_physical_offset=77).encode()
    fs.write_atomic(Path("/p"), good)
    assert file.load() == IndexProgress(epoch=3, queue_physical_offset=77)
    for position in range(len(good)):
        fs.write_atomic(Path("/p"), good[:position] + bytes([good[position] ^ 1]) + good[position + 1 :])
        assert file.load() == IndexProgress()


def test_a_directory_has_one_indexer() -> None:
    """A second process on the same directory is refused before it touches anything."""
    log, fs = filled(1), MemoryFs()
    make_indexer(log, fs)
    with pytest.raises(StoreLocked):
        make_indexer(log, fs)
