# SPDX-License-Identifier: Apache-2.0
"""A chain in several directories: the places of new files, the files that are opened, the file of the directories."""

import errno
import os
from pathlib import Path

import pytest

from libs.formats import store_layout
from libs.formats.errors import FormatError
from libs.log.state import directories as log_directories
from libs.machine.errors import DiskFull
from libs.machine.fs import MappedFile
from libs.machine.testing.memory_fs import MemoryFs, nothing_survives
from libs.segments.chain import SegmentChain
from libs.segments.directories import SegmentDirectories
from libs.segments.errors import SegmentMissing, SegmentTwice, StoreFull
from tests.support.chains import drop_first

A, B, C, OLD = (Path("/disks") / name / "commitlog" for name in ("a", "b", "c", "old"))
SIZE = 8192
DATA_DIR = Path("/store")


class Disks(MemoryFs):
    """A file system with full and broken directories.

    A directory in `full` has no room for another segment. The creation of a segment in a directory of `broken` fails
    with the given errno.
    """

    def __init__(self) -> None:
        super().__init__()
        self.full: set[Path] = set()
        self.broken: dict[Path, int] = {}
        self.leaves = False

    def create_mapped(
        self, path: Path, size_bytes: int, *, reserved_bytes: int | None = None, is_durable: bool = True
    ) -> MappedFile:
        """See `Fs.create_mapped`."""
        if path.parent in self.full:
            raise DiskFull(path=path, needed_bytes=size_bytes)
        if path.parent in self.broken:
            code = self.broken[path.parent]
            if self.leaves:
                super().create_mapped(path, size_bytes, reserved_bytes=reserved_bytes, is_durable=is_durable)
            raise OSError(code, os.strerror(code), str(path))
        return super().create_mapped(path, size_bytes, reserved_bytes=reserved_bytes, is_durable=is_durable)


def open_chain(fs: MemoryFs, places: SegmentDirectories, **options: bool) -> SegmentChain:
    return SegmentChain(fs, places.writable[0], SIZE, directories=places, **options).open()


def fill(chain: SegmentChain, count: int) -> list[Path]:
    """Add full segments. Returns their directories."""
    added = []
    for _ in range(count):
        segment = chain.roll()
        segment.advance(SIZE)
        added.append(segment.path.parent)
    return added


@pytest.mark.parametrize(
    ("full", "number", "expected"),
    [
        ((), 0, [A, B, C]),
        ((), 1, [B, C, A]),
        ((), 5, [C, A, B]),
        ((B,), 0, [A, C, B]),
        ((B,), 1, [C, A, B]),
        ((A, C), 7, [B, A, C]),
        ((A, B, C), 4, [B, C, A]),
    ],
)
def test_candidates(full: tuple[Path, ...], number: int, expected: list[Path]) -> None:
    """RocketMQ's choice comes first: the directory of the file's number among the sorted directories that are not full.

    If all are full, the directory is chosen among all. The others follow, for a disk that turns out to have no room.
    """
    places = SegmentDirectories((C, A, B))
    places.full = frozenset(full)
    assert places.candidates(number) == expected


@pytest.mark.parametrize("preallocates", [False, True])
def test_files_go_round(preallocates: bool) -> None:
    """New files go to the directories in turn, and are found again for any order of the setting."""
    fs = MemoryFs()
    chain = open_chain(fs, SegmentDirectories((B, A)), preallocates=preallocates)
    assert fill(chain, 4) == [A, B, A, B]
    chain.close()
    assert fs.list(A) == [f"{0:020d}", f"{2 * SIZE:020d}"]
    again = open_chain(fs, SegmentDirectories((A, B)))
    assert [segment.base_physical_offset for segment in again.segments] == [0, SIZE, 2 * SIZE, 3 * SIZE]
    assert again.find(SIZE).path.parent == B
    assert again.directories is not None
    assert again.directories.counts == {A: 2, B: 2}
    drop_first(fs, again)
    again.truncate_after(2 * SIZE)
    assert again.directories.counts == {A: 0, B: 1}


@pytest.mark.parametrize("preallocates", [False, True])
def test_a_disk_without_room_is_passed(preallocates: bool) -> None:
    """A full disk is skipped, whether the watch has seen it or not; StoreFull is raised only if all disks are full."""
    fs = Disks()
    places = SegmentDirectories((A, B, C))
    chain = open_chain(fs, places, preallocates=preallocates)
    fs.full = {B}
    assert fill(chain, 3) == [A, C, C]
    places.full = frozenset({C})
    fs.full = set()
    added = fill(chain, 4)
    assert added[-2:] == [B, A]  # a segment may have been prepared before
    fs.full = {A, B, C}
    with pytest.raises(StoreFull):
        fill(chain, 2)  # the first segment may be there already
    chain.close()


@pytest.mark.parametrize("preallocates", [False, True])
@pytest.mark.parametrize("code", [errno.EROFS, errno.ENOENT])
def test_a_directory_that_takes_no_file_is_passed(code: int, preallocates: bool) -> None:
    """A disk that is read-only or missing is skipped.

    If all other disks are full, StoreFull is raised, because waiting for room can help.
    """
    fs = Disks()
    chain = open_chain(fs, SegmentDirectories((A, B, C)), preallocates=preallocates)
    fs.broken = {B: code}
    assert fill(chain, 3) == [A, C, C]
    fs.broken = {B: code, C: code}
    fs.full = {A}
    with pytest.raises(StoreFull):
        fill(chain, 2)  # the first segment may be there already
    fs.broken = dict.fromkeys((A, B, C), code)
    fs.full = set()
    with pytest.raises(OSError, match=os.strerror(code)):
        fill(chain, 1)
    fs.broken = {}
    fill(chain, 1)
    chain.close()


