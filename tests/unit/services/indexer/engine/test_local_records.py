# SPDX-License-Identifier: Apache-2.0
"""Records from the log's own files equal the log's answers; otherwise the log is asked."""

import dataclasses
import errno
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from libs.formats import store_layout
from libs.formats.store_layout import file_name
from libs.log.state import directories as log_directories
from libs.log.state import small_files
from libs.machine.failpoints import armed
from libs.machine.fs import ReadableFile
from libs.machine.testing.faulty_fs import Fault, FaultyFs
from libs.machine.testing.memory_fs import MemoryFs
from services.indexer.engine.answer.pull import PullQuery
from services.indexer.engine.answer.tags import parse_tag_expression
from services.indexer.engine.log import local_records
from services.indexer.engine.log.local_records import LocalRecords
from services.indexer.engine.log.source import RecordBlock
from services.indexer.engine.statistics import statistics
from services.indexer.errors import LogEndsEarlier, NotARecord
from tests.support.fake_log import FakeLog
from tests.support.indexer import (
    COMMIT_LOG,
    DATA_DIR,
    SMALL,
    make_indexer,
    running,
    write_log,
)
from tests.support.patience import eventually

SEGMENT_SIZE_BYTES = 1 << 12


def filled(fs: MemoryFs, *, seed: int = 1, count: int = 120) -> FakeLog:
    """A log of several files, with some records larger than the first read of a record."""
    log, chance = FakeLog(segment_size_bytes=SEGMENT_SIZE_BYTES * 4), random.Random(seed)
    for index in range(count):
        log.append("T", index % 3, body=chance.randbytes(chance.choice((0, 10, 300, 5_000))), keys="k")
    write_log(log, fs)
    small_files.save_history_id(fs, DATA_DIR, log.history_id)
    return log


def over(fs: MemoryFs | FaultyFs, log: FakeLog, *, history_id: str | None = None, least: int = 0) -> LocalRecords:
    """The files of the log, with the log behind them."""
    return LocalRecords(
        fs,
        DATA_DIR,
        log,
        history_id=lambda: log.history_id if history_id is None else history_id,
        min_physical_offset=lambda: least,
    )


def columns(log: FakeLog, indexes: list[int]) -> tuple[np.ndarray, np.ndarray]:
    """Offsets and sizes of some records."""
    chosen = [log.records[index] for index in indexes]
    offsets = np.array([record.physical_offset for record in chosen], np.int64)
    return offsets, np.array([record.size_bytes for record in chosen], np.int32)


def pieces(block: RecordBlock) -> list[bytes]:
    """The bytes of each record."""
    pairs = zip(block.positions.tolist(), block.sizes.tolist(), strict=True)
    return [bytes(block.records[position : position + size]) for position, size in pairs]


def expected(log: FakeLog, indexes: list[int]) -> list[bytes]:
    """The bytes of each record, as the log has them."""
    return [
        bytes(log.data[record.physical_offset : record.physical_offset + record.size_bytes])
        for record in (log.records[index] for index in indexes)
    ]


def spread(fs: MemoryFs) -> None:
    """Move every second file of the log to another directory, as a log with several has them."""
    other = Path("/disk2/log")
    fs.make_directory(other)
    for name in fs.list(COMMIT_LOG)[1::2]:
        fs.append(other / name, fs.read(COMMIT_LOG / name))
        fs.remove(COMMIT_LOG / name)
    log_directories.save(fs, DATA_DIR, [COMMIT_LOG, other])


