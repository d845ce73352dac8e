# SPDX-License-Identifier: Apache-2.0
"""The data that a crash of MemoryFs takes away, and the data that it may not take."""

import random
from pathlib import Path

import pytest

from libs.machine.errors import StoreLocked
from libs.machine.failpoints import armed
from libs.machine.testing.memory_fs import MemoryFs, PowerCut, everything_survives

FILE = Path("/d/f")


@pytest.fixture
def fs() -> MemoryFs:
    fs = MemoryFs()
    fs.make_directory(Path("/d"))
    return fs


def test_unsynced_bytes_are_lost(fs: MemoryFs) -> None:
    """Bytes that were written after the last sync are lost; synced bytes are there."""
    mapped = fs.create_mapped(FILE, 8192)
    mapped.buffer[:4] = b"kept"
    mapped.sync()
    mapped.buffer[4:8] = b"lost"
    mapped.buffer[5000:5004] = b"lost"
    fs.crash()
    assert fs.read(FILE) == b"kept".ljust(8192, b"\0")


@pytest.mark.parametrize(("are_names_kept", "found"), [(False, None), (True, 0)])
def test_a_file_that_needs_not_be_durable_may_be_gone_or_empty(
    fs: MemoryFs, are_names_kept: bool, found: int | None
) -> None:
    """A power cut leaves no file, or an empty file, until the file and its directory are synced.

    After the syncs the file stays.
    """
    fs.make_directory(FILE.parent / "e", is_durable=False)
    for path in (FILE, FILE.parent / "e" / "f"):
        fs.create_mapped(path, 8192, reserved_bytes=4096, is_durable=False)
    twin = fs.after_crash(lambda _, page: page is None and are_names_kept)
    assert (twin.size(FILE) if twin.exists(FILE) else None) == found
    assert twin.exists(FILE.parent / "e") == are_names_kept
    for path in (FILE, FILE.parent / "e" / "f"):
        fs.open_mapped(path).sync()
        fs.sync_directory(path.parent)
    fs.crash()
    assert fs.read(FILE) == fs.read(FILE.parent / "e" / "f") == bytes(8192)


def test_a_killed_process_loses_nothing(fs: MemoryFs) -> None:
    """If everything survives, the next process sees the page cache."""
    mapped = fs.create_mapped(FILE, 4096)
    mapped.buffer[:4] = b"kept"
    fs.write_atomic(Path("/d/h"), b"h")
    fs.remove(Path("/d/h"))
    fs.crash(everything_survives)
    assert fs.read(FILE)[:4] == b"kept"
    assert fs.list(Path("/d")) == ["f"]


def test_a_sync_after_a_failed_one_is_a_lie(fs: MemoryFs) -> None:
    """Pages of a failed sync are lost although the next sync succeeds, as on real disks.

    Later writes are kept.
    """
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


def test_writing_again_repairs_a_failed_sync(fs: MemoryFs) -> None:
    """The same bytes, written once more, are dirty again, and the next sync puts them on the disk."""
    mapped = fs.create_mapped(FILE, 2 * 4096)
    mapped.buffer[:] = b"x" * (2 * 4096)
    mapped.fail_sync()
    mapped.write(4096, memoryview(bytes(mapped.buffer[4096:])))
    mapped.sync()
    fs.crash()
    assert fs.read(FILE) == bytes(4096) + b"x" * 4096


def test_a_page_is_torn_by_sectors(fs: MemoryFs) -> None:
    """Any of the eight sectors of a surviving page may be new.

    The last page of a file may be short.
    """
    mapped = fs.create_mapped(FILE, 4096 + 1000)
    mapped.buffer[:] = b"n" * (4096 + 1000)
    fs.crash(lambda _path, _page: True, lambda _path, page: (0b1000_0010, 0b0000_0010)[page])
    content = fs.read(FILE)
    assert [content[at : at + 1] for at in range(0, 4096, 512)] == [b"\0", b"n", *[b"\0"] * 5, b"n"]
    assert content[4096:] == bytes(512) + b"n" * 488


def test_a_power_cut_by_chance_repeats() -> None:
    """The same seed leaves the same data; the ratios are the shares of pages, names and torn pages."""

    def left(seed: int, *, page_ratio: float, name_ratio: float, torn_ratio: float) -> tuple[list[str], bytes]:
        fs = MemoryFs()
        mapped = fs.create_mapped(Path("/f"), 64 * 4096)
        mapped.buffer[:] = b"x" * (64 * 4096)
        for index in range(32):
            fs.write_atomic(Path(f"/{index}"), b"")
        for index in range(32):
            fs.remove(Path(f"/{index}"))
        cut = PowerCut(random.Random(seed), page_ratio=page_ratio, name_ratio=name_ratio, torn_ratio=torn_ratio)
        fs.crash(cut.survives, cut.tear)
        return fs.list(Path("/")), fs.read(Path("/f"))

    some = {"page_ratio": 0.5, "name_ratio": 0.5, "torn_ratio": 0.5}
    assert left(1, **some) == left(1, **some) != left(2, **some)
    assert left(1, page_ratio=1, name_ratio=1, torn_ratio=0) == (["f"], b"x" * (64 * 4096))
    assert left(1, page_ratio=0, name_ratio=0, torn_ratio=1)[1] == bytes(64 * 4096)
    names, content = left(1, page_ratio=1, name_ratio=0, torn_ratio=1)
    assert len(names) == 33
    assert 0 < content.count(b"x" * 512) < 64 * 8


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
    """Of two unsynced changes of a directory, the kernel may have written either, in any order."""
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
    """A mapping or lock of the dead process has no effect on the next process."""
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