@pytest.mark.parametrize(("code", "is_left"), [(errno.EIO, False), (errno.EROFS, True)])
def test_a_directory_that_fails_otherwise_is_not_passed(code: int, is_left: bool) -> None:
    """No other directory is used if the failed creation left a file, or may have left it.

    The segment would otherwise exist twice.
    """
    fs = Disks()
    chain = open_chain(fs, SegmentDirectories((A, B)))
    fs.broken, fs.leaves = {A: code}, is_left
    with pytest.raises(OSError, match=os.strerror(code)):
        fill(chain, 1)
    assert chain.segments == []
    assert fs.list(B) == []


def test_read_only_directories() -> None:
    """Segments in read-only directories are read, filled and removed; new segments are created elsewhere."""
    fs = MemoryFs()
    first = open_chain(fs, SegmentDirectories((OLD,)))
    fill(first, 2)
    chain = open_chain(fs, SegmentDirectories((A,), (OLD,)))
    chain.truncate_after(SIZE + 100)
    active = chain.active
    assert active is not None
    assert active.path.parent == OLD
    active.advance(SIZE)
    assert fill(chain, 2) == [A, A]
    assert drop_first(fs, chain).path.parent == OLD
    assert drop_first(fs, chain).path.parent == OLD
    assert fs.list(OLD) == []


def test_removals_are_durable_where_they_happen() -> None:
    """A removed segment does not come back after a power cut, in any directory."""
    fs = MemoryFs()
    places = SegmentDirectories((A, B))
    chain = open_chain(fs, places)
    fill(chain, 5)
    chain.sync()
    drop_first(fs, chain)
    drop_first(fs, chain)
    chain.truncate_after(3 * SIZE)
    fs.crash(nothing_survives)
    again = open_chain(fs, places)
    assert [segment.base_physical_offset for segment in again.segments] == [2 * SIZE]
    again.destroy()
    assert fs.list(A) == fs.list(B) == []


def test_leftovers_go_in_every_directory() -> None:
    """Unfinished files and an empty last segment are removed from each directory, and no other file."""
    fs = MemoryFs()
    fill(open_chain(fs, SegmentDirectories((A, B))), 2)
    for directory in (A, B):
        fs.append(directory / f"{5 * SIZE:020d}.tmp", b"x")
        fs.append(directory / "notes", b"x")
    fs.append(B / f"{2 * SIZE:020d}", b"")
    chain = open_chain(fs, SegmentDirectories((A, B)))
    assert len(chain.segments) == 2
    assert fs.list(A) == [f"{0:020d}", "notes"]
    assert fs.list(B) == [f"{SIZE:020d}", "notes"]


def test_what_does_not_fit_together_is_named() -> None:
    """A segment that no directory has raises SegmentMissing; a segment in two directories raises SegmentTwice."""
    fs = MemoryFs()
    fill(open_chain(fs, SegmentDirectories((A, B))), 4)
    with pytest.raises(SegmentMissing):
        open_chain(fs, SegmentDirectories((A,)))
    fs.append(B / f"{0:020d}", bytes(SIZE))
    with pytest.raises(SegmentTwice, match=f"{B}.*{A}"):
        open_chain(fs, SegmentDirectories((A, B)))
    with pytest.raises(SegmentTwice):
        log_directories.segment_paths(fs, [A, B])


def test_the_file_of_the_directories() -> None:
    """The usual directory alone needs no file.

    Paths below the data directory move with it. A change replaces the file.
    """
    fs = MemoryFs()
    usual = DATA_DIR / "commitlog"
    fs.make_directory(DATA_DIR)
    assert log_directories.load(fs, DATA_DIR) == [usual]
    log_directories.save(fs, DATA_DIR, [usual])
    assert not fs.exists(DATA_DIR / store_layout.LOG_DIRECTORIES)
    log_directories.save(fs, DATA_DIR, [usual, B])
    assert log_directories.load(fs, DATA_DIR) == [usual, B]
    moved = Path("/moved")
    fs.make_directory(moved / "reput")
    fs.write_atomic(moved / store_layout.LOG_DIRECTORIES, fs.read(DATA_DIR / store_layout.LOG_DIRECTORIES))
    assert log_directories.load(fs, moved) == [moved / "commitlog", B]
    log_directories.save(fs, DATA_DIR, [usual])
    assert log_directories.load(fs, DATA_DIR) == [usual]


@pytest.mark.parametrize("content", [b"", b"?", b'{"directories": "x"}'])
def test_a_damaged_file_of_the_directories(content: bytes) -> None:
    """A damaged file raises FormatError, because to read a part of the log silently would be worse."""
    fs = MemoryFs()
    fs.make_directory(DATA_DIR / "reput")
    log_directories.save(fs, DATA_DIR, [A])
    whole = fs.read(DATA_DIR / store_layout.LOG_DIRECTORIES)
    for data in (content, whole[:-1], whole[:-3] + b"x" + whole[-2:]):
        fs.write_atomic(DATA_DIR / store_layout.LOG_DIRECTORIES, data)
        with pytest.raises(FormatError):
            log_directories.load(fs, DATA_DIR)
