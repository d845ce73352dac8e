# SPDX-License-Identifier: Apache-2.0
"""MemoryFs: the exact twin of PosixFs in memory. It keeps synced bytes and can lose all others.

The model is a page cache over a disk. A file has bytes as processes see them and bytes as the disk has them; a sync
copies the former to the latter. A directory has names as processes see them and names as the disk has them;
`sync_directory` copies the names. `crash` drops the view of the processes and starts again from the disk. The caller
may let any unsynced page or name survive, because a kernel writes back at any time. Of a page it may let any sectors
survive, because a disk writes at most a sector at once. `PowerCut` decides all of this by chance.
Handles from before a crash stay usable but no longer belong to any file, like the handles of a dead process.
Paths are absolute; the root directory exists. Safe to use from any thread, with the limits of `Fs`.
"""

import errno
from pathlib import Path
from typing import Self

from libs.formats.store_layout import LOCK_CONTENT
from libs.machine.errors import DiskFull, StoreLocked
from libs.machine.failpoints import failpoint
from libs.machine.fs import PAGE_SIZE_BYTES, TEMPORARY_SUFFIX, DiskUsage
from libs.machine.testing.memory_nodes import (
    Directory,
    File,
    PowerCut,
    Survives,
    Tear,
    everything_survives,
    nothing_survives,
    whole_pages,
)
from libs.machine.workers import workers

__all__ = [
    "MemoryFs",
    "MemoryMappedFile",
    "PowerCut",
    "everything_survives",
    "nothing_survives",
]

CAPACITY_BYTES = 1 << 40


class MemoryMappedFile:
    """A view of a file's bytes. All mappings share it, like the page cache."""

    def __init__(self, fs: "MemoryFs", path: Path, file: File, *, writable: bool) -> None:
        self._fs = fs
        self.path = path
        self.size_bytes = len(file.data)
        view = memoryview(file.data)
        self.buffer = view if writable else view.toreadonly()
        self._file = file

    def sync(self) -> None:
        """See `MappedFile.sync`."""
        try:
            failpoint("file.sync")
        except OSError:
            self.fail_sync()
            raise
        if self._file.is_removed:
            raise FileNotFoundError(errno.ENOENT, "the file was removed", str(self.path))
        self._file.sync()

    def check_written(self) -> None:
        """See `MappedFile.check_written`. An error of the failpoint loses the bytes that `write_back` wrote."""
        try:
            failpoint("file.sync")
        except OSError:
            self._file.fail_write_back()
            raise
        if self._file.is_removed:
            raise FileNotFoundError(errno.ENOENT, "the file was removed", str(self.path))

    def fail_write_back(self) -> None:
        """Simulate a write-back that lost the dirty pages of the file."""
        self._file.fail_write_back()

    def fail_sync(self) -> None:
        """Simulate a failed sync: the dirty pages of the file are lost, and later syncs do not know them."""
        self._file.fail_sync()

    def write(self, position: int, data: memoryview) -> None:
        """See `MappedFile.write`."""
        assert 0 <= position <= position + len(data) <= self.size_bytes
        failpoint("file.write")
        self._file.write(position, data)

    def reserve(self, position: int, size_bytes: int) -> None:
        """See `MappedFile.reserve`. Blocks begin at the start of a file, so blocks before `position` are included."""
        assert 0 <= position < position + size_bytes <= self.size_bytes
        failpoint("file.reserve")
        self._fs.reserve(self.path, self._file, position + size_bytes)

    def lock(self) -> None:
        """See `MappedFile.lock`. Memory always stays."""

    def unlock(self) -> None:
        """See `MappedFile.unlock`."""

    def write_out(self, position: int, size_bytes: int) -> None:
        """See `MappedFile.write_out`. It has no effect: chance decides which unsynced bytes survive a power cut."""

    def populate(self, position: int, size_bytes: int) -> None:
        """See `MappedFile.populate`. Memory is always present."""
        assert 0 <= position < position + size_bytes <= self.size_bytes

    def check_readable(self, position: int, size_bytes: int) -> None:
        """See `MappedFile.check_readable`."""
        assert 0 <= position <= position + size_bytes <= self.size_bytes
        failpoint("file.read")

    def data_ranges(self, position: int) -> list[tuple[int, int]]:
        """See `MappedFile.data_ranges`. Pages of zeros are holes, unless the disk has other bytes there."""
        assert 0 <= position <= self.size_bytes
        starts = range(position - position % PAGE_SIZE_BYTES, self.size_bytes, PAGE_SIZE_BYTES)
        pages = ((start, min(start + PAGE_SIZE_BYTES, self.size_bytes)) for start in starts)
        return [
            (max(start, position), end)
            for start, end in pages
            if any(data[start:end] != bytes(len(data[start:end])) for data in (self._file.data, self._file.durable))
        ]

    def close(self) -> None:
        """See `MappedFile.close`."""
        self.buffer = memoryview(b"")


