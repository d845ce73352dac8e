# SPDX-License-Identifier: Apache-2.0
"""PosixFs: the real file system of Linux.

Invariants: a file with its final name always has its full size and the requested blocks (it is created without a name
or under a temporary name, allocated, synced unless it need not be durable yet, then named); a failed sync is reported
to the caller and never repeated here.
Not handled: retries, and the meaning of a failure, which only the callers know.
"""

import contextlib
import errno
import fcntl
import itertools
import os
import struct
import weakref
from collections.abc import Iterator
from pathlib import Path

from libs.formats.store_layout import LOCK_CONTENT
from libs.machine import memory
from libs.machine.btrfs import ensure_not_copy_on_write, file_system_type
from libs.machine.errors import DiskFull, StoreLocked
from libs.machine.failpoints import failpoint
from libs.machine.fs import PAGE_SIZE_BYTES, TEMPORARY_SUFFIX, DiskUsage

STAT_BLOCK_BYTES = 512
"""Unit of st_blocks, independent of the file system's own unit."""

NO_UNNAMED_FILES_ERRORS = {errno.EOPNOTSUPP, errno.EISDIR, errno.EINVAL}
"""Errors of a file system or a kernel that does not know O_TMPFILE (open(2))."""

WRITTEN_BACK_TYPES = {0xEF53, 0x58465342}
"""linux/magic.h: ext4 and XFS. Their syncfs(2) waits for all data and names, and each file keeps its errors."""

READ_CHUNK_BYTES = 1 << 20
"""Size of a read of `check_readable`: it stays in the processor's cache."""

_FLOCK = struct.Struct("hhqqi")  # struct flock: l_type, l_whence, l_start, l_len, l_pid


