# SPDX-License-Identifier: Apache-2.0
"""What a crash takes away in MemoryFs, and what it may not."""

import random
from pathlib import Path

import pytest

from libs.machine.errors import StoreLocked
from libs.machine.failpoints import armed
from libs.machine.memory_fs import MemoryFs, everything_survives

FILE = Path("/d/f")


@pytest.fixture
def fs() -> MemoryFs:
    fs = MemoryFs()
    fs.make_directory(Path("/d"))
    return fs


def test_unsynced_bytes_are_lost(fs: MemoryFs) -> None:
    """What was written after the last sync is gone; what was synced is there."""
    mapped = fs.create_mapped(FILE, 8192)
    mapped.buffer[:4] = b"kept"
    mapped.sync()
    mapped.buffer[4:8] = b"lost"
    mapped.buffer[5000:5004] = b"lost"
    fs.crash()
    assert fs.read(FILE) == b"kept".ljust(8192, b"\0")


def test_a_killed_process_loses_nothing(fs: MemoryFs) -> None:
    """With everything surviving, the page cache is what the next process sees."""
    mapped = fs.create_mapped(FILE, 4096)
    mapped.buffer[:4] = b"kept"
    fs.write_atomic(Path("/d/h"), b"h")
    fs.remove(Path("/d/h"))
    fs.crash(everything_survives)
    assert fs.read(FILE)[:4] == b"kept"
    assert fs.list(Path("/d")) == ["f"]


def test_a_sync_after_a_failed_one_is_a_lie(fs: MemoryFs) -> None:
    """As on real disks: pages of a failed sync are lost although the next sync succeeds; later writes are kept."""
    mapped = fs.create_mapped(FILE, 3 * 4096)
    mapped.buffer[0] = ord("a")
    mapped.buffer[4096] = ord("b")
    with armed("file.sync", "raise"), pytest.raises(OSError, match="failpoint"):
        mapped.sync()
    mapped.buffer[4097] = ord("c")
    mapped.buffer[8192] = ord("d")
    mapped.sync()
    assert fs.read(FILE)[:1] == b"a"
    fs.crash()
    content = fs.read(FILE)
    assert (content[0], content[4096:4098], content[8192]) == (0, b"bc", ord("d"))


def test_pages_survive_one_by_one(fs: MemoryFs) -> None:
    """The caller decides for each unsynced page, and is not asked about the others."""
    mapped = fs.create_mapped(FILE, 4 * 4096)
    mapped.buffer[:] = b"a" * (4 * 4096)
    mapped.sync()
    for page in (1, 2, 3):
        mapped.buffer[page * 4096] = ord("b")
    asked: list[tuple[Path, int | None]] = []

    def survives(path: Path, page: int | None) -> bool:
        asked.append((path, page))
        return page == 2

    fs.crash(survives)
    assert asked == [(FILE, 1), (FILE, 2), (FILE, 3)]
    assert [chr(fs.read(FILE)[page * 4096]) for page in range(4)] == ["a", "a", "b", "a"]


@pytest.mark.parametrize("is_synced", [False, True])
def test_names_need_a_sync_of_the_directory(fs: MemoryFs, is_synced: bool) -> None:
    """A removal and a rename are undone by a crash unless the directory was synced."""
    fs.write_atomic(FILE, b"f")
    fs.write_atomic(Path("/d/g"), b"g")
    fs.remove(FILE)
    fs.rename(Path("/d/g"), Path("/d/h"))
    if is_synced:
        fs.sync_directory(Path("/d"))
    fs.crash()
    assert fs.list(Path("/d")) == (["h"] if is_synced else ["f", "g"])


def test_a_name_may_survive_without_its_sync(fs: MemoryFs) -> None:
    """The kernel may have written one of two unsynced changes of a directory, in any order."""
    fs.write_atomic(FILE, b"f")
    fs.write_atomic(Path("/d/g"), b"g")
    fs.remove(FILE)
    fs.remove(Path("/d/g"))
    fs.crash(lambda path, page: page is None and path.name == "g")
    assert fs.list(Path("/d")) == ["f"]


@pytest.mark.parametrize("method", ["create_mapped", "write_atomic", "append", "make_directory"])
def test_what_promises_durability_survives(fs: MemoryFs, method: str) -> None:
    """Methods that are durable on return need no further sync."""
    arguments = {"create_mapped": (4096,), "write_atomic": (b"x",), "append": (b"x",), "make_directory": ()}
    getattr(fs, method)(Path("/d/new"), *arguments[method])
    fs.crash()
    assert fs.exists(Path("/d/new"))


def test_handles_from_before_a_crash_are_dead(fs: MemoryFs) -> None:
    """A mapping or lock of the dead process changes nothing for the next one."""
    mapped = fs.create_mapped(FILE, 4096)
    lock = fs.lock(Path("/d/lock"))
    with pytest.raises(StoreLocked):
        fs.lock(Path("/d/lock"))
    fs.crash()
    mapped.buffer[:4] = b"dead"
    mapped.sync()
    again = fs.lock(Path("/d/lock"))
    lock.release()
    with pytest.raises(StoreLocked):
        fs.lock(Path("/d/lock"))
    again.release()
    fs.crash()
    assert fs.read(FILE) == bytes(4096)


def test_crashes_are_repeatable(fs: MemoryFs) -> None:
    """The same seed gives the same disk."""

    def run(seed: int) -> bytes:
        fs = MemoryFs()
        mapped = fs.create_mapped(Path("/f"), 64 * 4096)
        mapped.buffer[:] = b"x" * (64 * 4096)
        chance = random.Random(seed)
        fs.crash(lambda _path, _page: chance.random() < 0.5)
        return fs.read(Path("/f"))

    assert run(1) == run(1)
    assert run(1) != run(2)
