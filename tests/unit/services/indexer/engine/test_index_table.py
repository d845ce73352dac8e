# SPDX-License-Identifier: Apache-2.0
"""IndexTable: files that follow each other, searches over all of them, replays that add nothing."""

from pathlib import Path

import numpy as np
import pytest

from libs.formats.indexes.index_file import decode_header, file_size_bytes, key_hash, key_text
from libs.formats.state.index_progress import IndexProgress
from libs.machine.errors import DiskFull
from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs
from libs.segments.errors import SegmentSizeWrong, StoreFull
from services.indexer.engine.tables.index import IndexCursor, IndexTable
from services.indexer.errors import Inapplicable
from tests.support.fake_log import FakeLog

DIRECTORY = Path("/data/index")
ALL = 2**62


NOTHING_KNOWN = IndexProgress()


def make_table(
    fs: MemoryFs, clock: ManualClock | None = None, *, slots: int = 8, capacity: int = 10,
    progress: IndexProgress = NOTHING_KNOWN,
) -> IndexTable:  # fmt: skip
    table = IndexTable(fs, DIRECTORY, clock or ManualClock(), slot_count=slots, entry_capacity=capacity)
    table.load(progress)
    return table


def feed(table: IndexTable, log: FakeLog, start: int = 0) -> None:
    for batch in log.batches(start):
        table.put(batch)


def search(
    table: IndexTable, key: str, *, start: int = 0, end: int = ALL, below: int = ALL, limit: int = 100
) -> list[int]:
    """All candidates of a key, over all steps."""
    found: list[int] = []
    cursor: IndexCursor | None = None
    while True:
        step = table.search(
            key_hash(key_text("T", key)),
            start_time_ms=start, end_time_ms=end, below_physical_offset=below, cursor=cursor, limit=limit,
        )  # fmt: skip
        found += step.physical_offsets.tolist()
        cursor = step.cursor
        if cursor is None:
            return found


def files(fs: MemoryFs) -> dict[str, bytes]:
    return {name: fs.read(DIRECTORY / name) for name in fs.list(DIRECTORY)}


def log_with(count: int, *, key_count: int = 1) -> FakeLog:
    log = FakeLog()
    for index in range(count):
        log.append(keys=" ".join(["K", *(f"k{index}-{more}" for more in range(key_count - 1))]))
    return log


@pytest.mark.parametrize("limit", [1, 2, 100])
def test_a_key_is_found_in_all_files_newest_first(limit: int) -> None:
    """Entries of a key, spread over many files, are found newest first, with steps of any size."""
    log, table = log_with(40), make_table(MemoryFs())
    feed(table, log)
    assert table.file_count == 5
    assert table.entry_count == 40
    assert search(table, "K", limit=limit) == [made.physical_offset for made in reversed(log.records)]
    assert search(table, "other", limit=limit) == []


def test_one_file_has_the_layout_of_rocketmq() -> None:
    """Header and entries have RocketMQ's format; the name is the local creation time."""
    log, fs = log_with(2), MemoryFs()
    feed(make_table(fs), log)
    ((name, data),) = files(fs).items()
    assert len(name) == 17
    header = decode_header(data)
    assert header.begin_time_ms == log.records[0].store_time_ms
    assert header.end_time_ms == log.records[1].store_time_ms
    assert (header.begin_physical_offset, header.end_physical_offset) == (0, log.records[1].physical_offset)
    assert (header.used_slot_count, header.next_entry) == (1, 3)
    assert len(data) == file_size_bytes(8, 10)


def test_the_first_entry_of_a_later_file_has_its_own_time() -> None:
    """A time range finds the first entry of each file: its difference is 0 (Q11).

    The difference to the file before does not count.
    """
    log, table = log_with(20), make_table(MemoryFs())
    feed(table, log)
    for made in log.records:
        time_ms = made.store_time_ms
        assert search(table, "K", start=time_ms, end=time_ms + 1) == [made.physical_offset]


def test_names_ascend_whatever_the_clock_does() -> None:
    """Files made in the same millisecond, or after the clock stepped back, still sort by their content."""
    clock, fs = ManualClock(), MemoryFs()
    table = make_table(fs, clock)
    log = log_with(20)
    feed(table, log)
    clock.set_now_ms(clock.now_ms() - 7_200_000)
    start = log.end_physical_offset
    for _ in range(20):
        log.append(keys="K")
    feed(table, log, start)
    begins = [decode_header(data).begin_physical_offset for data in files(fs).values()]
    assert len(begins) == 5
    assert begins == sorted(begins)


def test_a_replay_adds_nothing() -> None:
    """Entered records are recognised, the very last record too (Q13), also if only a part of a batch was entered."""
    log, fs = log_with(12, key_count=2), MemoryFs()
    table = make_table(fs)
    feed(table, log)
    once = files(fs)
    feed(table, log)
    feed(table, log, log.records[-1].physical_offset)
    assert files(fs) == once
    log.append(keys="K")
    feed(table, log, log.records[5].physical_offset)
    assert search(table, "K") == [made.physical_offset for made in reversed(log.records)]


def test_a_record_is_never_split_over_two_files() -> None:
    """If a record's keys do not all fit, all are in the next file; more keys than a file holds are refused."""
    log, fs = log_with(5, key_count=4), MemoryFs()
    table = make_table(fs)
    feed(table, log)
    assert [decode_header(data).entry_count for data in files(fs).values()] == [8, 8, 4]
    log.append(keys=" ".join(f"x{number}" for number in range(10)))
    (batch,) = log.batches()
    with pytest.raises(Inapplicable) as caught:
        table.check(batch)
    assert caught.value.physical_offset == log.records[-1].physical_offset
    assert table.file_count == 3