class PosixMappedFile:
    """A mapped file. Only its first `write` opens a descriptor that stays; other calls open the file for themselves.

    So a process may map more files than it may have open. The mapping keeps the file's inode, which records a failed
    write. The next fdatasync(2) reports it, with any descriptor.
    `close` drops our references instead of unmapping by force: a reader's slice keeps the pages until it is deleted.
    """

    def __init__(self, path: Path, descriptor: int, *, writable: bool) -> None:
        self.path = path
        status = os.fstat(descriptor)
        self.size_bytes = status.st_size
        self._identity = status.st_dev, status.st_ino
        self._flags = (os.O_RDWR if writable else os.O_RDONLY) | os.O_CLOEXEC
        self._descriptor = -1
        self.buffer = memory.map_file(descriptor, self.size_bytes, writable=writable)

    def write(self, position: int, data: memoryview) -> None:
        """See `MappedFile.write`. pwrite(2) and mappings share the page cache."""
        assert 0 <= position <= position + len(data) <= self.size_bytes
        failpoint("file.write")
        if self._descriptor < 0:
            self._descriptor = os.open(self.path, self._flags)
        while data:
            wrote_bytes = os.pwrite(self._descriptor, data, position)
            data, position = data[wrote_bytes:], position + wrote_bytes

    def write_out(self, position: int, size_bytes: int) -> None:
        """See `MappedFile.write_out`. It does nothing for a file that `write` was never called for."""
        if self._descriptor >= 0:
            memory.write_out(self._descriptor, position, size_bytes)

    def sync(self) -> None:
        """Write dirty pages and wait for the disk (fdatasync releases the GIL, mmap.flush does not).

        Raises OSError also if another file has the name now, or the file is shorter: no reader would find the bytes.
        """
        failpoint("file.sync")
        with self._opened() as descriptor:
            self._check_in_place(os.fstat(descriptor))
            os.fdatasync(descriptor)

    def check_written(self) -> None:
        """See `MappedFile.check_written`. A new descriptor reports an error that no other descriptor has reported."""
        failpoint("file.sync")
        with self._opened() as descriptor:
            self._check_in_place(os.fstat(descriptor))
            memory.check_written(descriptor)

    def populate(self, position: int, size_bytes: int) -> None:
        """See `MappedFile.populate`."""
        start = position - position % PAGE_SIZE_BYTES
        assert 0 <= start < position + size_bytes <= self.size_bytes
        memory.populate(self.buffer[start : position + size_bytes])

    def reserve(self, position: int, size_bytes: int) -> None:
        """See `MappedFile.reserve`."""
        assert 0 <= position < position + size_bytes <= self.size_bytes
        failpoint("file.reserve")
        with self._opened() as descriptor:
            hole_bytes = self.size_bytes - os.fstat(descriptor).st_blocks * STAT_BLOCK_BYTES
            needed_bytes = min(size_bytes, max(0, hole_bytes))
            if _free_bytes(descriptor) < needed_bytes:
                raise DiskFull(self.path, needed_bytes=needed_bytes)  # an attempt would take the remaining space
            with _full_disk_named(self.path, needed_bytes):
                os.posix_fallocate(descriptor, position, size_bytes)

    def lock(self) -> None:
        """See `MappedFile.lock`."""
        memory.lock(self.buffer)

    def unlock(self) -> None:
        """See `MappedFile.unlock`."""
        memory.unlock(self.buffer)

    def check_readable(self, position: int, size_bytes: int) -> None:
        """See `MappedFile.check_readable`."""
        end = position + size_bytes
        assert 0 <= position <= end <= self.size_bytes
        scratch = memoryview(bytearray(min(READ_CHUNK_BYTES, size_bytes)))
        failpoint("file.read")
        with self._opened() as descriptor:
            while position < end:
                read_bytes = os.preadv(descriptor, [scratch[: end - position]], position)
                if read_bytes == 0:
                    raise OSError(errno.EIO, f"the file ends at byte {position}", str(self.path))
                position += read_bytes

    def data_ranges(self, position: int) -> list[tuple[int, int]]:
        """See `MappedFile.data_ranges`. Unwritten blocks are holes to lseek(2), and pages in the cache are data.

        All ranges are listed before any is read, because read-ahead would turn the holes behind each range into data.
        """
        assert 0 <= position <= self.size_bytes
        with self._opened() as descriptor:
            return data_ranges(descriptor, position, self.size_bytes)

    def close(self) -> None:
        """Close the descriptor and forget the mapping."""
        descriptor, self._descriptor = self._descriptor, -1
        self.buffer = memoryview(b"")
        if descriptor >= 0:
            os.close(descriptor)

    def _check_in_place(self, status: os.stat_result) -> None:
        """Raise OSError if another program has removed, replaced or shortened the file."""
        if (status.st_dev, status.st_ino) != self._identity or status.st_nlink == 0:
            raise FileNotFoundError(errno.ENOENT, "another program has removed the file", str(self.path))
        if status.st_size < self.size_bytes:
            raise OSError(errno.EIO, f"the file ends at byte {status.st_size}", str(self.path))

    @contextlib.contextmanager
    def _opened(self) -> Iterator[int]:
        """Yield the descriptor of `write`, or a new descriptor that is closed after the block."""
        if self._descriptor >= 0:
            yield self._descriptor
            return
        with _opened(self.path, self._flags) as descriptor:
            yield descriptor


class PosixReadableFile:
    """A file by its descriptor. Where supported, RWF_NOWAIT (preadv2(2)) detects bytes outside of the page cache."""

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        weakref.finalize(self, os.close, self._descriptor)

    def read(self, position: int, target: memoryview, *, may_wait: bool) -> int | None:
        """See `ReadableFile.read`."""
        failpoint("file.read")
        if may_wait:
            return os.preadv(self._descriptor, [target], position)
        try:
            read_bytes = os.preadv(self._descriptor, [target], position, os.RWF_NOWAIT)
        except OSError as error:
            if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP, errno.EINVAL, errno.ENOSYS):
                return None
            raise
        return read_bytes if read_bytes == len(target) else None

    def is_removed(self) -> bool:
        """See `ReadableFile.is_removed`."""
        return os.fstat(self._descriptor).st_nlink == 0