@pytest.mark.parametrize("has_sizes", [True, False])
async def test_a_log_in_several_directories(*, has_sizes: bool) -> None:
    """Each file is read in its directory; with a damaged list, or a file that is twice, the log is asked."""
    fs = MemoryFs()
    log = filled(fs)
    spread(fs)
    offsets, sizes = columns(log, list(range(len(log.records))))
    block = await over(fs, log).read(offsets, sizes if has_sizes else None)
    assert pieces(block) == expected(log, list(range(len(log.records))))
    assert log.read_count == 0
    name = fs.list(COMMIT_LOG)[0]
    fs.append(Path("/disk2/log") / name, fs.read(COMMIT_LOG / name))
    assert pieces(await over(fs, log).read(offsets[:3], sizes[:3])) == expected(log, [0, 1, 2])
    assert log.read_count == 1
    fs.write_atomic(DATA_DIR / store_layout.LOG_DIRECTORIES, b"?")
    assert pieces(await over(fs, log).read(offsets[:3], sizes[:3])) == expected(log, [0, 1, 2])
    assert log.read_count == 2


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("has_sizes", [True, False])
async def test_any_records_in_any_order(seed: int, *, has_sizes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Near or far, ascending or not, in one file or several: without a call to the log."""
    chance = random.Random(seed)
    monkeypatch.setattr(local_records, "GAP_SIZE_BYTES_MAX", chance.choice((0, 200, 1 << 20)))
    monkeypatch.setattr(local_records, "RUN_SIZE_BYTES_MAX", chance.choice((1, 700, 1 << 20)))
    fs = MemoryFs()
    log = filled(fs, seed=seed)
    records = over(fs, log)
    indexes = [chance.randrange(len(log.records)) for _ in range(chance.randrange(1, 40))]
    indexes = sorted(set(indexes)) if seed % 2 else indexes
    offsets, sizes = columns(log, indexes)
    found = pieces(await records.read(offsets, sizes if has_sizes else None))
    assert found == expected(log, indexes)
    assert (log.read_count, records.read_count) == (0, len(indexes))


@pytest.mark.parametrize("has_sizes", [True, False])
async def test_an_answer_is_bounded(*, has_sizes: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Records that do not fit into an answer are left for the next; a single record always fits."""
    fs = MemoryFs()
    log = filled(fs)
    records, indexes = over(fs, log), list(range(len(log.records)))
    offsets, sizes = columns(log, indexes)
    monkeypatch.setattr(local_records, "RUN_SIZE_BYTES_MAX", 1)
    monkeypatch.setattr(local_records, "READ_SIZE_BYTES_MAX", int(sizes.max()))
    done = 0
    while done < len(indexes):
        block = await records.read(offsets[done:], sizes[done:] if has_sizes else None)
        assert block.sizes.sum() <= sizes.max()
        assert pieces(block) == expected(log, indexes[done : done + len(block.sizes)])
        done += len(block.sizes)
    assert log.read_count == 0


def damage(log: FakeLog, fs: MemoryFs) -> None:
    """Change a byte of the body of record 5."""
    record = log.records[5]
    base = record.physical_offset - record.physical_offset % log.segment_size_bytes
    mapped = fs.open_mapped(COMMIT_LOG / file_name(base))
    mapped.buffer[record.physical_offset - base + 90] ^= 1


def remove_first(log: FakeLog, fs: MemoryFs) -> None:
    """Remove the file that record 5 is in."""
    del log
    fs.remove(COMMIT_LOG / file_name(0))


@pytest.mark.parametrize("change", [damage, remove_first])
@pytest.mark.parametrize("is_open", [True, False])
async def test_what_is_doubtful_is_asked_for(change: Callable[[FakeLog, MemoryFs], None], *, is_open: bool) -> None:
    """If a record is not whole, or its file is gone, the log is asked, also if the file was open before."""
    fs = MemoryFs()
    log = filled(fs)
    records = over(fs, log)
    if is_open:
        await records.read(*columns(log, [4]))
    change(log, fs)
    assert pieces(await records.read(*columns(log, [5, 6]))) == expected(log, [5, 6])
    assert log.read_count > 0


async def test_no_record_and_no_offset_of_the_log() -> None:
    """For an offset without a record the error of the log is raised."""
    fs = MemoryFs()
    log = filled(fs)
    records = over(fs, log)
    offsets, sizes = columns(log, [5])
    with pytest.raises(NotARecord):
        await records.read(offsets, sizes + 1)
    with pytest.raises(NotARecord):
        await records.read(offsets + 1)
    with pytest.raises(LogEndsEarlier):
        await records.read(np.array([1 << 40]))


@pytest.mark.parametrize("history_id", ["another", ""])
async def test_files_of_another_log_are_not_read(history_id: str) -> None:
    """Files of another or an unknown history are not read, as they may have whole records at the same offsets."""
    fs = MemoryFs()
    log = filled(fs)
    records = over(fs, log, history_id=history_id)
    assert pieces(await records.read(*columns(log, [1]))) == expected(log, [1])
    assert (records.read_count, log.read_count > 0) == (0, True)


async def test_no_files_at_all() -> None:
    """Without the directory of the log's files the log is asked."""
    fs = MemoryFs()
    log = filled(MemoryFs())
    assert pieces(await over(fs, log).read(*columns(log, [1]))) == expected(log, [1])


async def test_what_is_no_longer_kept_is_asked_for() -> None:
    """The log is asked for a trimmed record, whose file may still exist for a while."""
    fs = MemoryFs()
    log = filled(fs)
    log.trim(log.records[3].physical_offset)
    records = over(fs, log, least=log.min_physical_offset)
    block = await records.read(*columns(log, [2, 3]))
    assert (block.sizes[0], records.read_count) == (0, 0)
    assert pieces(await records.read(*columns(log, [3]))) == expected(log, [3])
    assert records.read_count == 1


@pytest.mark.parametrize("operation", ["open_readable", "list"])
async def test_an_error_of_the_disk_is_the_logs_business(operation: str) -> None:
    """After an error of the disk the log answers, or reports its error."""
    memory_fs = MemoryFs()
    log = filled(memory_fs)
    fs = FaultyFs(memory_fs, lambda called, _path: Fault(errno.EIO) if called == operation else None)
    assert pieces(await over(fs, log).read(*columns(log, [1]))) == expected(log, [1])
    assert log.read_count > 0


async def test_a_piece_that_cannot_be_read() -> None:
    """After a failed read the log is asked."""
    fs = MemoryFs()
    log = filled(fs)
    with armed("file.read", "raise"):
        assert pieces(await over(fs, log).read(*columns(log, [1]))) == expected(log, [1])
    assert log.read_count > 0


async def test_the_disk_is_waited_for_in_a_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data that is not in memory is read, but not by the event loop's thread."""
    fs = MemoryFs()
    log = filled(fs)
    open_readable = fs.open_readable
    waits: list[bool] = []

    class Cold:
        def __init__(self, file: ReadableFile) -> None:
            self._file = file

        def read(self, position: int, target: memoryview, *, may_wait: bool) -> int | None:
            waits.append(may_wait)
            return self._file.read(position, target, may_wait=True) if may_wait else None

        def is_removed(self) -> bool:
            return self._file.is_removed()

    monkeypatch.setattr(fs, "open_readable", lambda path: Cold(open_readable(path)))
    records = over(fs, log)
    assert pieces(await records.read(*columns(log, [1]))) == expected(log, [1])
    assert (waits, log.read_count) == ([False, True], 0)


async def test_files_that_come_later_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """New files of a growing log are found; only some of the open files are kept."""
    monkeypatch.setattr(local_records, "OPEN_FILE_COUNT_MAX", 2)
    fs = MemoryFs()
    log = filled(fs, count=20)
    records = over(fs, log)
    await records.read(*columns(log, [0]))
    for name in fs.list(COMMIT_LOG):
        fs.remove(COMMIT_LOG / name)
    for _ in range(100):
        log.append("T", body=bytes(1_000))
    write_log(log, fs)
    for index in (119, 60, 0, 90, 119):
        assert pieces(await records.read(*columns(log, [index]))) == expected(log, [index])
    assert log.read_count == 0


async def test_queries_of_an_indexer_use_them() -> None:
    """With the setting the log is asked for no record, and the statistics have the number of records read."""
    fs = MemoryFs()
    log = filled(fs)
    config = dataclasses.replace(SMALL, commitlog_data_dir=DATA_DIR, data_dir=Path("/indexes"))
    async with running(log, fs, config=config) as indexer:
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)
        query = PullQuery("T", 0, 0, 10, 1 << 20, parse_tag_expression("*", field="tag_expression"))
        pulled = await indexer.answers.puller.pull(query, wait_s=0)
        assert len(pulled.found.sizes) > 0
        assert log.read_count == 0
        assert statistics(indexer).locally_read_records_total == len(pulled.found.sizes)
    assert statistics(make_indexer(log)).locally_read_records_total == 0
