# SPDX-License-Identifier: Apache-2.0
"""Changed files of the indexes: a start builds all anew or reports the file, and never answers from it."""

import contextlib
from collections.abc import Callable, Iterator

import pytest

from libs.formats.indexes import index_file
from libs.formats.state.index_progress import IndexProgress
from libs.machine.failpoints import armed
from libs.machine.testing.memory_fs import MemoryFs, everything_survives, nothing_survives
from libs.segments.errors import SegmentSizeWrong, SegmentUnreadable, SyncFailed
from services.indexer.engine.indexer import Indexer
from services.indexer.engine.tables.progress import ProgressFile
from services.indexer.engine.tables.queue import ConsumeQueue
from tests.support import reference
from tests.support.fake_log import FakeLog
from tests.support.indexer import DATA_DIR, PROGRESS, SMALL, assert_complete, derived, feed, make_indexer, running
from tests.support.patience import eventually
from tests.unit.services.indexer.engine.test_recovery import filled

QUEUE = "consumequeue/T/0/"
UNIT_SIZE_BYTES = 20


async def left(fs: MemoryFs, log: FakeLog, *, is_clean: bool) -> None:
    """Indexes of the whole log, after a clean stop or a kill; all of it is synced."""
    if is_clean:
        async with running(log, fs) as indexer:
            await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
    else:
        indexer = make_indexer(log, fs)
        feed(indexer, log)
        await indexer.follow.flush.flush(is_thorough=True)
        fs.crash(everything_survives)


def remove(name: str) -> Callable[[MemoryFs], None]:
    """Remove a file."""
    return lambda fs: fs.remove(DATA_DIR / name)


def last_queue_file(fs: MemoryFs) -> None:
    """The newest file of a queue is gone."""
    fs.remove(DATA_DIR / max(name for name in derived(fs, QUEUE)))


def first_queue_file(fs: MemoryFs) -> None:
    """The oldest file of a queue is gone, as if its messages had expired."""
    fs.remove(DATA_DIR / min(name for name in derived(fs, QUEUE)))


def middle_queue_file(fs: MemoryFs) -> None:
    """A file between others is gone."""
    fs.remove(DATA_DIR / sorted(derived(fs, QUEUE))[1])


def whole_queue(fs: MemoryFs) -> None:
    """All files of a queue are gone."""
    for name in derived(fs, QUEUE):
        fs.remove(DATA_DIR / name)


def whole_queue_directory(fs: MemoryFs) -> None:
    """The queue's directory is gone."""
    whole_queue(fs)
    fs.remove_directory(DATA_DIR / QUEUE)


def oldest_index_file(fs: MemoryFs) -> None:
    """A finished index file is gone, as if its records had expired."""
    fs.remove(DATA_DIR / min(derived(fs, "index/")))


def newest_index_file(fs: MemoryFs) -> None:
    """The index file that was being written is gone."""
    fs.remove(DATA_DIR / max(derived(fs, "index/")))


def middle_index_file(fs: MemoryFs) -> None:
    """A finished index file between others is gone."""
    fs.remove(DATA_DIR / sorted(derived(fs, "index/"))[1])


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean stop", "kill"])
@pytest.mark.parametrize(
    "damage",
    [
        last_queue_file,
        first_queue_file,
        middle_queue_file,
        whole_queue,
        whole_queue_directory,
        oldest_index_file,
        middle_index_file,
        newest_index_file,
    ],
)
@pytest.mark.parametrize("new_count", [0, 7])
async def test_missing_files(damage: Callable[[MemoryFs], None], is_clean: bool, new_count: int) -> None:
    """With any missing file the start notices it and builds all indexes again, whether more is appended or not."""
    log, fs = filled(150), MemoryFs()
    await left(fs, log, is_clean=is_clean)
    damage(fs)
    filled(new_count, log)
    await assert_complete(fs, log)


def entries_of_less(fs: MemoryFs) -> None:
    """Another program has made the newest index file again, and stopped a message earlier."""
    path = DATA_DIR / max(derived(fs, "index/"))
    buffer = fs.open_mapped(path).buffer
    header = index_file.decode_header(buffer)
    for number in (header.next_entry - 1, header.next_entry - 2):  # both keys of it
        last_at = index_file.entry_position(number, SMALL.index_slot_count)
        last = index_file.decode_entry(buffer, last_at)
        slot_at = index_file.slot_position(last.key_hash, SMALL.index_slot_count)
        buffer[slot_at : slot_at + 4] = last.previous_entry.to_bytes(4, "big")
        buffer[last_at : last_at + 20] = bytes(20)
    header = header._replace(next_entry=header.next_entry - 2, end_physical_offset=header.end_physical_offset - 1)
    buffer[: index_file.HEADER_SIZE_BYTES] = reference.index_header(header)


