# SPDX-License-Identifier: Apache-2.0
"""PosixFs: the real file system, as Linux has it.

Invariants: a file with its final name always has its full size and all its blocks (it is made under a temporary name,
allocated, synced, then renamed); a failed sync is reported to the caller and never repeated here.
Not handled: retries, and what a failure means; that is the callers' knowledge.
"""

import contextlib
import ctypes
import errno
import fcntl
import mmap
import os
import struct
from collections.abc import Iterator
from pathlib import Path

from libs.machine.btrfs import ensure_not_copy_on_write
from libs.machine.errors import DiskFull, StoreLocked
from libs.machine.failpoints import failpoint
from libs.machine.fs import PAGE_SIZE_BYTES, TEMPORARY_SUFFIX, DiskUsage

LOCK_CONTENT = b"lock"
"""What RocketMQ's store writes into its lock file (DefaultMessageStore.start)."""

MADV_POPULATE_WRITE = 23
"""linux/mman.h, since Linux 5.14; older kernels answer EINVAL."""

_LIBC = ctypes.CDLL(None)
_LIBC.madvise.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int)
_FLOCK = struct.Struct("hhqqi")  # struct flock: l_type, l_whence, l_start, l_len, l_pid


class PosixMappedFile:
    """One mapped file and the descriptor that syncs it.

    `close` drops our references instead of unmapping by force: a reader's slice keeps the pages until it goes.
    """

    def __init__(self, path: Path, descriptor: int, *, writable: bool) -> None:
        self.path = path
        self.size_bytes = os.fstat(descriptor).st_size
        self._descriptor = descriptor
        access = mmap.ACCESS_WRITE if writable else mmap.ACCESS_READ
        self.buffer = memoryview(mmap.mmap(descriptor, self.size_bytes, access=access))

    def sync(self) -> None:
        """Write dirty pages and wait for the disk (fdatasync releases the GIL, mmap.flush does not)."""
        failpoint("file.sync")
        os.fdatasync(self._descriptor)

    def populate(self, position: int, size_bytes: int) -> None:
        """See `MappedFile.populate`. Through ctypes, because mmap.madvise holds the GIL."""
        start = position - position % PAGE_SIZE_BYTES
        assert 0 <= start < position + size_bytes <= self.size_bytes
        first = ctypes.c_char.from_buffer(self.buffer, start)
        _LIBC.madvise(ctypes.addressof(first), position + size_bytes - start, MADV_POPULATE_WRITE)

    def data_ranges(self, position: int) -> list[tuple[int, int]]:
        """See `MappedFile.data_ranges`. Unwritten blocks are holes to lseek(2); pages in the cache are data.

        All ranges are taken before anybody reads them: reading ahead would make data of the holes behind each.
        """
        assert 0 <= position <= self.size_bytes
        ranges: list[tuple[int, int]] = []
        end = position
        while end < self.size_bytes:
            try:
                start = os.lseek(self._descriptor, end, os.SEEK_DATA)
                end = os.lseek(self._descriptor, start, os.SEEK_HOLE)
            except OSError as error:
                if error.errno == errno.ENXIO:  # no data up to the end
                    break
                if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):  # the file system does not know
                    return [(position, self.size_bytes)]
                raise
            ranges.append((start, end))
        return ranges

    def close(self) -> None:
        """Close the descriptor and forget the mapping."""
        if self._descriptor < 0:
            return
        os.close(self._descriptor)
        self._descriptor = -1
        self.buffer = memoryview(b"")


