# SPDX-License-Identifier: Apache-2.0
"""FaultyFs: wraps any Fs and makes some calls fail, in the way of a broken or full disk.

A plan decides: it is called before each operation, with the name of the operation and the path, and returns a Fault or
None. It may also raise: in this way a test ends a process at its n-th call. The operations are the methods of Fs, and
the methods `sync`, `check_written`, `write`, `reserve` and `check_readable` of MappedFile. `by_ordinal` and `by_chance`
make plans; both depend only on their arguments.
Invariants: a failed call has no effect on the file system, with two exceptions. The bytes that its Fault lets through
are written, and a sync loses the dirty pages where the wrapped file system can (MemoryFs), like Linux. `disk_usage`,
`exists`, `is_directory` and the release of a lock never fail.
For tests only. Safe from any thread if the plan is.
"""

import contextlib
import errno
import os
import random
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from msgspec.structs import replace

from libs.machine.errors import DiskFull
from libs.machine.fs import TEMPORARY_SUFFIX, DiskUsage, Fs, Lock, MappedFile
from libs.machine.testing.memory_fs import MemoryMappedFile

WRITING_OPERATIONS = ("create_mapped", "reserve", "write_atomic", "append", "make_directory")
"""The operations that a full disk refuses."""

UNFAILING_OPERATIONS = ("exists", "is_directory")


class Fault(NamedTuple):
    """The failure of a call: an errno, after a write, append or replacement wrote this part of its bytes (0 to 1)."""

    code: int
    landed_ratio: float = 0.0


Plan = Callable[[str, Path], Fault | None]
"""Called before each operation, with its name and path."""


def no_faults(_operation: str, _path: Path) -> None:
    """Let all calls succeed."""


def by_ordinal(faults: Mapping[tuple[str, int], Fault]) -> Plan:
    """Let the n-th call (from 1) of an operation fail, for each (operation, n)."""
    counts: Counter[str] = Counter()

    def plan(operation: str, _path: Path) -> Fault | None:
        counts[operation] += 1
        return faults.get((operation, counts[operation]))

    return plan


def by_chance(seed: int, probability: float) -> Plan:
    """Let each call fail with this probability, writes at any length. The seed decides on calls and faults."""
    chance = random.Random(seed)  # noqa: S311 - faults, not a secret

    def plan(_operation: str, _path: Path) -> Fault | None:
        if chance.random() >= probability:
            return None
        return Fault(chance.choice((errno.EIO, errno.ENOSPC, errno.EROFS)), chance.random())

    return plan


class FaultyMappedFile:
    """A mapped file whose calls to the disk may fail."""

    def __init__(self, mapped: MappedFile, fs: "FaultyFs") -> None:
        self._mapped = mapped
        self._fs = fs

    def __getattr__(self, name: str) -> Any:
        return getattr(self._mapped, name)

    def write(self, position: int, data: memoryview) -> None:
        """See `MappedFile.write`."""
        fault = self._fs.plan("write", self.path)
        if fault is not None:
            self._mapped.write(position, data[: int(len(data) * fault.landed_ratio)])
            raise OSError(fault.code, os.strerror(fault.code), str(self.path))
        self._mapped.write(position, data)

    def sync(self) -> None:
        """See `MappedFile.sync`."""
        fault = self._fs.plan("sync", self.path)
        if fault is not None:
            if isinstance(self._mapped, MemoryMappedFile):
                self._mapped.fail_sync()
            raise OSError(fault.code, os.strerror(fault.code), str(self.path))
        self._mapped.sync()

    def check_written(self) -> None:
        """See `MappedFile.check_written`. A fault loses the bytes that `write_back` wrote."""
        fault = self._fs.plan("check_written", self.path)
        if fault is not None:
            if isinstance(self._mapped, MemoryMappedFile):
                self._mapped.fail_write_back()
            raise OSError(fault.code, os.strerror(fault.code), str(self.path))
        self._mapped.check_written()

    def reserve(self, position: int, size_bytes: int) -> None:
        """See `MappedFile.reserve`."""
        self._fs.check("reserve", self.path, size_bytes)
        self._mapped.reserve(position, size_bytes)

    def check_readable(self, position: int, size_bytes: int) -> None:
        """See `MappedFile.check_readable`."""
        self._fs.check("check_readable", self.path)
        self._mapped.check_readable(position, size_bytes)