def index_file_of_another_name(fs: MemoryFs) -> None:
    """Another program has removed the newest index file and made a file of its own, with fewer entries."""
    entries_of_less(fs)
    name = max(derived(fs, "index/"))
    folder, _, time = name.rpartition("/")
    fs.write_atomic(DATA_DIR / folder / str(int(time) + 1), fs.read(DATA_DIR / name))
    fs.remove(DATA_DIR / name)


def zeroed_header(fs: MemoryFs) -> None:
    """The first page of the newest index file is zeros."""
    buffer = fs.open_mapped(DATA_DIR / max(derived(fs, "index/"))).buffer
    buffer[:100] = bytes(100)


@pytest.mark.parametrize("is_clean", [True, False], ids=["clean stop", "kill"])
@pytest.mark.parametrize("damage", [entries_of_less, index_file_of_another_name, zeroed_header])
@pytest.mark.parametrize("new_count", [0, 7])
async def test_newest_index_file(damage: Callable[[MemoryFs], None], is_clean: bool, new_count: int) -> None:
    """An unfinished index file that another program changed is built again, with every key."""
    log, fs = filled(150), MemoryFs()
    await left(fs, log, is_clean=is_clean)
    damage(fs)
    filled(new_count, log)
    await assert_complete(fs, log)


def zeroed_tail(fs: MemoryFs) -> None:
    """The last units of a queue are zeros."""
    _overwrite(fs, 49, bytes(UNIT_SIZE_BYTES))


def zeroed_middle(fs: MemoryFs) -> None:
    """A unit in the last file is zeros, and units follow."""
    _overwrite(fs, 48, bytes(UNIT_SIZE_BYTES))


def unit_too_many(fs: MemoryFs) -> None:
    """Behind the last unit there is another that looks like a unit, of a record that the log had once."""
    _overwrite(fs, 50, (77).to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(8))


def rubbish_behind(fs: MemoryFs) -> None:
    """Behind the last unit there are arbitrary bytes."""
    _overwrite(fs, 50, b"\x7f" * 3 * UNIT_SIZE_BYTES)


def _overwrite(fs: MemoryFs, queue_offset: int, data: bytes) -> None:
    position = queue_offset * UNIT_SIZE_BYTES
    base = position - position % 320
    buffer = fs.open_mapped(DATA_DIR / QUEUE / f"{base:020d}").buffer
    buffer[position - base : position - base + len(data)] = data


@pytest.mark.parametrize("damage", [zeroed_tail, unit_too_many])
async def test_units_after_a_clean_stop(damage: Callable[[MemoryFs], None], caplog: pytest.LogCaptureFixture) -> None:
    """A start after a clean stop opens no queue; soon after it finds the missing units and builds all indexes anew."""
    log, fs = filled(150), MemoryFs()
    await left(fs, log, is_clean=True)
    damage(fs)
    async with running(log, fs) as indexer:
        await eventually(lambda: "all indexes are built anew" in caplog.text)
        await eventually(lambda: indexer.follow.completeness.is_complete)
    await assert_complete(fs, log)
    caplog.clear()
    await assert_complete(fs, log)
    assert "built anew" not in caplog.text


def never() -> Iterator[ConsumeQueue]:
    pytest.fail("nobody needs to look at them")
    yield


async def test_the_ends_are_added_up_once() -> None:
    """The ends compared after a clean start are remembered, and an odd record later compares no queue again."""
    log, fs = filled(30), MemoryFs()
    await left(fs, log, is_clean=True)
    async with running(log, fs) as indexer:
        await eventually(lambda: indexer.indexes.queues.sums.left is None)
        log.append("T", 0, queue_offset=77)
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
        assert indexer.indexes.queues.stepped_over.record_count == 1
        assert indexer.indexes.queues.sums.agrees(never())


