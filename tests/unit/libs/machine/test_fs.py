# SPDX-License-Identifier: Apache-2.0
"""PosixFs and its twin MemoryFs keep the same promises: every test here runs against both."""

import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from libs.machine.errors import DiskFull, StoreLocked
from libs.machine.failpoints import FailpointRaised, armed
from libs.machine.fs import Fs, ReadableFile
from libs.machine.posix_fs import PosixFs
from libs.machine.testing.memory_fs import MemoryFs, everything_survives


@dataclass(frozen=True)
class World:
    """A file system and an empty directory in it."""

    fs: Fs
    home: Path


@pytest.fixture(params=["posix", "memory"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "posix":
        yield World(PosixFs(), tmp_path)
    else:
        fs = MemoryFs()
        fs.make_directory(Path("/home"))
        yield World(fs, Path("/home"))


@pytest.mark.parametrize("is_written", [False, True], ids=["mapped", "written"])
@pytest.mark.parametrize("way", ["removed", "made_again", "renamed_over", "written_over"])
def test_a_removed_file_can_not_be_made_durable(world: World, is_written: bool, way: str) -> None:
    """A sync of a removed or replaced file raises FileNotFoundError with its path.

    Bytes that are stored into such a file would be lost with the process.
    """
    path = world.home / "f"
    mapped = world.fs.create_mapped(path, 8192)
    if is_written:
        mapped.write(0, memoryview(b"abc"))
    mapped.sync()
    if way == "written_over":
        world.fs.write_atomic(path, b"new")
    elif way == "renamed_over":
        world.fs.write_atomic(world.home / "g", b"new")
        world.fs.rename(world.home / "g", path)
    else:
        world.fs.remove(path)
    if way == "made_again":
        world.fs.create_mapped(path, 8192).close()
    with pytest.raises(FileNotFoundError) as caught:
        mapped.sync()
    assert caught.value.filename == str(path)
    mapped.close()


def test_a_created_file_is_zeros_of_full_size(world: World) -> None:
    """A new mapped file has its size and reads as zeros."""
    mapped = world.fs.create_mapped(world.home / "f", 10_000)
    assert (mapped.size_bytes, mapped.path) == (10_000, world.home / "f")
    assert bytes(mapped.buffer) == bytes(10_000)
    assert world.fs.list(world.home) == ["f"]
    assert world.fs.size(world.home / "f") == 10_000
    mapped.close()


def piece(file: ReadableFile, position: int, size_bytes: int, *, may_wait: bool) -> bytes:
    """Read the bytes at a position."""
    target = bytearray(size_bytes)
    count = file.read(position, memoryview(target), may_wait=may_wait)
    assert count is not None
    return bytes(target[:count])


@pytest.mark.parametrize("may_wait", [True, False])
def test_pieces_of_a_file_that_others_write(world: World, *, may_wait: bool) -> None:
    """A piece has the bytes that were written last, and fewer bytes at the end of the file.

    A removed file is reported as removed and stays readable.
    """
    mapped = world.fs.create_mapped(world.home / "f", 8192)
    file = world.fs.open_readable(world.home / "f")
    mapped.buffer[4090:4100] = b"0123456789"
    assert piece(file, 4092, 6, may_wait=may_wait) == b"234567"
    assert piece(file, 8000, 500, may_wait=True) == bytes(192)
    assert not file.is_removed()
    world.fs.remove(world.home / "f")
    assert file.is_removed()
    assert piece(file, 4090, 2, may_wait=may_wait) == b"01"
    world.fs.create_mapped(world.home / "f", 4096).close()
    assert file.is_removed()
    with pytest.raises(FileNotFoundError):
        world.fs.open_readable(world.home / "g")
    mapped.close()


def test_all_mappings_of_a_file_see_a_write(world: World) -> None:
    """A store into a mapping is read through another mapping and through `read`, without a sync."""
    one = world.fs.create_mapped(world.home / "f", 4096)
    two = world.fs.open_mapped(world.home / "f", writable=False)
    one.buffer[5:8] = b"abc"
    assert bytes(two.buffer[4:9]) == b"\0abc\0"
    assert world.fs.read(world.home / "f")[5:8] == b"abc"
    with pytest.raises(TypeError):
        two.buffer[0] = 1
    one.sync()
    one.close()
    two.close()


def test_views_outlive_the_mapping_and_the_file(world: World) -> None:
    """A file that is closed and removed during a read causes no error, and the reader keeps its bytes."""
    mapped = world.fs.create_mapped(world.home / "f", 4096)
    mapped.buffer[:3] = b"abc"
    view = mapped.buffer[:3]
    mapped.close()
    mapped.close()
    world.fs.remove(world.home / "f")
    assert bytes(view) == b"abc"


def test_create_refuses_an_existing_file(world: World) -> None:
    """A file is never created over another file."""
    world.fs.write_atomic(world.home / "f", b"x")
    with pytest.raises(FileExistsError):
        world.fs.create_mapped(world.home / "f", 4096)
    assert world.fs.read(world.home / "f") == b"x"


@pytest.mark.parametrize("point", ["create.before_rename", "write_atomic.before_sync", "write_atomic.before_rename"])
def test_a_file_appears_whole_or_not_at_all(world: World, point: str) -> None:
    """A failure before the rename leaves no file under a new name, and the old content under an old name."""
    world.fs.write_atomic(world.home / "old", b"old")
    with armed(point, "raise"):
        if point.startswith("create"):
            with pytest.raises(FailpointRaised):
                world.fs.create_mapped(world.home / "new", 4096)
        else:
            with pytest.raises(FailpointRaised):
                world.fs.write_atomic(world.home / "old", b"new")
    assert world.fs.list(world.home) == ["old"]
    assert world.fs.read(world.home / "old") == b"old"
    world.fs.write_atomic(world.home / "old", b"new")
    world.fs.create_mapped(world.home / "new", 4096).close()
    assert world.fs.list(world.home) == ["new", "old"]


def test_a_file_that_could_not_be_finished_can_be_made_again(world: World) -> None:
    """An error after the file has its name removes the name, so that the next attempt succeeds."""
    with armed("create.after_rename", "raise@1"), pytest.raises(FailpointRaised):
        world.fs.create_mapped(world.home / "f", 4096)
    assert world.fs.list(world.home) == []
    world.fs.create_mapped(world.home / "f", 4096).close()


def test_data_ranges_leave_out_what_nobody_wrote(world: World) -> None:
    """Every byte that was written is inside, synced or not, through this mapping or another; little else is."""
    size, positions = 64 << 20, (5_000, 40 << 20)
    mapped = world.fs.create_mapped(world.home / "f", size)
    other = world.fs.open_mapped(world.home / "f")
    assert mapped.data_ranges(0) == mapped.data_ranges(size) == []
    mapped.buffer[positions[0]] = 1
    other.buffer[positions[1]] = 1
    for _ in range(2):
        ranges = mapped.data_ranges(100)
        assert all(100 <= start < end <= size for start, end in ranges)
        assert [sum(start <= at < end for start, end in ranges) for at in positions] == [1, 1]
        assert sum(end - start for start, end in ranges) < 16 << 20  # pages around each were read with it
        mapped.sync()
    mapped.close()
    other.close()


def test_write_atomic_replaces_and_append_adds(world: World) -> None:
    """The content is the last atomic write plus all later appends."""
    path = world.home / "f"
    world.fs.append(path, b"a")
    world.fs.append(path, b"b")
    assert world.fs.read(path) == b"ab"
    world.fs.write_atomic(path, b"c")
    world.fs.append(path, b"d")
    assert world.fs.read(path) == b"cd"


def test_directories(world: World) -> None:
    """Directories are made with their parents, listed, told from files, and removed when empty."""
    deep = world.home / "a" / "b"
    world.fs.make_directory(deep)
    world.fs.make_directory(deep)
    world.fs.write_atomic(deep / "f", b"")
    assert world.fs.list(world.home / "a") == ["b"]
    assert world.fs.is_directory(deep)
    assert not world.fs.is_directory(deep / "f")
    with pytest.raises(OSError, match="not empty"):
        world.fs.remove_directory(deep)
    world.fs.remove(deep / "f")
    world.fs.remove_directory(deep)
    world.fs.sync_directory(world.home / "a")
    assert not world.fs.exists(deep)
    world.fs.write_atomic(world.home / "file", b"")
    with pytest.raises(NotADirectoryError):
        world.fs.make_directory(world.home / "file")


def test_rename_moves_over_an_old_file(world: World) -> None:
    """The target has the source's content; the source is gone."""
    world.fs.write_atomic(world.home / "source", b"new")
    world.fs.write_atomic(world.home / "target", b"old")
    world.fs.rename(world.home / "source", world.home / "target")
    assert world.fs.list(world.home) == ["target"]
    assert world.fs.read(world.home / "target") == b"new"


@pytest.mark.parametrize("method", ["open_mapped", "read", "remove", "size", "list", "disk_usage"])
def test_what_is_missing_is_named(world: World, method: str) -> None:
    """Each method raises FileNotFoundError for a missing path."""
    with pytest.raises(FileNotFoundError):
        getattr(world.fs, method)(world.home / "missing")


def test_disk_usage_is_plausible(world: World) -> None:
    """The free space is not greater than the total space."""
    usage = world.fs.disk_usage(world.home)
    assert 0 <= usage.free_bytes <= usage.total_bytes
    assert usage.total_bytes > 0


def test_the_lock_excludes_a_second_holder(world: World) -> None:
    """The lock has a single holder, its file has RocketMQ's content, and a read of the file does not end the lock."""
    path = world.home / "lock"
    lock = world.fs.lock(path)
    assert world.fs.read(path) == b"lock"
    with pytest.raises(StoreLocked, match="another process uses this directory") as caught:
        world.fs.lock(path)
    assert caught.value.path == path
    lock.release()
    lock.release()
    world.fs.lock(path).release()


def test_a_failed_sync_is_reported(world: World) -> None:
    """The error of the disk reaches the caller."""
    mapped = world.fs.create_mapped(world.home / "f", 4096)
    with armed("file.sync", "raise"), pytest.raises(OSError, match=r"file\.sync") as caught:
        mapped.sync()
    assert caught.value.errno == errno.EIO
    mapped.close()


def test_a_full_disk_leaves_nothing_behind_in_memory() -> None:
    """DiskFull has the path and the needed bytes, no file is left, and free space can be used later."""
    fs = MemoryFs(capacity_bytes=10_000)
    fs.create_mapped(Path("/a"), 8_000).close()
    with pytest.raises(DiskFull, match="no room for 4096 bytes") as caught:
        fs.create_mapped(Path("/b"), 4_096)
    assert (caught.value.errno, caught.value.needed_bytes) == (errno.ENOSPC, 4_096)
    with pytest.raises(DiskFull):
        fs.write_atomic(Path("/b"), bytes(4_096))
    assert fs.list(Path("/")) == ["a"]
    assert fs.disk_usage(Path("/")).free_bytes == 2_000
    fs.remove(Path("/a"))
    fs.create_mapped(Path("/b"), 4_096).close()


def test_a_file_may_begin_with_fewer_blocks(world: World) -> None:
    """A file with few reserved blocks has its full size and reads as zeros.

    It takes the blocks that are reserved, at first and later. Written bytes stay.
    """
    path = world.home / "f"
    mapped = world.fs.create_mapped(path, 1 << 20, reserved_bytes=4096)
    assert (mapped.size_bytes, world.fs.size(path), world.fs.allocated_bytes(path)) == (1 << 20, 1 << 20, 4096)
    mapped.buffer[:3] = b"abc"
    mapped.reserve(4096, 5000)
    mapped.reserve(4096, 5000)
    assert world.fs.allocated_bytes(path) == 3 * 4096
    mapped.buffer[9000:9003] = b"def"
    mapped.sync()
    assert world.fs.read(path) == b"abc" + bytes(8997) + b"def" + bytes((1 << 20) - 9003)
    mapped.close()


def test_without_room_no_block_is_reserved() -> None:
    """DiskFull has the number of missing bytes, and leaves the file as it was."""
    fs = MemoryFs(capacity_bytes=10_000)
    mapped = fs.create_mapped(Path("/f"), 1 << 20, reserved_bytes=4096)
    with pytest.raises(DiskFull) as caught:
        mapped.reserve(4096, 8192)
    assert (caught.value.needed_bytes, fs.allocated_bytes(Path("/f"))) == (8192, 4096)
    mapped.reserve(0, 4096)
    fs.capacity_bytes = 20_000
    mapped.reserve(4096, 8192)
    assert fs.used_bytes() == 12_288


def test_a_store_where_there_is_no_block_is_noticed() -> None:
    """A store into a page without a block fails in memory.

    On a real disk that is full such a store ends the process, so no test may pass with it.
    """
    mapped = MemoryFs().create_mapped(Path("/f"), 1 << 20, reserved_bytes=4096)
    mapped.buffer[4096] = 1
    with pytest.raises(AssertionError, match="no blocks"):
        mapped.sync()


def test_blocks_outlive_a_crash_as_far_as_they_were_synced() -> None:
    """A crash takes away reserved blocks, unless they were synced or have a page that survives the crash."""
    fs = MemoryFs()
    mapped = fs.create_mapped(Path("/f"), 1 << 20, reserved_bytes=4096)
    mapped.reserve(0, 16_384)
    fs.crash()
    assert fs.used_bytes() == 4096
    mapped = fs.open_mapped(Path("/f"))
    mapped.reserve(0, 16_384)
    mapped.buffer[5000] = 1
    fs.crash(everything_survives)
    assert fs.used_bytes() == 8192


def test_populate_makes_pages_present_and_changes_nothing(world: World) -> None:
    """Populated pages and all others keep their bytes; any stretch of the file may be named."""
    mapped = world.fs.create_mapped(world.home / "f", 1 << 20)
    mapped.buffer[5000:5003] = b"abc"
    mapped.populate(4999, 10_000)
    mapped.populate((1 << 20) - 1, 1)
    assert bytes(mapped.buffer[5000:5003]) == b"abc"
    assert bytes(mapped.buffer).count(0) == (1 << 20) - 3
    mapped.close()


def test_what_is_written_through_the_file_is_in_every_mapping(world: World) -> None:
    """`write` and stores into the mapping meet in the same page cache, and both are durable after a sync."""
    one = world.fs.create_mapped(world.home / "f", 3 * 4096)
    two = world.fs.open_mapped(world.home / "f")
    one.buffer[:2] = b"ab"
    one.write(4000, memoryview(b"x" * 200))
    one.write(one.size_bytes, memoryview(b""))
    assert bytes(two.buffer[3998:4202]) == bytes(2) + b"x" * 200 + bytes(2)
    assert bytes(one.buffer[:2]) == b"ab"
    with pytest.raises(AssertionError):
        one.write(3 * 4096 - 1, memoryview(b"xy"))
    with armed("file.write", "raise"), pytest.raises(OSError, match="failpoint"):
        one.write(0, memoryview(b"z"))
    one.lock()
    one.unlock()
    one.close()
    one.unlock()
    two.close()


def test_check_readable_changes_nothing(world: World) -> None:
    """Any stretch of a file can be read ahead of a touch, also an empty stretch."""
    mapped = world.fs.create_mapped(world.home / "f", 3 << 20)
    mapped.buffer[5000:5003] = b"abc"
    for position, size_bytes in ((0, 3 << 20), (4_999, 10), ((3 << 20) - 1, 1), (7, 0)):
        mapped.check_readable(position, size_bytes)
    world.fs.open_mapped(world.home / "f", writable=False).check_readable(0, 3 << 20)
    assert bytes(mapped.buffer[5000:5003]) == b"abc"
    with armed("file.read", "raise"), pytest.raises(OSError, match="failpoint"):
        mapped.check_readable(0, 1)


def test_what_is_made_is_for_its_user_alone(tmp_path: Path) -> None:
    """Files and directories are readable only for the service's user, with any umask of its shell."""
    fs, before = PosixFs(), os.umask(0)
    try:
        fs.make_directory(tmp_path / "store/reput")
        fs.write_atomic(tmp_path / "store/reput/file", b"x")
    finally:
        os.umask(before)
    modes = [stat.S_IMODE((tmp_path / name).stat().st_mode) for name in ("store", "store/reput", "store/reput/file")]
    assert modes == [0o700, 0o700, 0o600]


def test_many_files_and_names_are_made_durable_as_one_work(world: World) -> None:
    """Bytes and names below the directory survive a power cut; each file is asked whether its write failed."""
    world.fs.make_directory(world.home / "d")
    mapped = world.fs.create_mapped(world.home / "d" / "f", 8192, is_durable=False)
    mapped.buffer[5000] = 7
    if not world.fs.write_back(world.home):
        pytest.skip("the file system of the tests is not known to do this")
    mapped.check_written()
    if isinstance(world.fs, MemoryFs):
        world.fs.crash()
    assert world.fs.open_mapped(world.home / "d" / "f").buffer[5000] == 7
    world.fs.remove(world.home / "d" / "f")
    if isinstance(world.fs, PosixFs):
        with pytest.raises(FileNotFoundError):
            mapped.check_written()


def test_a_write_back_that_fails_is_reported(world: World) -> None:
    """The call reports a file system that fails, and a file reports its own bytes that were lost."""
    mapped = world.fs.create_mapped(world.home / "f", 8192)
    if not world.fs.write_back(world.home):
        pytest.skip("the file system of the tests is not known to do this")
    with armed("fs.before_write_back", "raise"), pytest.raises(FailpointRaised):
        world.fs.write_back(world.home)
    mapped.buffer[0] = 1
    world.fs.write_back(world.home)
    with armed("file.sync", "raise"), pytest.raises(FailpointRaised):
        mapped.check_written()
    if isinstance(world.fs, MemoryFs):
        world.fs.crash()
        assert world.fs.open_mapped(world.home / "f").buffer[0] == 0