class FaultyFs:
    """`Fs` over another `Fs`. `plan` and `is_full` may be changed at any time; `is_full` refuses calls that need space.

    A method of `Fs` that is not defined here fails as a whole or succeeds. UNFAILING_OPERATIONS always succeed.
    """

    def __init__(self, fs: Fs, plan: Plan = no_faults) -> None:
        self.plan = plan
        self.is_full = False
        self._fs = fs

    def __getattr__(self, operation: str) -> Any:
        work = getattr(self._fs, operation)

        def call(path: Path, *arguments: Any) -> Any:
            self.check(operation, path)
            return work(path, *arguments)

        return work if operation in UNFAILING_OPERATIONS else call

    def create_mapped(
        self, path: Path, size_bytes: int, *, reserved_bytes: int | None = None, is_durable: bool = True
    ) -> FaultyMappedFile:
        """See `Fs.create_mapped`."""
        self.check("create_mapped", path, size_bytes)
        mapped = self._fs.create_mapped(path, size_bytes, reserved_bytes=reserved_bytes, is_durable=is_durable)
        return FaultyMappedFile(mapped, self)

    def open_mapped(self, path: Path, *, writable: bool = True) -> FaultyMappedFile:
        """See `Fs.open_mapped`."""
        self.check("open_mapped", path)
        return FaultyMappedFile(self._fs.open_mapped(path, writable=writable), self)

    def write_atomic(self, path: Path, data: bytes) -> None:
        """See `Fs.write_atomic`. The written bytes of a failed write stay under the temporary name."""
        fault = self._fault("write_atomic", path)
        if fault is not None:
            temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
            with contextlib.suppress(FileNotFoundError):
                self._fs.remove(temporary)
            self._fs.append(temporary, data[: int(len(data) * fault.landed_ratio)])
            raise _error(fault, path, len(data))
        self._fs.write_atomic(path, data)

    def append(self, path: Path, data: bytes) -> None:
        """See `Fs.append`."""
        fault = self._fault("append", path)
        if fault is not None:
            self._fs.append(path, data[: int(len(data) * fault.landed_ratio)])
            raise _error(fault, path, len(data))
        self._fs.append(path, data)

    def make_directory(self, path: Path, *, is_durable: bool = True) -> None:
        """See `Fs.make_directory`. An existing directory needs no space."""
        if not self._fs.is_directory(path):
            self.check("make_directory", path)
        self._fs.make_directory(path, is_durable=is_durable)

    def disk_usage(self, path: Path) -> DiskUsage:
        """See `Fs.disk_usage`."""
        usage = self._fs.disk_usage(path)
        return replace(usage, free_bytes=0) if self.is_full else usage

    def lock(self, path: Path) -> Lock:
        """See `Fs.lock`."""
        self.check("lock", path)
        return self._fs.lock(path)

    def lock_directory(self, path: Path) -> Lock:
        """See `Fs.lock_directory`."""
        self.check("lock_directory", path)
        return self._fs.lock_directory(path)

    def check(self, operation: str, path: Path, needed_bytes: int = 0) -> None:
        """Raise the error of the plan for this call, or the error of a full disk."""
        fault = self._fault(operation, path)
        if fault is not None:
            raise _error(fault, path, needed_bytes)

    def _fault(self, operation: str, path: Path) -> Fault | None:
        fault = self.plan(operation, path)
        if fault is None and self.is_full and operation in WRITING_OPERATIONS:
            return Fault(errno.ENOSPC)
        return fault


def _error(fault: Fault, path: Path, needed_bytes: int) -> OSError:
    if fault.code == errno.ENOSPC:
        return DiskFull(path, needed_bytes=needed_bytes)
    return OSError(fault.code, os.strerror(fault.code), str(path))
