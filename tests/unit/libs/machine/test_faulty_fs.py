# SPDX-License-Identifier: Apache-2.0
"""FaultyFs fails only at the planned calls, over the real file system and over MemoryFs."""

import errno
from collections.abc import Callable
from pathlib import Path

import pytest

from libs.machine.errors import DiskFull
from libs.machine.fs import Fs
from libs.machine.posix_fs import PosixFs
from libs.machine.testing.faulty_fs import Fault, FaultyFs, by_chance, by_ordinal
from libs.machine.testing.memory_fs import MemoryFs

CALLS: dict[str, Callable[[Fs, Path], object]] = {
    "create_mapped": lambda fs, home: fs.create_mapped(home / "new", 4096),
    "open_mapped": lambda fs, home: fs.open_mapped(home / "old"),
    "read": lambda fs, home: fs.read(home / "old"),
    "write_atomic": lambda fs, home: fs.write_atomic(home / "old", b"new content"),
    "append": lambda fs, home: fs.append(home / "old", b"new content"),
    "remove": lambda fs, home: fs.remove(home / "old"),
    "rename": lambda fs, home: fs.rename(home / "old", home / "new"),
    "list": lambda fs, home: fs.list(home),
    "size": lambda fs, home: fs.size(home / "old"),
    "make_directory": lambda fs, home: fs.make_directory(home / "new"),
    "remove_directory": lambda fs, home: fs.remove_directory(home / "empty"),
    "sync_directory": lambda fs, home: fs.sync_directory(home),
    "lock": lambda fs, home: fs.lock(home / "lock"),
}


@pytest.fixture(params=["posix", "memory"])
def below(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Fs, Path]:
    fs: Fs = PosixFs() if request.param == "posix" else MemoryFs()
    home = tmp_path / "home"
    fs.make_directory(home / "empty")
    fs.write_atomic(home / "old", b"old")
    return fs, home


@pytest.mark.parametrize("operation", CALLS)
def test_a_call_fails_at_its_turn_without_an_effect(below: tuple[Fs, Path], operation: str) -> None:
    """The n-th call fails with the errno of the plan and changes nothing; the call after it succeeds."""
    fs, home = below
    faulty = FaultyFs(fs, by_ordinal({(operation, 1): Fault(errno.EIO)}))
    with pytest.raises(OSError, match="Input/output error") as caught:
        CALLS[operation](faulty, home)
    assert caught.value.errno == errno.EIO
    names = [name for name in fs.list(home) if not name.endswith(".tmp")]
    assert (names, fs.read(home / "old")) == (["empty", "old"], b"old")
    CALLS[operation](faulty, home)


@pytest.mark.parametrize(("ratio", "landed"), [(0.0, b""), (0.5, b"01234"), (1.0, b"0123456789")])
def test_a_part_of_a_write_may_land(below: tuple[Fs, Path], ratio: float, landed: bytes) -> None:
    """A short write leaves its part behind an append, and beside a file that was to be replaced."""
    fs, home = below
    fault = Fault(errno.EIO, ratio)
    faulty = FaultyFs(fs, by_ordinal({("append", 1): fault, ("write_atomic", 1): fault}))
    for write in (faulty.append, faulty.write_atomic):
        with pytest.raises(OSError, match="Input/output error"):
            write(home / "old", b"0123456789")
    assert fs.read(home / "old") == b"old" + landed
    assert fs.read(home / "old.tmp") == landed


def test_a_full_disk_refuses_what_needs_space(below: tuple[Fs, Path]) -> None:
    """New files, replacements and appends fail until there is room again; all other calls continue."""
    fs, home = below
    faulty = FaultyFs(fs)
    faulty.is_full = True
    for operation in ("create_mapped", "write_atomic", "append", "make_directory"):
        with pytest.raises(DiskFull):
            CALLS[operation](faulty, home)
    faulty.make_directory(home / "empty")
    assert faulty.disk_usage(home).free_bytes == 0
    assert faulty.read(home / "old") == b"old"
    faulty.is_full = False
    faulty.write_atomic(home / "old", b"new")
    assert faulty.disk_usage(home).free_bytes > 0


def test_a_sync_that_fails_loses_what_it_should_have_written() -> None:
    """After a failed sync in memory the dirty pages are lost and the next sync succeeds, as on Linux."""
    fs = MemoryFs()
    mapped = FaultyFs(fs, by_ordinal({("sync", 1): Fault(errno.EIO)})).create_mapped(Path("/f"), 4096)
    mapped.buffer[:4] = b"lost"
    with pytest.raises(OSError, match="Input/output error"):
        mapped.sync()
    mapped.sync()
    assert fs.read(Path("/f"))[:4] == b"lost"
    fs.crash()
    assert fs.read(Path("/f"))[:4] == bytes(4)


def test_a_seed_decides_which_calls_fail(below: tuple[Fs, Path]) -> None:
    """The same seed gives the same faults, another seed others; without a probability nothing fails."""
    fs, home = below

    def outcomes(seed: int, probability: float) -> list[int | None]:
        faulty = FaultyFs(fs, by_chance(seed, probability))
        found: list[int | None] = []
        for _ in range(50):
            try:
                faulty.append(home / "log", b"some bytes")
                found.append(None)
            except OSError as error:
                found.append(error.errno)
        return found

    assert outcomes(1, 0.3) == outcomes(1, 0.3) != outcomes(2, 0.3)
    assert {errno.EIO, errno.ENOSPC, errno.EROFS, None} == set(outcomes(1, 0.3))
    assert outcomes(1, 0.0) == [None] * 50