def shortened(fs: MemoryFs) -> None:
    """Of the newest file of a queue only its first unit is there."""
    path = DATA_DIR / max(derived(fs, QUEUE))
    data = fs.read(path)[:UNIT_SIZE_BYTES]
    fs.remove(path)
    fs.write_atomic(path, data)


@pytest.mark.parametrize("damage", [last_queue_file, shortened])
async def test_a_file_that_goes_behind_a_clean_start(
    damage: Callable[[MemoryFs], None], caplog: pytest.LogCaptureFixture
) -> None:
    """A file that changes after the clean start listed it causes a rebuild, after which the stop is clean.

    Until then each read raises SegmentUnreadable.
    """
    log, fs = filled(150), MemoryFs()
    await left(fs, log, is_clean=True)
    indexer = make_indexer(log, fs)
    damage(fs)
    assert indexer.indexes.queues.sums.left is not None
    harmed = next(queue for queue in indexer.indexes.queues.sums.left.queues if queue.queue_id == 0)
    for _ in range(2):
        with pytest.raises(SegmentUnreadable):
            harmed.max_queue_offset  # noqa: B018 - asking alone tells
    indexer.start()
    await eventually(lambda: "all indexes are built anew" in caplog.text)
    await eventually(lambda: indexer.follow.completeness.is_complete)
    await indexer.close()
    assert progress_of(fs).is_clean
    await assert_complete(fs, log)


@pytest.mark.parametrize("damage", [zeroed_tail, zeroed_middle, unit_too_many, rubbish_behind])
@pytest.mark.parametrize("new_count", [0, 7])
async def test_units_after_a_kill(damage: Callable[[MemoryFs], None], new_count: int) -> None:
    """After a kill a start notices fewer or more units than were synced, although each file exists."""
    log, fs = filled(150), MemoryFs()
    await left(fs, log, is_clean=False)
    damage(fs)
    filled(new_count, log)
    await assert_complete(fs, log)


async def test_a_file_of_another_size_is_named() -> None:
    """Nothing is dropped, because the setting may be wrong; the error names the file."""
    log, fs = filled(150), MemoryFs()
    await left(fs, log, is_clean=True)
    name = max(derived(fs, QUEUE))
    fs.write_atomic(DATA_DIR / name, bytes(100))
    before = derived(fs, "")
    with pytest.raises(SegmentSizeWrong, match=name):
        make_indexer(log, fs)
    assert derived(fs, "") == before


def progress_of(fs: MemoryFs) -> IndexProgress:
    """The progress in the file."""
    return ProgressFile(fs, PROGRESS).load()


async def test_an_older_progress_file_is_enough() -> None:
    """A progress file older than the files drops only the data that it does not cover."""
    log, fs = filled(150), MemoryFs()
    indexer = make_indexer(log, fs)
    feed(indexer, log, end=log.records[70].physical_offset)
    await indexer.follow.flush.flush(is_thorough=True)
    old = fs.read(PROGRESS)
    feed(indexer, log)
    await indexer.follow.flush.flush(is_thorough=True)
    fs.crash(nothing_survives)
    fs.write_atomic(PROGRESS, old)
    again = make_indexer(log, fs)
    assert again.indexes.reached.indexed_physical_offset > 0
    assert again.indexes.queues.sums.end == 70
    fs.crash(everything_survives)
    await assert_complete(fs, log)


@pytest.mark.parametrize("survives", [nothing_survives, everything_survives], ids=["power cut", "kill"])
@pytest.mark.parametrize("failpoint", ["progress.before_save", "progress.after_save"])
async def test_a_trim_is_no_damage(survives: object, failpoint: str) -> None:
    """After a crash at any step of a trim the start accepts the missing files, and nothing is built again."""
    log, fs = filled(150), MemoryFs()
    indexer = make_indexer(log, fs)
    feed(indexer, log)
    await indexer.follow.flush.flush(is_thorough=True)
    await indexer.follow.flush.flush(is_thorough=True)  # now all index files but the last are finished
    count = len(derived(fs, ""))
    log.trim(log.records[100].physical_offset)
    trimmed = indexer.upkeep.trim.trim(log.min_physical_offset)
    assert (trimmed.queue_file_count, trimmed.index_file_count) == (6, 6)
    with armed(failpoint, "raise"), pytest.raises(OSError, match=failpoint):
        await indexer.follow.flush.flush(is_thorough=False)
    assert len(derived(fs, "")) == count
    if failpoint == "progress.after_save":
        indexer.indexes.queues.remove(indexer.indexes.queues.pop_expired(99))
    fs.crash(survives)  # type: ignore[arg-type]
    assert_nothing_was_dropped(make_indexer(log, fs))


