# SPDX-License-Identifier: Apache-2.0
"""PosixFs alone: the behaviour of a real file system, and the refusals."""

import errno
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from libs.machine import btrfs
from libs.machine.errors import DiskFull, FileSystemUnsuited
from libs.machine.posix_fs import PosixFs


def test_a_shortened_file_can_not_be_made_durable(tmp_path: Path) -> None:
    """A sync of a file that another program shortened raises OSError with the end of the file."""
    mapped = PosixFs().create_mapped(tmp_path / "f", 8192)
    os.truncate(tmp_path / "f", 4096)
    with pytest.raises(OSError, match="ends at byte 4096"):
        mapped.sync()
    mapped.close()


@pytest.mark.parametrize("has_unnamed_files", [True, False])
def test_what_a_kill_leaves_of_a_file_that_is_being_made(tmp_path: Path, has_unnamed_files: bool) -> None:
    """A kill leaves no file, or a temporary name on a system without unnamed files.

    RocketMQ refuses a store with an unknown file in it.
    """
    program = f"""
import pathlib
from libs.machine import posix_fs
from libs.machine.failpoints import armed
if not {has_unnamed_files}:
    posix_fs.os.O_TMPFILE = 0  # opening a directory to write is EISDIR, as on a kernel that does not know the flag
fs = posix_fs.PosixFs()
fs.create_mapped(pathlib.Path("whole"), 4096)
with armed("create.before_rename", "kill"):
    fs.create_mapped(pathlib.Path("unfinished"), 4096)
"""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4])}
    done = subprocess.run([sys.executable, "-c", program], cwd=tmp_path, env=environment, check=False)
    assert done.returncode == -signal.SIGKILL
    assert sorted(path.name for path in tmp_path.iterdir()) == ["unfinished.tmp"] * (not has_unnamed_files) + ["whole"]


@pytest.mark.parametrize("code", [errno.EINVAL, errno.EOPNOTSUPP])
def test_data_ranges_where_the_file_system_does_not_know(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    """If the file system does not know holes, all bytes are data."""

    def refuse(*_arguments: object) -> None:
        raise OSError(code, "no")

    mapped = PosixFs().create_mapped(tmp_path / "f", 4096)
    monkeypatch.setattr("os.lseek", refuse)
    assert mapped.data_ranges(7) == [(7, 4096)]
    mapped.close()


def test_a_full_disk_leaves_nothing_behind_on_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """ENOSPC of the kernel leaves no file behind."""

    def refuse(*_arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("os.posix_fallocate", refuse)
    with pytest.raises(DiskFull):
        PosixFs().create_mapped(tmp_path / "f", 4_096)
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_can_not_fit_takes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file that cannot fit is refused without an attempt.

    The attempt would fill the disk for some time, and other writers would fail.
    """
    monkeypatch.setattr("os.posix_fallocate", lambda *_arguments: pytest.fail("tried"))
    with pytest.raises(DiskFull):
        PosixFs().create_mapped(tmp_path / "f", 1 << 60)
    assert list(tmp_path.iterdir()) == []


def test_blocks_are_reserved_not_sparse(tmp_path: Path) -> None:
    """A new file owns all its blocks, so that a store into the mapping can't meet a full disk."""
    PosixFs().create_mapped(tmp_path / "f", 1 << 20).close()
    assert (tmp_path / "f").stat().st_blocks * 512 >= 1 << 20


@pytest.mark.parametrize(
    ("flags_before", "refusal", "is_set"),
    [(0, None, True), (btrfs.FS_NOCOW_FL, None, False), (0, errno.EPERM, False)],
)
def test_copy_on_write_is_turned_off_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags_before: int, refusal: int | None, is_set: bool
) -> None:
    """On btrfs the directory gets NOCOW.

    If this is not allowed, FileSystemUnsuited is raised with the remedy.
    """
    sets = []

    def ioctl(_descriptor: int, request: int, argument: bytes) -> bytes:
        if request == btrfs.FS_IOC_GETFLAGS:
            return flags_before.to_bytes(8, "little")
        if refusal is not None:
            raise OSError(refusal, "refused")
        sets.append(int.from_bytes(argument, "little"))
        return argument

    monkeypatch.setattr(btrfs, "file_system_type", lambda _path: btrfs.BTRFS_SUPER_MAGIC)
    monkeypatch.setattr("fcntl.ioctl", ioctl)
    fs = PosixFs()
    if refusal is not None:
        with pytest.raises(FileSystemUnsuited, match=r"chattr \+C"):
            fs.create_mapped(tmp_path / "f", 4096)
        return
    fs.create_mapped(tmp_path / "f", 4096).close()
    assert sets == ([btrfs.FS_NOCOW_FL] if is_set else [])


def test_the_type_of_the_file_system_is_known(tmp_path: Path) -> None:
    """statfs answers for a real directory and fails for a missing directory."""
    assert btrfs.file_system_type(tmp_path) > 0
    with pytest.raises(FileNotFoundError):
        btrfs.file_system_type(tmp_path / "missing")


def test_a_short_write_goes_on_where_it_stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """If the kernel writes only a part, the rest is written behind it."""
    mapped = PosixFs().create_mapped(tmp_path / "f", 4096)
    pwrite = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, at: pwrite(descriptor, bytes(data[:7]), at))
    mapped.write(10, memoryview(bytes(range(100))))
    assert bytes(mapped.buffer[10:110]) == bytes(range(100))
    mapped.close()


def test_holes_of_a_file_get_their_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A sparse file gets the requested blocks and keeps its bytes; without room no block is taken."""
    path, size = tmp_path / "f", 1 << 20
    with path.open("wb") as file:
        file.truncate(size)
        os.pwrite(file.fileno(), b"abc", 500_000)
    mapped = PosixFs().open_mapped(path)
    before = path.stat().st_blocks
    with monkeypatch.context() as patch:
        patch.setattr("libs.machine.posix_fs._free_bytes", lambda _place: size // 2)
        with pytest.raises(DiskFull) as caught:
            mapped.reserve(0, size)
    assert caught.value.needed_bytes == size - before * 512
    assert path.stat().st_blocks == before
    mapped.reserve(0, 16_384)
    assert path.stat().st_blocks == before + 16_384 // 512
    mapped.reserve(0, size)
    mapped.reserve(0, size)
    assert path.stat().st_blocks * 512 >= size
    assert bytes(mapped.buffer) == bytes(500_000) + b"abc" + bytes(size - 500_003)
    mapped.close()


def test_check_readable_tells_of_what_a_touch_would_not_survive(tmp_path: Path) -> None:
    """check_readable raises an error with the file's name for a missing page, whose use would be a SIGBUS."""
    mapped = PosixFs().create_mapped(tmp_path / "f", 1 << 20)
    os.truncate(tmp_path / "f", 300_000)
    mapped.check_readable(0, 300_000)
    with pytest.raises(OSError, match="the file ends at byte 300000") as caught:
        mapped.check_readable(0, 1 << 20)
    assert caught.value.filename == str(tmp_path / "f")
