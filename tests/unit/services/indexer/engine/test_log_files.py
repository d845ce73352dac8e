# SPDX-License-Identifier: Apache-2.0
"""The log read from its files: the same steps as over the network, and the same end as at a start of the CommitLog."""

import contextlib
from pathlib import Path

import numpy as np
import pytest

from libs.formats.records.dispatch_columns import DispatchBatch, Handshake, Heartbeat
from libs.formats.store_layout import file_name
from libs.log.end import KnownDurable, ScanEndKind
from libs.log.state import directories as log_directories
from libs.machine.testing.memory_fs import MemoryFs
from libs.requests.errors import RecordDamaged
from libs.segments.errors import SegmentMissing, SegmentSizeWrong, SegmentTwice
from services.indexer.engine.log.files import LogFiles
from tests.support.fake_log import FakeLog
from tests.support.indexer import DATA_DIR, SEGMENT_SIZE_BYTES, write_log

COMMIT_LOG = Path("/data/commitlog")


def filled(count: int = 60) -> FakeLog:
    """A log of a few segments."""
    log = FakeLog(segment_size_bytes=SEGMENT_SIZE_BYTES)
    for index in range(count):
        log.append("T", index % 3, tag="A", keys=f"k{index % 7} all")
    return log


def files_of(log: FakeLog, fs: MemoryFs | None = None, **options: object) -> LogFiles:
    """The log's files, as they lie on a disk."""
    fs = fs or MemoryFs()
    write_log(log, fs)
    return LogFiles(fs, DATA_DIR, segment_size_bytes=SEGMENT_SIZE_BYTES, epoch=1, **options)  # type: ignore[arg-type]


async def all_steps(
    files: LogFiles, start: int = 0, epoch: int = 1, into: list[Handshake | DispatchBatch | Heartbeat] | None = None
) -> list[Handshake | DispatchBatch | Heartbeat]:
    """All steps up to the heartbeat, added to `into`."""
    steps = [] if into is None else into
    async with contextlib.aclosing(files.follow(start, epoch)) as stream:
        async for step in stream:
            steps.append(step)
            if isinstance(step, Heartbeat):
                break
    return steps


def offsets(steps: list[Handshake | DispatchBatch | Heartbeat]) -> list[int]:
    """Physical offsets of the records of all batches."""
    return [offset for step in steps if isinstance(step, DispatchBatch) for offset in step.physical_offsets.tolist()]


async def test_the_steps_are_those_of_the_stream() -> None:
    """Handshake, then contiguous batches with every record once, then a single heartbeat with the real end."""
    log = filled()
    files = files_of(log)
    steps = await all_steps(files)
    assert isinstance(steps[0], Handshake)
    assert (steps[0].common_end_physical_offset, steps[0].epoch, steps[0].min_physical_offset) == (0, 1, 0)
    assert offsets(steps) == [made.physical_offset for made in log.records]
    at = 0
    for step in steps[1:-1]:
        assert isinstance(step, DispatchBatch)
        assert step.start_physical_offset == at
        at = step.end_physical_offset
    assert steps[-1] == Heartbeat(log.end_physical_offset, 0)
    assert files.end is not None
    assert files.end.kind is ScanEndKind.CLEAN
    for mine, theirs in zip(steps[1:], log.batches(), strict=False):
        assert isinstance(mine, DispatchBatch)
        for name in ("queue_offsets", "tags_codes", "store_times_ms", "key_counts", "key_hashes", "record_sizes"):
            np.testing.assert_array_equal(getattr(mine, name), getattr(theirs, name))


@pytest.mark.parametrize("start_index", [0, 1, 30, 59])
async def test_a_follower_goes_on_in_the_middle(start_index: int) -> None:
    """A follower continues at any record; a follower of another epoch begins at the first record."""
    log = filled()
    places = [made.physical_offset for made in log.records]
    start = places[start_index]
    assert offsets(await all_steps(files_of(log), start)) == places[start_index:]
    assert len(offsets(await all_steps(files_of(log), start, epoch=2))) == 60


async def test_no_files_are_an_empty_log() -> None:
    """A store without log files is an empty log with its end at 0."""
    fs = MemoryFs()
    fs.make_directory(COMMIT_LOG)
    files = LogFiles(fs, DATA_DIR, segment_size_bytes=SEGMENT_SIZE_BYTES)
    assert await all_steps(files, epoch=0) == [Handshake(0, 0, 0, 0), Heartbeat(0, 0)]
    with pytest.raises(FileNotFoundError):
        LogFiles(fs, Path("/none"), segment_size_bytes=SEGMENT_SIZE_BYTES)


async def test_an_expired_start() -> None:
    """The first existing file is the log's first."""
    log, fs = filled(), MemoryFs()
    write_log(log, fs)
    fs.remove(COMMIT_LOG / file_name(0))
    fs.remove(COMMIT_LOG / file_name(SEGMENT_SIZE_BYTES))
    steps = await all_steps(LogFiles(fs, DATA_DIR, segment_size_bytes=SEGMENT_SIZE_BYTES, epoch=1))
    kept = [made.physical_offset for made in log.records if made.physical_offset >= 2 * SEGMENT_SIZE_BYTES]
    assert steps[0].min_physical_offset == 2 * SEGMENT_SIZE_BYTES  # type: ignore[union-attr]
    assert offsets(steps) == kept


def _change(fs: MemoryFs, physical_offset: int, data: bytes) -> None:
    base = physical_offset - physical_offset % SEGMENT_SIZE_BYTES
    mapped = fs.open_mapped(COMMIT_LOG / file_name(base))
    mapped.buffer[physical_offset - base : physical_offset - base + len(data)] = data