async def test_trimmed_files_are_gone_after_the_next_round() -> None:
    """Trimmed files are removed in the next round, and a start after that finds all expected files."""
    log, fs = filled(150), MemoryFs()
    async with running(log, fs) as indexer:
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
        await indexer.follow.flush.flush(is_thorough=True)
        log.trim(log.records[100].physical_offset)
        count = len([*derived(fs, "consumequeue/"), *derived(fs, "index/")])
        trimmed = indexer.upkeep.trim.trim(log.min_physical_offset)
        await indexer.follow.flush.flush(is_thorough=False)
        left_count = len([*derived(fs, "consumequeue/"), *derived(fs, "index/")])
        assert left_count == count - trimmed.queue_file_count - trimmed.index_file_count
    assert_nothing_was_dropped(make_indexer(log, fs))


def assert_nothing_was_dropped(indexer: Indexer) -> None:
    """Check that the start continued with the files."""
    assert indexer.indexes.reached.indexed_physical_offset > 0
    assert indexer.indexes.queues.sums.queue_count == 3
    assert indexer.indexes.index.described(IndexProgress()).index_finished_file


async def test_progress_during_a_replay_counts_no_units() -> None:
    """During a replay progress has no sum of units, so that a second crash causes no rebuild.

    Queues are ahead of the index files then.
    """
    log, fs = filled(150), MemoryFs()
    await left(fs, log, is_clean=False)
    indexer = make_indexer(log, fs)
    start = indexer.indexes.reached.indexed_physical_offset
    assert 0 < start < log.end_physical_offset
    feed(indexer, log, end=next(made.physical_offset for made in log.records if made.physical_offset > start))
    await indexer.follow.flush.flush(is_thorough=True)
    assert progress_of(fs).queue_end_sum == -1
    fs.crash(nothing_survives)
    again = make_indexer(log, fs)
    assert_nothing_was_dropped(again)
    feed(again, log)
    await again.follow.flush.flush(is_thorough=True)
    assert progress_of(fs).queue_end_sum == 150


async def test_a_full_disk_in_the_middle_of_a_batch_is_no_damage() -> None:
    """Units that were entered before the disk was full are beyond the progress, and are not counted."""
    log, fs = filled(40), MemoryFs()
    indexer = make_indexer(log, fs)
    feed(indexer, log)
    filled(60, log)
    (batch,) = log.batches(indexer.indexes.reached.indexed_physical_offset)
    fs.capacity_bytes = fs.used_bytes() + 500
    with pytest.raises(Exception, match="no room"):
        indexer.indexes.apply(batch)
    fs.capacity_bytes = 1 << 40
    await indexer.follow.flush.flush(is_thorough=True)
    fs.crash(nothing_survives)
    again = make_indexer(log, fs)
    assert again.indexes.queues.sums.end == 40
    assert_nothing_was_dropped(again)
    fs.crash(everything_survives)
    await assert_complete(fs, log)


@pytest.mark.parametrize("ordinal", range(1, 5))
async def test_a_crash_while_queues_are_cut(ordinal: int) -> None:
    """Files are removed newest first, each durably.

    The rest is always a beginning, and the next start continues.
    """
    log, fs = filled(150), MemoryFs()
    await left(fs, log, is_clean=False)
    fs.write_atomic(PROGRESS, IndexProgress(epoch=progress_of(fs).epoch, queue_physical_offset=1).encode())
    with armed("file.sync", f"raise@{ordinal}"), contextlib.suppress(SyncFailed):
        make_indexer(log, fs)
    fs.crash(nothing_survives)
    await assert_complete(fs, log)


async def test_a_replay_over_a_harmed_unit_builds_anew(caplog: pytest.LogCaptureFixture) -> None:
    """After a kill the log is replayed from before the unit, which names an older record than the unit before it."""
    log, fs = filled(150), MemoryFs()
    await left(fs, log, is_clean=False)
    _overwrite(fs, 47, (77).to_bytes(8, "big") + (100).to_bytes(4, "big") + bytes(8))
    await assert_complete(fs, log)
    assert "damaged at byte 300" in caplog.text
    assert "indexing has stopped" not in caplog.text