class PosixLock:
    """An open-file-description lock, which conflicts with the record locks that Java takes.

    Unlike record locks it also excludes a second holder in this process, and no other close() of the file ends it.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def release(self) -> None:
        """Close the descriptor, which ends the lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class PosixFs:
    """`Fs` on the disk. Its only state is the directories that are suited for mapped files."""

    def __init__(self) -> None:
        self._suited_directories: set[Path] = set()

    def create_mapped(
        self, path: Path, size_bytes: int, *, reserved_bytes: int | None = None, is_durable: bool = True
    ) -> PosixMappedFile:
        """See `Fs.create_mapped`."""
        reserved_bytes = size_bytes if reserved_bytes is None else reserved_bytes
        assert 0 < reserved_bytes <= size_bytes
        if path.exists():
            raise FileExistsError(errno.EEXIST, "file exists", str(path))
        if path.parent not in self._suited_directories:
            ensure_not_copy_on_write(path.parent)
            self._suited_directories.add(path.parent)
        if self.disk_usage(path.parent).free_bytes < reserved_bytes:
            raise DiskFull(path, needed_bytes=reserved_bytes)  # an attempt would take the remaining space from others
        with _full_disk_named(path, reserved_bytes):  # a file system may be out of inodes
            descriptor, created = _open_unfinished(path)
        try:
            os.truncate(descriptor, size_bytes)
            os.posix_fallocate(descriptor, 0, reserved_bytes)
            if reserved_bytes < size_bytes:  # the first fault would read ahead through the whole hole
                os.pwrite(descriptor, bytes(min(PAGE_SIZE_BYTES, reserved_bytes)), 0)
            if is_durable:
                os.fsync(descriptor)
            failpoint("create.before_rename")
            if created is None:
                # Without a directory os.link would not follow the link; the absolute path makes it meaningless.
                os.link(f"/proc/self/fd/{descriptor}", path.absolute(), src_dir_fd=descriptor)
                created = path
            else:
                created = created.rename(path)
            if is_durable:
                self.sync_directory(path.parent)
            failpoint("create.after_rename")
            return self.open_mapped(path)  # by its name: otherwise /proc/…/maps would show it as deleted
        except BaseException as error:
            if created is not None:
                created.unlink(missing_ok=True)
            if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT):
                raise DiskFull(path, needed_bytes=reserved_bytes) from error
            raise
        finally:
            os.close(descriptor)

    def open_mapped(self, path: Path, *, writable: bool = True) -> PosixMappedFile:
        """See `Fs.open_mapped`."""
        with _opened(path, os.O_RDWR if writable else os.O_RDONLY) as descriptor:
            return PosixMappedFile(path, descriptor, writable=writable)

    def open_readable(self, path: Path) -> PosixReadableFile:
        """See `Fs.open_readable`."""
        return PosixReadableFile(path)

    def read(self, path: Path) -> bytes:
        """See `Fs.read`."""
        return path.read_bytes()

    def write_atomic(self, path: Path, data: bytes) -> None:
        """See `Fs.write_atomic`."""
        temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
        try:
            with _full_disk_named(path, len(data)), open(temporary, "wb", opener=open_private) as file:
                file.write(data)
                file.flush()
                failpoint("write_atomic.before_sync")
                os.fsync(file.fileno())
            failpoint("write_atomic.before_rename")
            temporary.replace(path)
        except OSError:
            temporary.unlink(missing_ok=True)
            raise
        failpoint("write_atomic.after_rename")
        self.sync_directory(path.parent)

    def append(self, path: Path, data: bytes) -> None:
        """See `Fs.append`."""
        is_new = not path.exists()
        with _full_disk_named(path, len(data)), open(path, "ab", opener=open_private) as file:
            file.write(data)
            file.flush()
            failpoint("append.before_sync")
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

    def allocated_bytes(self, path: Path) -> int:
        """See `Fs.allocated_bytes`."""
        return path.stat().st_blocks * STAT_BLOCK_BYTES

    def make_directory(self, path: Path, *, is_durable: bool = True) -> None:
        """See `Fs.make_directory`."""
        missing = list(itertools.takewhile(lambda directory: not directory.exists(), (path, *path.parents)))
        for directory in reversed(missing):
            with _full_disk_named(directory, PAGE_SIZE_BYTES):
                directory.mkdir(mode=0o700, exist_ok=True)
            if is_durable:
                self.sync_directory(directory.parent)
        if not path.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path))

    def remove_directory(self, path: Path) -> None:
        """See `Fs.remove_directory`."""
        path.rmdir()
        self._suited_directories.discard(path)

    def sync_directory(self, path: Path) -> None:
        """See `Fs.sync_directory`."""
        with _opened(path, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
            os.fsync(descriptor)

    def write_back(self, directory: Path) -> bool:
        """See `Fs.write_back`. The directory's sync flushes the disk's cache, and reports a failed journal."""
        if file_system_type(directory) not in WRITTEN_BACK_TYPES:
            return False
        failpoint("fs.before_write_back")
        with _opened(directory, os.O_RDONLY | os.O_DIRECTORY) as descriptor:
            memory.write_back(descriptor)
            os.fsync(descriptor)
        failpoint("fs.after_write_back")
        return True

    def disk_usage(self, path: Path) -> DiskUsage:
        """See `Fs.disk_usage`."""
        facts = os.statvfs(path)
        return DiskUsage(
            total_bytes=facts.f_blocks * facts.f_frsize,
            free_bytes=facts.f_bavail * facts.f_frsize,
            used_bytes=(facts.f_blocks - facts.f_bfree) * facts.f_frsize,
            is_read_only=bool(facts.f_flag & os.ST_RDONLY),
        )

    def lock(self, path: Path) -> PosixLock:
        """See `Fs.lock`."""
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.fcntl(descriptor, fcntl.F_OFD_SETLK, _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 1, 0))
            if os.pread(descriptor, len(LOCK_CONTENT), 0) != LOCK_CONTENT:  # a full disk takes no further byte
                with _full_disk_named(path, len(LOCK_CONTENT)):
                    os.pwrite(descriptor, LOCK_CONTENT, 0)
        except OSError as error:
            os.close(descriptor)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                raise StoreLocked(path) from error
            raise
        return PosixLock(descriptor)

    def lock_directory(self, path: Path) -> PosixLock:
        """See `Fs.lock_directory`."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(descriptor)
            raise StoreLocked(path) from error
        except BaseException:
            os.close(descriptor)
            raise
        return PosixLock(descriptor)


@contextlib.contextmanager
def _opened(path: Path, flags: int) -> Iterator[int]:
    descriptor = os.open(path, flags | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _open_unfinished(path: Path) -> tuple[int, Path | None]:
    """Open a new file that will be `path`. Returns its descriptor, and its temporary name or None if it has no name.

    RocketMQ refuses a store that contains a file of another name or size, so a kill should leave no such file. File
    systems without O_TMPFILE (NFS, older overlayfs) get a temporary name, which our own next start removes.
    """
    flags = os.O_RDWR | os.O_CLOEXEC
    try:
        return os.open(path.parent, flags | os.O_TMPFILE, 0o600), None
    except OSError as error:
        if error.errno not in NO_UNNAMED_FILES_ERRORS:
            raise
    temporary = path.with_name(path.name + TEMPORARY_SUFFIX)
    return os.open(temporary, flags | os.O_CREAT | os.O_TRUNC, 0o600), temporary


def data_ranges(descriptor: int, position: int, size_bytes: int) -> list[tuple[int, int]]:
    """Return the ranges without holes, from a position to the end of a file of this size. Raises OSError."""
    ranges: list[tuple[int, int]] = []
    end = position
    while end < size_bytes:
        try:
            start = os.lseek(descriptor, end, os.SEEK_DATA)
            end = os.lseek(descriptor, start, os.SEEK_HOLE)
        except OSError as error:
            if error.errno == errno.ENXIO:  # no data up to the end
                break
            if error.errno in (errno.EINVAL, errno.EOPNOTSUPP):  # the file system does not know
                return [(position, size_bytes)]
            raise
        ranges.append((start, end))
    return ranges


def _free_bytes(place: Path | int) -> int:
    facts = os.statvfs(place)
    return facts.f_bavail * facts.f_frsize


@contextlib.contextmanager
def _full_disk_named(path: Path, needed_bytes: int) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskFull(path, needed_bytes=needed_bytes) from error
        raise


def open_private(path: str | Path, flags: int) -> int:
    """Open a file. If it is created here, only its user may read and write it."""
    return os.open(path, flags, 0o600)