class MemoryReadableFile:
    """A file and the directory entry under which it was found. It never waits."""

    def __init__(self, fs: "MemoryFs", path: Path, file: File) -> None:
        self._fs = fs
        self._path = path
        self._file = file

    def read(self, position: int, target: memoryview, *, may_wait: bool) -> int | None:
        """See `ReadableFile.read`."""
        del may_wait
        failpoint("file.read")
        piece = self._file.data[position : position + len(target)]
        target[: len(piece)] = piece
        return len(piece)

    def is_removed(self) -> bool:
        """See `ReadableFile.is_removed`."""
        return not self._fs.has(self._path, self._file)


class MemoryLock:
    """A name in the set of locked paths."""

    def __init__(self, locked: set[Path], path: Path) -> None:
        self._locked = locked
        self._path = path

    def release(self) -> None:
        """See `Lock.release`."""
        self._locked.discard(self._path)


class MemoryFs:
    """`Fs` in memory. `capacity_bytes` bounds the size of all files; tests may change it at any time."""

    def __init__(self, capacity_bytes: int = CAPACITY_BYTES, *, root: Directory | None = None) -> None:
        self.capacity_bytes = capacity_bytes
        self._root = root or Directory()
        self._locked: set[Path] = set()
        self._mutex = workers().lock()

    def after_crash(self, survives: Survives = nothing_survives, tear: Tear = whole_pages) -> Self:
        """Return another disk: the state of this disk after a `crash` now."""
        with self._mutex:
            return type(self)(self.capacity_bytes, root=self._root.after_crash(Path("/"), survives, tear))

    def crash(self, survives: Survives = nothing_survives, tear: Tear = whole_pages) -> None:
        """Cut the power: return to the state of the disk. Locks end, and existing handles belong to no file."""
        with self._mutex:
            self._root = self._root.after_crash(Path("/"), survives, tear)
            self._locked = set()

    def used_bytes(self) -> int:
        """Return the bytes that all files occupy together."""
        with self._mutex:
            return _used_bytes(self._root)

    def create_mapped(
        self, path: Path, size_bytes: int, *, reserved_bytes: int | None = None, is_durable: bool = True
    ) -> MemoryMappedFile:
        """See `Fs.create_mapped`."""
        assert 0 < (reserved_bytes or size_bytes) <= size_bytes
        with self._mutex:
            parent = self._directory(path.parent)
            if path.name in parent.names:
                raise FileExistsError(errno.EEXIST, "file exists", str(path))
            self._reserve(path, reserved_bytes or size_bytes)
            file = File(bytes(size_bytes), bytes(size_bytes), reserved_bytes, is_size_durable=is_durable)
            failpoint("create.before_rename")
            parent.names[path.name] = file
            if is_durable:
                self.sync_directory(path.parent)
            try:
                failpoint("create.after_rename")
            except OSError:
                del parent.names[path.name]
                raise
            return MemoryMappedFile(self, path, file, writable=True)

    def open_mapped(self, path: Path, *, writable: bool = True) -> MemoryMappedFile:
        """See `Fs.open_mapped`."""
        with self._mutex:
            file = self.file(path)
            if not file.data:
                raise OSError(errno.EINVAL, "cannot map an empty file", str(path))
            return MemoryMappedFile(self, path, file, writable=writable)

    def open_readable(self, path: Path) -> MemoryReadableFile:
        """See `Fs.open_readable`."""
        with self._mutex:
            return MemoryReadableFile(self, path, self.file(path))

    def reserve(self, path: Path, file: File, end: int) -> None:
        """Give a file blocks up to `end`. Raises DiskFull without room."""
        with self._mutex:
            old_bytes, old_reserved_bytes = file.allocated_bytes, file.reserved_bytes
            file.reserve(end)
            if file.allocated_bytes > old_bytes and self.has(path, file) and self.used_bytes() > self.capacity_bytes:
                needed_bytes, file.reserved_bytes = file.allocated_bytes - old_bytes, old_reserved_bytes
                raise DiskFull(path, needed_bytes=needed_bytes)

    def has(self, path: Path, file: File) -> bool:
        """Return whether this file still has this name."""
        with self._mutex:
            return self.exists(path) and self._node(path) is file

    def read(self, path: Path) -> bytes:
        """See `Fs.read`."""
        with self._mutex:
            return bytes(self.file(path).data)

    def write_atomic(self, path: Path, data: bytes) -> None:
        """See `Fs.write_atomic`."""
        with self._mutex:
            parent = self._directory(path.parent)
            temporary = path.name + TEMPORARY_SUFFIX
            self._reserve(path, len(data))
            file = parent.names[temporary] = File(data)
            try:
                failpoint("write_atomic.before_sync")
                file.sync()
                failpoint("write_atomic.before_rename")
            except OSError:
                del parent.names[temporary]
                raise
            self._mark_replaced(parent, path.name)
            parent.names[path.name] = parent.names.pop(temporary)
            failpoint("write_atomic.after_rename")
            self.sync_directory(path.parent)

    def append(self, path: Path, data: bytes) -> None:
        """See `Fs.append`."""
        with self._mutex:
            parent = self._directory(path.parent)
            self._reserve(path, len(data))
            is_new = path.name not in parent.names
            file = parent.names.setdefault(path.name, File())
            if isinstance(file, Directory):
                raise IsADirectoryError(errno.EISDIR, "is a directory", str(path))
            file.data += data
            failpoint("append.before_sync")
            file.sync()
            if is_new:
                self.sync_directory(path.parent)

    def remove(self, path: Path) -> None:
        """See `Fs.remove`."""
        with self._mutex:
            self.file(path).is_removed = True
            del self._directory(path.parent).names[path.name]

    def rename(self, source: Path, target: Path) -> None:
        """See `Fs.rename`."""
        with self._mutex:
            node = self._node(source)
            target_parent = self._directory(target.parent)
            del self._directory(source.parent).names[source.name]
            self._mark_replaced(target_parent, target.name)
            target_parent.names[target.name] = node

    def _mark_replaced(self, parent: Directory, name: str) -> None:
        """Mark a file that loses its name to another file."""
        if isinstance(replaced := parent.names.get(name), File):
            replaced.is_removed = True

    def list(self, directory: Path) -> list[str]:
        """See `Fs.list`."""
        with self._mutex:
            return sorted(self._directory(directory).names)

    def exists(self, path: Path) -> bool:
        """See `Fs.exists`."""
        with self._mutex:
            try:
                self._node(path)
            except (FileNotFoundError, NotADirectoryError):
                return False
            return True

    def is_directory(self, path: Path) -> bool:
        """See `Fs.is_directory`."""
        with self._mutex:
            return self.exists(path) and isinstance(self._node(path), Directory)

    def size(self, path: Path) -> int:
        """See `Fs.size`."""
        with self._mutex:
            return len(self.file(path).data)

    def allocated_bytes(self, path: Path) -> int:
        """See `Fs.allocated_bytes`."""
        with self._mutex:
            return self.file(path).allocated_bytes

    def make_directory(self, path: Path, *, is_durable: bool = True) -> None:
        """See `Fs.make_directory`."""
        with self._mutex:
            for directory in reversed((path, *path.parents)):
                if not self.exists(directory):
                    self._directory(directory.parent).names[directory.name] = Directory()
                    if is_durable:
                        self.sync_directory(directory.parent)
            self._directory(path)

    def remove_directory(self, path: Path) -> None:
        """See `Fs.remove_directory`."""
        with self._mutex:
            if self._directory(path).names:
                raise OSError(errno.ENOTEMPTY, "directory not empty", str(path))
            del self._directory(path.parent).names[path.name]

    def sync_directory(self, path: Path) -> None:
        """See `Fs.sync_directory`."""
        with self._mutex:
            self._directory(path).sync()

    def write_back(self, directory: Path) -> bool:
        """See `Fs.write_back`. It writes nothing outside of the directory."""
        with self._mutex:
            failpoint("fs.before_write_back")
            self._directory(directory).write_back()
            failpoint("fs.after_write_back")
            return True

    def disk_usage(self, path: Path) -> DiskUsage:
        """See `Fs.disk_usage`."""
        with self._mutex:
            self._node(path)
            used_bytes = self.used_bytes()
            free_bytes = max(0, self.capacity_bytes - used_bytes)
            return DiskUsage(total_bytes=self.capacity_bytes, free_bytes=free_bytes, used_bytes=used_bytes)

    def lock(self, path: Path) -> MemoryLock:
        """See `Fs.lock`."""
        with self._mutex:
            parent = self._directory(path.parent)
            if path in self._locked:
                raise StoreLocked(path)
            parent.names.setdefault(path.name, File(LOCK_CONTENT))
            self._locked.add(path)
            return MemoryLock(self._locked, path)

    def lock_directory(self, path: Path) -> MemoryLock:
        """See `Fs.lock_directory`."""
        with self._mutex:
            self._directory(path)
            if path in self._locked:
                raise StoreLocked(path)
            self._locked.add(path)
            return MemoryLock(self._locked, path)

    def _node(self, path: Path) -> File | Directory:
        assert path.is_absolute(), path
        node: File | Directory = self._root
        for name in path.parts[1:]:
            if isinstance(node, File):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path))
            if name not in node.names:
                raise FileNotFoundError(errno.ENOENT, "no such file or directory", str(path))
            node = node.names[name]
        return node

    def file(self, path: Path) -> File:
        """Return the file itself, for a test that reads or damages it. Raises OSError like a disk."""
        node = self._node(path)
        if isinstance(node, Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", str(path))
        return node

    def _directory(self, path: Path) -> Directory:
        node = self._node(path)
        if isinstance(node, File):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path))
        return node

    def _reserve(self, path: Path, size_bytes: int) -> None:
        if self.used_bytes() + size_bytes > self.capacity_bytes:
            raise DiskFull(path, needed_bytes=size_bytes)


def _used_bytes(directory: Directory) -> int:
    return sum(
        _used_bytes(node) if isinstance(node, Directory) else node.allocated_bytes for node in directory.names.values()
    )