def test_a_full_disk_is_no_loss() -> None:
    """After StoreFull in the middle of a batch the same batch continues at its place."""
    log, fs = log_with(20), MemoryFs()
    table = make_table(fs)
    create = fs.create_mapped
    made_count = 0

    def refuse_second(path: Path, size_bytes: int) -> object:
        nonlocal made_count
        made_count += 1
        if made_count == 2:
            raise DiskFull(path, needed_bytes=size_bytes)
        return create(path, size_bytes)

    fs.create_mapped = refuse_second  # type: ignore[method-assign, assignment]
    with pytest.raises(StoreFull):
        feed(table, log)
    feed(table, log)
    assert search(table, "K") == [made.physical_offset for made in reversed(log.records)]
    assert table.entry_count == 20


def test_a_search_goes_on_after_its_file_is_gone() -> None:
    """A search whose file was built again under another name loses nothing and repeats nothing."""
    log, fs = log_with(20), MemoryFs()
    table = make_table(fs)
    feed(table, log)
    code = key_hash(key_text("T", "K"))
    step = table.search(
        code, start_time_ms=0, end_time_ms=ALL, below_physical_offset=ALL, cursor=None, limit=4
    )  # fmt: skip
    assert step.cursor is not None
    last = int(step.physical_offsets[-1])
    table.truncate(log.records[10].physical_offset)
    feed(table, log, table.next_physical_offset)
    rest: list[int] = []
    cursor: IndexCursor | None = step.cursor
    while cursor is not None:
        step = table.search(
            code, start_time_ms=0, end_time_ms=ALL, below_physical_offset=last, cursor=cursor, limit=4
        )  # fmt: skip
        rest += step.physical_offsets.tolist()
        cursor = step.cursor
    assert rest == [made.physical_offset for made in reversed(log.records) if made.physical_offset < last]


def test_truncation_drops_whole_files_and_says_what_to_put_again() -> None:
    """A file can't be cut inside, so the file with the bound is dropped and its begin is where the replay starts."""
    log, table = log_with(20), make_table(MemoryFs())
    feed(table, log)
    bound = log.records[12].physical_offset
    table.truncate(bound)
    assert table.file_count == 1
    assert table.next_physical_offset == log.records[9].physical_offset
    for batch in log.batches(table.next_physical_offset, end=bound):
        table.put(batch)
    assert search(table, "K") == [made.physical_offset for made in reversed(log.records[:12])]


def test_truncation_above_everything_changes_nothing() -> None:
    """A bound past the last record keeps all files."""
    log, table = log_with(20), make_table(MemoryFs())
    feed(table, log)
    table.truncate(log.end_physical_offset)
    assert (table.file_count, table.next_physical_offset) == (3, log.end_physical_offset)


def test_trim_removes_files_of_expired_records_only() -> None:
    """A synced file is removed when all its records are below the offset; the newest file always stays."""
    log, fs = log_with(20), MemoryFs()
    table = make_table(fs)
    feed(table, log)
    assert table.trim(log.end_physical_offset + 1) == 0
    table.mark_finished(table.unfinished()[:-1])
    assert table.trim(log.records[8].physical_offset) == 0
    assert table.trim(log.records[9].physical_offset) == 1
    assert table.trim(log.end_physical_offset + 1) == 1
    assert (table.file_count, len(files(fs))) == (1, 3)
    table.remove(table.pop_expired(2))
    assert (table.expired, len(files(fs))) == ([], 1)


def test_an_unclean_start_keeps_finished_files_only() -> None:
    """Files after the last finished file are dropped; finished files are full and synced."""
    log, fs = log_with(20), MemoryFs()
    table = make_table(fs)
    feed(table, log)
    unfinished = table.unfinished()
    known = IndexProgress(index_physical_offset=log.end_physical_offset)
    assert table.described(known).index_finished_file == ""
    assert table.described(known).index_replay_physical_offset == 0
    for file in unfinished:
        file.sync()
    table.mark_finished(unfinished[:-1])
    known = table.described(known)
    assert known.index_finished_file == unfinished[-2].name
    assert known.index_replay_physical_offset == log.records[18].physical_offset
    again = make_table(fs, progress=known)
    assert again.file_count == 2
    feed(again, log, again.next_physical_offset)
    assert search(again, "K") == [made.physical_offset for made in reversed(log.records)]


def test_a_clean_start_goes_on_in_the_last_file() -> None:
    """After a clean stop the unfinished file is continued, not replaced."""
    log, fs = log_with(12), MemoryFs()
    feed(make_table(fs), log)
    table = make_table(fs, progress=IndexProgress(is_clean=True, index_physical_offset=log.end_physical_offset))
    start = log.end_physical_offset
    log.append(keys="K")
    feed(table, log, start)
    assert table.file_count == 2
    assert search(table, "K") == [made.physical_offset for made in reversed(log.records)]


def test_files_of_another_size_are_refused() -> None:
    """An index made with other settings is not opened; other names are left alone."""
    fs = MemoryFs()
    fs.make_directory(DIRECTORY)
    fs.write_atomic(DIRECTORY / "notes", b"mine")
    fs.create_mapped(DIRECTORY / "20231114221320000", 1000)
    with pytest.raises(SegmentSizeWrong):
        make_table(fs, progress=IndexProgress(is_clean=True))
    make_table(fs)
    assert list(files(fs)) == ["notes"]


def test_records_without_keys_take_no_place() -> None:
    """Records without keys advance the end and make no file."""
    log, fs = FakeLog(), MemoryFs()
    for _ in range(5):
        log.append()
    table = make_table(fs)
    feed(table, log)
    assert files(fs) == {}
    assert table.next_physical_offset == log.end_physical_offset
    assert np.array_equal(search(table, ""), [])