class PosixLock:
    """Holds an open-file-description lock, which conflicts with the record locks that Java takes.

    Unlike those it also excludes a second holder in this process, and no other close() of the file ends it.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Close the descriptor, which ends the lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class PosixFs:
    """`Fs` on the disk. Stateless but for the directories that were found fit for mapped files."""

    def __init__(self) -> None:
        self._suited_directories: set[Path] = set()

    def create_mapped(self, path: Path, size_bytes: int) -> PosixMappedFile:
        """See `Fs.create_mapped`."""
        assert size_bytes > 0
        if path.exists():
            raise FileExistsError(errno.EEXIST, "file exists", str(path))
        if path.parent not in self._suited_directories:
            ensure_not_copy_on_write(path.parent)
            self._suited_directories.add(path.parent)
        if self.disk_usage(path.parent).free_bytes < size_bytes:
            raise DiskFull(path, needed_bytes=size_bytes)  # an attempt would take what is left from everybody else
        temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        descriptor = os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        created = temporary
        try:
            os.posix_fallocate(descriptor, 0, size_bytes)
            os.fsync(descriptor)
            failpoint("create.before_rename")
            created = temporary.rename(path)
            self.sync_directory(path.parent)
            failpoint("create.after_rename")
            return PosixMappedFile(path, descriptor, writable=True)
        except BaseException as error:
            os.close(descriptor)
            with contextlib.suppress(FileNotFoundError):
                created.unlink()
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull(path, needed_bytes=size_bytes) from error
            raise

    def open_mapped(self, path: Path, *, writable: bool = True) -> PosixMappedFile:
        """See `Fs.open_mapped`."""
        descriptor = os.open(path, (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC)
        try:
            return PosixMappedFile(path, descriptor, writable=writable)
        except BaseException:
            os.close(descriptor)
            raise

    def read(self, path: Path) -> bytes:
        """See `Fs.read`."""
        return path.read_bytes()

    def write_atomic(self, path: Path, data: bytes) -> None:
        """See `Fs.write_atomic`."""
        temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        with _full_disk_named(path, len(data)), temporary.open("wb") as file:
            file.write(data)
            file.flush()
            failpoint("write_atomic.before_sync")
            os.fsync(file.fileno())
        failpoint("write_atomic.before_rename")
        temporary.replace(path)
        failpoint("write_atomic.after_rename")
        self.sync_directory(path.parent)

    def append(self, path: Path, data: bytes) -> None:
        """See `Fs.append`."""
        is_new = not path.exists()
        with _full_disk_named(path, len(data)), path.open("ab") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        if is_new:
            self.sync_directory(path.parent)

    def remove(self, path: Path) -> None:
        """See `Fs.remove`."""
        path.unlink()

    def rename(self, source: Path, target: Path) -> None:
        """See `Fs.rename`."""
        source.replace(target)

    def list(self, directory: Path) -> list[str]:
        """See `Fs.list`."""
        return sorted(os.listdir(directory))  # noqa: PTH208 - names, not paths: a store has many thousands of them

    def exists(self, path: Path) -> bool:
        """See `Fs.exists`."""
        return path.exists()

    def is_directory(self, path: Path) -> bool:
        """See `Fs.is_directory`."""
        return path.is_dir()

    def size(self, path: Path) -> int:
        """See `Fs.size`."""
        return path.stat().st_size

    def make_directory(self, path: Path) -> None:
        """See `Fs.make_directory`."""
        missing = [directory for directory in (path, *path.parents) if not directory.exists()]
        for directory in reversed(missing):
            directory.mkdir(exist_ok=True)
            self.sync_directory(directory.parent)
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path))

    def remove_directory(self, path: Path) -> None:
        """See `Fs.remove_directory`."""
        path.rmdir()
        self._suited_directories.discard(path)

    def sync_directory(self, path: Path) -> None:
        """See `Fs.sync_directory`."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def disk_usage(self, path: Path) -> DiskUsage:
        """See `Fs.disk_usage`."""
        facts = os.statvfs(path)
        return DiskUsage(total_bytes=facts.f_blocks * facts.f_frsize, free_bytes=facts.f_bavail * facts.f_frsize)

    def lock(self, path: Path) -> PosixLock:
        """See `Fs.lock`."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
            os.pwrite(descriptor, LOCK_CONTENT, 0)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise StoreLocked(path) from error
            raise
        return PosixLock(descriptor)


@contextlib.contextmanager
def _full_disk_named(path: Path, needed_bytes: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(path, needed_bytes=needed_bytes) from error
        raise
