# SPDX-License-Identifier: Apache-2.0
"""A log on several disks: the place of new segments, the directories that a start needs, and refused appends."""

import errno
from pathlib import Path

import pytest

from libs.formats import store_layout
from libs.log.errors import LogDirectoryLeftOut, LogDirectoryMissing
from libs.log.state import directories as log_directories
from libs.machine.errors import StoreLocked
from libs.machine.fs import DiskUsage
from libs.machine.testing.memory_fs import MemoryFs, everything_survives, nothing_survives
from libs.segments.errors import SegmentMissing
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.errors import AppendsRefused
from tests.support.commitlog import DATA_DIR, SEGMENT_SIZE, Machine, append, make_config, message

A, B = Path("/disk1/log"), Path("/disk2/log")
BOTH = {"log_dirs": f"{A}, {B}"}
BODY = bytes(SEGMENT_SIZE // 3)


class Disks(MemoryFs):
    """Directories whose use, in percent, a test sets."""

    def __init__(self) -> None:
        super().__init__()
        self.used: dict[Path, int] = {}
        self.dead: set[Path] = set()

    def disk_usage(self, path: Path) -> DiskUsage:
        """See `Fs.disk_usage`."""
        if path in self.dead:
            raise OSError(errno.EIO, "dead")
        percent = self.used.get(path, 10)
        return DiskUsage(total_bytes=100_000, free_bytes=100_000 - percent * 1_000, used_bytes=percent * 1_000)


def machine(**config: object) -> tuple[Machine, Disks]:
    """A machine with such disks and both directories."""
    made = Machine(**{**BOTH, **config})
    made.fs = disks = Disks()
    return made, disks


async def appended(log: OpenLog, count: int) -> int:
    """Append messages of a third of a segment, so that two fit into a segment. Returns their number."""
    for number in range(count):
        await append(log, message(BODY + b"%d" % number))
    return count


def record_count(log: OpenLog) -> int:
    """Records that a reader finds."""
    start, end = log.chain.min_physical_offset, log.marks.visible.value
    return sum(len(stretch.run.positions) for stretch in log.reader.stretches(start, end, size_bytes_max=1 << 20))


def bases(fs: MemoryFs, directory: Path) -> list[int]:
    """Segments of a directory, by number."""
    return [int(name) // SEGMENT_SIZE for name in fs.list(directory)]


async def test_segments_go_round_and_are_read() -> None:
    """The segments of all directories are a single log, before and after a restart and a kill."""
    made, fs = machine()
    async with made.running() as log:
        await appended(log, 8)
    assert (bases(fs, A), bases(fs, B)) == ([0, 2], [1, 3])
    assert not fs.exists(DATA_DIR / "commitlog")
    assert log_directories.load(fs, DATA_DIR) == [A, B]
    log = await made.start()
    assert log.recovery.was_clean_stop
    assert record_count(log) == 8
    await appended(log, 2)
    await made.kill(log)
    async with made.running() as log:
        assert record_count(log) == 10
        shown = {one.path: (one.segment_count, one.is_full, one.is_read_only) for one in log.disk.log_directories()}
        assert shown == {A: (3, False, False), B: (2, False, False)}


async def test_a_power_cut_cuts_the_tail_in_any_directory() -> None:
    """After a power cut synced data is there, and lost data is gone with its segments, in any directory."""
    made, fs = machine()
    log = await made.start()
    await appended(log, 3)
    await log.marks.flushed.soon(log.chain.max_physical_offset)
    end = log.marks.flushed.value
    await appended(log, 5)
    await made.kill(log, nothing_survives)
    async with made.running() as log:
        found = log.chain.max_physical_offset
        assert found >= end  # the background may have synced more
        assert sorted(bases(fs, A) + bases(fs, B)) == list(range(found // SEGMENT_SIZE + 1))


async def test_a_directory_that_is_not_there() -> None:
    """A missing directory stops the start and changes nothing; the store opens when the disk is mounted."""
    made, fs = machine()
    async with made.running() as log:
        await appended(log, 4)
    kept = fs.read(B / f"{SEGMENT_SIZE:020d}")
    fs.remove(B / f"{SEGMENT_SIZE:020d}")
    fs.remove_directory(B)
    with pytest.raises(LogDirectoryMissing, match=f"{B}.*mount"):
        await made.start()
    fs.make_directory(B)
    fs.append(B / f"{SEGMENT_SIZE:020d}", kept)
    async with made.running() as log:
        assert log.chain.min_physical_offset == 0


async def test_a_directory_that_is_left_out() -> None:
    """A directory must be named, at least as read-only, while it has segments, and may be left out afterwards."""
    made, fs = machine()
    async with made.running() as log:
        await appended(log, 4)
    with pytest.raises(LogDirectoryLeftOut, match=str(A)):
        await made.start(log_dirs=str(B))
    async with made.running(log_dirs=str(B), log_dirs_read_only=str(A)) as log:
        await appended(log, 3)
        assert {one.path: one.is_read_only for one in log.disk.log_directories()} == {A: True, B: False}
        await log.segments.delete([0], allow_unindexed=True)
    assert bases(fs, A) == []
    fs.remove_directory(A)
    async with made.running(log_dirs=str(B)) as log:
        assert log_directories.load(fs, DATA_DIR) == [B]
        assert log.chain.min_physical_offset == SEGMENT_SIZE


async def test_from_one_directory_to_several_and_back() -> None:
    """The default directory is treated like any other directory."""
    made = Machine()
    usual = DATA_DIR / "commitlog"
    async with made.running() as log:
        await appended(log, 3)
    assert not made.fs.exists(DATA_DIR / store_layout.LOG_DIRECTORIES)
    made.fs.make_directory(A)
    made.fs.append(A / f"{9 * SEGMENT_SIZE:020d}", bytes(SEGMENT_SIZE))
    with pytest.raises(SegmentMissing):
        await made.start(log_dirs=f"{usual},{A}")
    made.fs.remove(A / f"{9 * SEGMENT_SIZE:020d}")
    async with made.running(log_dirs=f"{usual},{A}") as log:
        await appended(log, 6)
        assert bases(made.fs, A) != []
    with pytest.raises(LogDirectoryLeftOut, match=str(A)):
        await made.start()
    with pytest.raises(LogDirectoryLeftOut, match=str(usual)):
        await made.start(log_dirs=str(A))
    async with made.running(log_dirs_read_only=str(A)) as log:
        await appended(log, 1)
        assert record_count(log) == 10


async def test_the_usual_directory_is_left_out() -> None:
    """A start without the default directory is refused even if no list of directories was written yet.

    Reput with a single directory and RocketMQ write no list.
    """
    made = Machine()
    async with made.running() as log:
        await appended(log, 1)
    for name in ("reput", "config"):
        for file in made.fs.list(DATA_DIR / name):
            made.fs.remove(DATA_DIR / name / file)
    for file in ("checkpoint", "epochFileCheckpoint"):
        made.fs.remove(DATA_DIR / file)
    with pytest.raises(LogDirectoryLeftOut, match="commitlog"):
        await made.start(log_dirs=str(A))
    assert not made.fs.exists(A)
    async with made.running(log_dirs=f"{A},{DATA_DIR / 'commitlog'}") as log:
        assert record_count(log) == 1


async def test_a_damaged_list_of_directories() -> None:
    """A damaged list of directories is written again from the settings."""
    made, fs = machine()
    async with made.running() as log:
        await appended(log, 3)
    fs.write_atomic(DATA_DIR / store_layout.LOG_DIRECTORIES, b"?")
    async with made.running():
        assert log_directories.load(fs, DATA_DIR) == [A, B]


async def test_a_directory_that_is_away_and_not_named() -> None:
    """A start fails if a directory with segments is absent and not named, even if the list is damaged.

    An empty directory is not missed.
    """
    made, fs = machine()
    async with made.running() as log:
        await appended(log, 4)
    kept = {name: fs.read(A / name) for name in fs.list(A)}
    for name in kept:
        fs.remove(A / name)
    fs.remove_directory(A)
    with pytest.raises(LogDirectoryMissing, match=str(A)):
        await made.start(log_dirs=str(B))
    fs.write_atomic(DATA_DIR / store_layout.LOG_DIRECTORIES, b"?")
    with pytest.raises(LogDirectoryMissing, match=str(A)):
        await made.start()
    fs.make_directory(A)
    async with made.running(log_dirs=str(B)) as log:  # the operator names the remaining directory
        assert log.chain.min_physical_offset == SEGMENT_SIZE


async def test_two_stores_cannot_have_one_directory() -> None:
    """A log directory in use is refused to a store with another data directory."""
    made, _ = machine()
    log = await made.start()
    with pytest.raises(StoreLocked, match=str(A)):
        await made.start(data_dir=Path("/other"))
    await made.stop(log)
    async with made.running(data_dir=Path("/other")):
        pass


async def test_a_removed_prepared_file_does_not_come_back() -> None:
    """A file that was prepared in a directory does not return after a clean stop and a power cut.

    The clean stop removes it without a sync, and the next start creates it in another directory.
    """
    made, fs = machine(preallocate=True)
    async with made.running() as log:
        await appended(log, 3)
        assert log.chain.allocator is not None
        prepared = log.chain.allocator.prepared_path
    assert prepared == A / f"{2 * SEGMENT_SIZE:020d}"
    fs.used = {A: 99}
    log = await made.start()
    await appended(log, 2)
    await log.marks.flushed.soon(log.chain.max_physical_offset)
    await made.kill(log, nothing_survives)
    async with made.running() as log:
        assert record_count(log) == 5
        assert 2 in bases(fs, B)


async def test_new_segments_keep_away_from_a_full_disk() -> None:
    """As long as another disk has room, new segments are not on a full disk, as RocketMQ does with its full paths."""
    made, fs = machine(disk_full_percent=90)
    async with made.running() as log:
        fs.used = {B: 86}
        await log.disk.look()
        assert log.gate.is_open
        assert [one.is_full for one in log.disk.log_directories()] == [False, True]
        await appended(log, 5)
        assert (bases(fs, A), bases(fs, B)) == ([0, 1, 2], [])
        fs.used = {B: 85}
        await log.disk.look()
        await appended(log, 2)
        assert bases(fs, B) == [3]


async def test_a_disk_that_cannot_be_looked_at() -> None:
    """A disk whose usage cannot be read gets no new segments; the other disks are checked all the same."""
    made, fs = machine(disk_full_percent=90)
    async with made.running() as log:
        fs.dead = {A}
        await log.disk.look()
        assert [one.is_full for one in log.disk.log_directories()] == [True, False]
        await appended(log, 3)
        assert (bases(fs, A), bases(fs, B)) == ([], [0, 1])
        assert [one.is_read_only for one in log.disk.log_directories()] == [True, False]
        fs.used = {B: 95}
        await log.disk.look()
        assert not log.gate.is_open
        assert log.disk.usage.used_percent == 95  # the free space of the other disk does not count
        fs.dead = set()
        await log.disk.look()
        assert [one.is_full for one in log.disk.log_directories()] == [False, True]


async def test_the_emptiest_disk_decides_about_appends() -> None:
    """As with RocketMQ, the emptiest disk decides about appends; the disk of the small files needs the reserve."""
    made, fs = machine(disk_full_percent=90, disk_reserve_bytes=8_000)
    async with made.running() as log:
        for used, is_open in (
            ({A: 95, B: 20}, True),
            ({A: 91, B: 91}, False),
            ({A: 91, B: 86}, False),
            ({A: 91, B: 85}, True),
            ({DATA_DIR: 95}, False),
            ({}, True),
        ):
            fs.used = used
            await log.disk.look()
            assert log.gate.is_open is is_open, used
            if not is_open:
                with pytest.raises(AppendsRefused):
                    await append(log)
        fs.used = {A: 40, B: 60}
        await log.disk.look()
        assert log.disk.usage.used_percent == 40


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"log_dirs": "/a,/b,/a"}, "name /a twice"),
        ({"log_dirs": "/a", "log_dirs_read_only": "/a"}, "name /a twice"),
        ({"log_dirs_read_only": str(DATA_DIR / "commitlog")}, "commitlog twice"),
        ({"log_dirs": "/a,/b/../a"}, "name /a twice"),
        ({"log_dirs": "/a,/a/b"}, "/a, which has data_dir or another one in it"),
        ({"log_dirs": str(DATA_DIR)}, "/store, which has data_dir or another one in it"),
        ({"log_dirs": "/d\udce9"}, "is not UTF-8"),
        ({"log_dirs": "/a,,/b"}, "a directory is missing"),
        ({"log_dirs": ","}, "a directory is missing"),
        ({"log_dirs_read_only": "/a,"}, "log_dirs_read_only is '/a,'"),
    ],
)
def test_settings_that_cannot_be(changes: dict[str, str], text: str) -> None:
    """Impossible settings are refused by name."""
    with pytest.raises(ValueError, match=text):
        make_config(**changes)


async def test_kills_in_a_row_lose_nothing() -> None:
    """Kills in a row lose no message, with a file allocated ahead in either directory."""
    made, _ = machine(preallocate=True)
    total = 0
    for count in (1, 2, 3, 1, 4):
        log = await made.start()
        total += await appended(log, count)
        await made.kill(log, everything_survives)
    async with made.running() as log:
        assert record_count(log) == total