@pytest.mark.parametrize("cut_bytes", [40, 60, 100])
async def test_a_torn_tail_is_the_end(cut_bytes: int) -> None:
    """If the last record lost its last bytes, the log ends before it, with the reason."""
    log, fs = filled(), MemoryFs()
    write_log(log, fs)
    last = log.records[-1]
    _change(fs, last.physical_offset + last.size_bytes - cut_bytes, bytes(cut_bytes))
    files = LogFiles(fs, DATA_DIR, segment_size_bytes=SEGMENT_SIZE_BYTES, epoch=1)
    steps = await all_steps(files)
    assert offsets(steps) == [made.physical_offset for made in log.records[:-1]]
    assert files.end is not None
    assert files.end.kind is ScanEndKind.TORN_TAIL
    assert steps[-1] == Heartbeat(last.physical_offset, 0)


async def test_a_stale_tail_is_the_end() -> None:
    """The log ends before whole records of an older log, whose store time is smaller."""
    log, fs = filled(40), MemoryFs()
    end = log.end_physical_offset
    log.append("T", 0, step_ms=-100_000)
    log.append("T", 1, step_ms=10)
    files = files_of(log, fs)
    steps = await all_steps(files)
    assert steps[-1] == Heartbeat(end, 0)
    assert len(offsets(steps)) == 40


@pytest.mark.parametrize("at", [4, 8, 30, 90])
async def test_a_damaged_middle_is_no_end(at: int) -> None:
    """A changed byte before whole records raises an error with the place, after all records before it."""
    log, fs = filled(), MemoryFs()
    write_log(log, fs)
    victim = log.records[33].physical_offset
    _change(fs, victim + at, b"\xff")
    files = LogFiles(fs, DATA_DIR, segment_size_bytes=SEGMENT_SIZE_BYTES, epoch=1)
    steps: list[Handshake | DispatchBatch | Heartbeat] = []
    with pytest.raises(RecordDamaged) as raised:
        await all_steps(files, into=steps)
    assert offsets(steps) == [made.physical_offset for made in log.records[:33]]
    assert raised.value.segment == file_name(victim - victim % SEGMENT_SIZE_BYTES)
    assert raised.value.position == victim % SEGMENT_SIZE_BYTES


async def test_what_was_durable_must_be_there() -> None:
    """Records below the checkpoint's durable end are not cut off as a torn tail."""
    log, fs = filled(), MemoryFs()
    write_log(log, fs)
    last = log.records[-1]
    _change(fs, last.physical_offset, bytes(last.size_bytes))
    durable = KnownDurable(store_time_ms=last.store_time_ms)
    with pytest.raises(RecordDamaged, match="on disk once"):
        await all_steps(LogFiles(fs, DATA_DIR, segment_size_bytes=SEGMENT_SIZE_BYTES, epoch=1, durable=durable))


async def test_a_given_end_is_kept() -> None:
    """With a given end nothing behind it is read, and the log must be whole up to it."""
    log = filled()
    end = log.records[40].physical_offset
    steps = await all_steps(files_of(log, end_physical_offset=end))
    assert offsets(steps) == [made.physical_offset for made in log.records[:40]]
    assert steps[-1] == Heartbeat(end, 0)
    with pytest.raises(RecordDamaged):
        await all_steps(files_of(log, end_physical_offset=log.end_physical_offset + 100))
    with pytest.raises(RecordDamaged):
        await all_steps(files_of(log, end_physical_offset=end + 7))


async def test_files_in_several_directories() -> None:
    """Files in several directories are a single log; an absent directory, and a file that is twice, are named."""
    log, fs, other = filled(60), MemoryFs(), Path("/disk2/log")
    write_log(log, fs)
    fs.make_directory(other)
    for name in fs.list(COMMIT_LOG)[::2]:
        fs.append(other / name, fs.read(COMMIT_LOG / name))
        fs.remove(COMMIT_LOG / name)
    log_directories.save(fs, DATA_DIR, [COMMIT_LOG, other])
    files = LogFiles(fs, DATA_DIR, segment_size_bytes=SEGMENT_SIZE_BYTES, epoch=1)
    assert offsets(await all_steps(files)) == [made.physical_offset for made in log.records]
    fs.append(COMMIT_LOG / fs.list(other)[0], b"x")
    with pytest.raises(SegmentTwice):
        LogFiles(fs, DATA_DIR, segment_size_bytes=SEGMENT_SIZE_BYTES)
    log_directories.save(fs, DATA_DIR, [COMMIT_LOG, Path("/disk3/log")])
    with pytest.raises(FileNotFoundError):
        LogFiles(fs, DATA_DIR, segment_size_bytes=SEGMENT_SIZE_BYTES)


async def test_files_that_do_not_fit_are_named() -> None:
    """A missing file and a file of another size are named; an empty last file, as RocketMQ may leave it, is ignored."""
    log, fs = filled(), MemoryFs()
    write_log(log, fs)
    fs.append(COMMIT_LOG / file_name(90 * SEGMENT_SIZE_BYTES), b"")
    assert len(offsets(await all_steps(LogFiles(fs, DATA_DIR, segment_size_bytes=SEGMENT_SIZE_BYTES)))) == 60
    with pytest.raises(SegmentSizeWrong):
        LogFiles(fs, DATA_DIR, segment_size_bytes=2 * SEGMENT_SIZE_BYTES)
    fs.remove(COMMIT_LOG / file_name(SEGMENT_SIZE_BYTES))
    with pytest.raises(SegmentMissing):
        LogFiles(fs, DATA_DIR, segment_size_bytes=SEGMENT_SIZE_BYTES)
