# SPDX-License-Identifier: Apache-2.0
"""The size of a ballast, the steps that it gives way to, and the space that it leaves."""

import threading
from pathlib import Path

import pytest

from libs.machine.errors import DiskFull
from libs.machine.fs import PAGE_SIZE_BYTES
from libs.machine.testing.memory_fs import MemoryFs, nothing_survives
from libs.segments.ballast import Ballast
from libs.segments.errors import StoreFull
from tests.support.patience import LIMIT_S

BALLAST = Path("/home/reput/ballast")
FILE = BALLAST.with_name("file")
SIZE = 4 * PAGE_SIZE_BYTES


def made(fs: MemoryFs, size_bytes: int = SIZE, reserve_bytes: int = 0) -> Ballast:
    """A ballast, as a new process makes it."""
    return Ballast(fs, BALLAST, size_bytes=size_bytes, reserve_bytes=reserve_bytes)


def full_disk() -> MemoryFs:
    """A disk without a free byte, but with a ballast."""
    fs = MemoryFs()
    fs.make_directory(BALLAST.parent)
    made(fs).occupy()
    assert fs.size(BALLAST) == SIZE
    fs.capacity_bytes = fs.used_bytes()
    return fs


def test_a_small_file_finds_room() -> None:
    """The ballast gives way for the time of the write, and takes back the room that the file leaves."""
    fs = full_disk()
    made(fs).roomy_fs().write_atomic(FILE, bytes(100))
    assert fs.size(FILE) == 100
    assert SIZE - 100 - 512 <= fs.size(BALLAST) <= SIZE - 100


def test_a_file_that_is_too_large_leaves_everything_as_it_was() -> None:
    """A file larger than the ballast is refused with DiskFull, as without a ballast."""
    fs = full_disk()
    with pytest.raises(DiskFull):
        made(fs).roomy_fs().write_atomic(FILE, bytes(SIZE + 1))
    assert not fs.exists(FILE)
    assert fs.size(BALLAST) == SIZE


def test_it_stays_where_there_is_room() -> None:
    """With enough room, neither a write nor a step that might need room touches the ballast's file."""
    fs = full_disk()
    fs.capacity_bytes += SIZE
    file = fs.file(BALLAST)
    ballast = made(fs)
    with ballast.given_way():
        assert fs.size(BALLAST) == SIZE
    ballast.roomy_fs().write_atomic(FILE, bytes(SIZE))
    ballast.occupy()
    assert fs.file(BALLAST) is file


def test_a_crash_while_it_is_away_costs_nothing() -> None:
    """After a crash the empty file is left, and the next process takes its room back, even if no reserve is left."""
    fs = full_disk()
    made(fs, reserve_bytes=SIZE).give_way()
    fs.crash(nothing_survives)
    assert fs.size(BALLAST) == 0
    made(fs, reserve_bytes=SIZE).occupy()
    assert fs.size(BALLAST) == SIZE


def test_nobody_takes_back_what_another_thread_needs() -> None:
    """Only the step for which the ballast gave way takes it back; other threads meanwhile find room and leave it."""
    fs = full_disk()
    ballast = made(fs)
    with ballast.given_way():
        for step in (ballast.occupy, ballast.give_way, lambda: ballast.roomy_fs().write_atomic(FILE, b"small")):
            other = threading.Thread(target=step)
            other.start()
            other.join()
            assert fs.size(BALLAST) == 0
    assert fs.read(FILE) == b"small"
    assert fs.size(BALLAST) > SIZE // 2


def test_switched_off_it_helps_once_more() -> None:
    """A start with another size on a full disk uses the room of the old file, which is then removed or shrinks."""
    for size_bytes in (0, PAGE_SIZE_BYTES):
        fs = full_disk()
        with made(fs, size_bytes).given_way():
            fs.write_atomic(FILE, bytes(100))
        assert fs.exists(BALLAST) is (size_bytes > 0)
        assert size_bytes == 0 or fs.size(BALLAST) == size_bytes


@pytest.mark.parametrize(
    ("configured", "has", "free", "given", "expected"),
    [
        (8, 0, 18, 0, 8),
        (8, 0, 17, 0, None),
        (8, 3, 15, 0, 8),
        (8, 3, 14, 0, 3),
        (8, 0, 17, 5, 8),
        (8, 0, 3, 5, 3),
        (8, 0, 0, 5, 0),
        (8, 0, 18, 5, 8),
        (8, 8, 100, 0, 8),
        (4, 8, 0, 0, 4),
        (0, 8, 100, 0, None),
        (0, 0, 100, 0, None),
    ],
)
def test_size_of_the_ballast(configured: int, has: int, free: int, given: int, expected: int | None) -> None:
    """The ballast takes back its own space as far as there is room, and grows only if ten pages stay free."""
    fs = MemoryFs()
    fs.make_directory(BALLAST.parent)
    ballast = made(fs, configured * PAGE_SIZE_BYTES, 10 * PAGE_SIZE_BYTES)
    for size in filter(None, (given, has)):
        fs.append(BALLAST, bytes(size * PAGE_SIZE_BYTES))
        fs.capacity_bytes = size * PAGE_SIZE_BYTES
        if given:
            ballast.give_way()
    fs.capacity_bytes = (has + free) * PAGE_SIZE_BYTES
    ballast.occupy()
    found = fs.size(BALLAST) // PAGE_SIZE_BYTES if fs.exists(BALLAST) else None
    assert found == expected


def test_who_makes_files_gets_nothing_of_it() -> None:
    """A step waits for files that are being made; meanwhile no file is begun, and afterwards files are made again."""
    ballast = made(full_disk())
    is_making, may_end, is_done = threading.Event(), threading.Event(), threading.Event()

    def make_file() -> None:
        with ballast.spared():
            is_making.set()
            assert may_end.wait(LIMIT_S)

    def step() -> None:
        with ballast.given_way(), pytest.raises(StoreFull), ballast.spared():
            pass
        is_done.set()

    threads = [threading.Thread(target=make_file), threading.Thread(target=step)]
    threads[0].start()
    assert is_making.wait(LIMIT_S)
    threads[1].start()
    assert not is_done.wait(0.1)
    may_end.set()
    assert is_done.wait(LIMIT_S)
    for thread in threads:
        thread.join()
    with ballast.spared(), ballast.spared():
        pass
