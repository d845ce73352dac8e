# SPDX-License-Identifier: Apache-2.0
"""MemoryFs: the exact twin of PosixFs in memory, which remembers what was synced and can lose the rest.

The model is that of a page cache over a disk. A file has bytes as processes see them and bytes as the disk has them; a
sync copies the former to the latter. A directory has names as processes see them and names as the disk has them;
`sync_directory` copies those. `crash` throws away what processes saw and starts again from the disk, where the
caller may let any unsynced page or name survive, because a kernel writes back on its own whenever it likes, and of a
page any of its sectors, because a disk writes no more than a sector at once. `PowerCut` decides all that by chance.
Handles from before a crash stay usable but no longer belong to any file, as those of a dead process.
Paths are absolute; the root directory exists. Safe to use from any thread, with the limits of `Fs`.
"""

import errno
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

from libs.machine.errors import DiskFull, StoreLocked
from libs.machine.failpoints import failpoint
from libs.machine.fs import PAGE_SIZE_BYTES, TEMPORARY_SUFFIX, DiskUsage
from libs.machine.posix_fs import LOCK_CONTENT

CAPACITY_BYTES = 1 << 40

Survives = Callable[[Path, int | None], bool]
"""Decides in a crash what outlives it although it was not synced: a page of a file by its number, or, with None, the
change of a name (made, removed or replaced) in its directory."""


def nothing_survives(_path: Path, _page: int | None) -> bool:
    """Lose all that was not synced: the harshest crash."""
    return False


def everything_survives(_path: Path, _page: int | None) -> bool:
    """Keep all that was written: what a killed process leaves on a machine that runs on."""
    return True


SECTOR_BYTES = 512
"""What a disk writes whole."""

SECTORS_PER_PAGE = PAGE_SIZE_BYTES // SECTOR_BYTES

Tear = Callable[[Path, int], int]
"""Decides which sectors of a page that survives are new, as bits, the first sector's the lowest."""

ALL_SECTORS = (1 << SECTORS_PER_PAGE) - 1


def whole_pages(_path: Path, _page: int) -> int:
    """Tear no page."""
    return ALL_SECTORS


class PowerCut:
    """What outlives a crash by chance: each page and each name with its probability, a part of the pages torn."""

    def __init__(self, chance: random.Random, *, page_ratio: float, name_ratio: float, torn_ratio: float) -> None:
        self._chance = chance
        self._page_ratio = page_ratio
        self._name_ratio = name_ratio
        self._torn_ratio = torn_ratio

    def survives(self, _path: Path, page: int | None) -> bool:
        """See `Survives`."""
        return self._chance.random() < (self._name_ratio if page is None else self._page_ratio)

    def tear(self, _path: Path, _page: int) -> int:
        """See `Tear`."""
        is_torn = self._chance.random() < self._torn_ratio
        return self._chance.getrandbits(SECTORS_PER_PAGE) if is_torn else ALL_SECTORS


class _File:
    """Bytes as seen, bytes on the disk, and what the kernel believes to be on the disk.

    The last two differ after a failed sync: it marks the dirty pages clean, so that later syncs succeed without writing
    them, as Linux does. Only a write makes them dirty again, also one of the same bytes, if it goes through `write`:
    a store into a mapping can't be told from none when it changes nothing.
    `reserved_bytes` is where the blocks end that the file has; None if it has all.
    """

    def __init__(self, data: bytes = b"", durable: bytes = b"", reserved_bytes: int | None = None) -> None:
        self.data = bytearray(data)
        self.durable = durable
        self.believed = durable
        self.reserved_bytes = reserved_bytes
        self._durably_reserved_bytes = reserved_bytes
        self._written_pages: set[int] = set()

    @property
    def allocated_bytes(self) -> int:
        """What the file takes of the disk."""
        return len(self.data) if self.reserved_bytes is None else self.reserved_bytes

    def reserve(self, end: int) -> None:
        """Have blocks up to here."""
        if self.reserved_bytes is not None:
            end = min(-(-end // PAGE_SIZE_BYTES) * PAGE_SIZE_BYTES, len(self.data))
            self.reserved_bytes = max(self.reserved_bytes, end)

    def write(self, position: int, data: memoryview) -> None:
        """Write, and make the pages dirty whatever was there."""
        self.data[position : position + len(data)] = data
        self._written_pages.update(range(position // PAGE_SIZE_BYTES, -(-(position + len(data)) // PAGE_SIZE_BYTES)))

    def sync(self) -> None:
        """Write the dirty pages, none of which may be in a hole: on a full disk the store had ended the process."""
        kept = bytearray(self.durable)
        for start in self._dirty_pages():
            assert start < self.allocated_bytes, f"a store at {start}, where the file has no blocks"
            _put(kept, start, self.data[start : start + PAGE_SIZE_BYTES])
        self.durable = bytes(kept)
        self._durably_reserved_bytes = self.reserved_bytes
        self._make_clean()

    def fail_sync(self) -> None:
        """Lose the dirty pages, as a disk error does, and forget that they were dirty."""
        self._make_clean()

    def after_crash(self, path: Path, survives: Survives, tear: Tear) -> "_File":
        """Return the file as the disk has it; a size that was not synced survives with its last page."""
        kept = bytearray(self.durable)
        for start in self._dirty_pages():
            page = start // PAGE_SIZE_BYTES
            if survives(path, page):
                sectors = tear(path, page)
                page_end = min(start + PAGE_SIZE_BYTES, len(self.data))
                for index, at in enumerate(range(start, page_end, SECTOR_BYTES)):
                    if sectors >> index & 1:
                        _put(kept, at, self.data[at : at + SECTOR_BYTES])
        file = _File(bytes(kept), bytes(kept), self._durably_reserved_bytes)
        file.reserve(len(kept.rstrip(b"\0")))
        return file

    def _make_clean(self) -> None:
        self.believed = bytes(self.data)
        self._written_pages.clear()

    def _dirty_pages(self) -> Iterator[int]:
        for start in range(0, len(self.data), PAGE_SIZE_BYTES):
            end = start + PAGE_SIZE_BYTES
            is_changed = self.data[start:end] != self.believed[start:end]
            if is_changed or start // PAGE_SIZE_BYTES in self._written_pages:
                yield start


def _put(kept: bytearray, start: int, piece: bytearray) -> None:
    kept.extend(bytes(max(0, start + len(piece) - len(kept))))
    kept[start : start + len(piece)] = piece


class _Directory:
    """Names as seen, and names on the disk."""

    def __init__(self) -> None:
        self.names: dict[str, _File | _Directory] = {}
        self.durable: dict[str, _File | _Directory] = {}

    def sync(self) -> None:
        self.durable = dict(self.names)

    def after_crash(self, path: Path, survives: Survives, tear: Tear) -> "_Directory":
        kept = dict(self.durable)
        for name in sorted(self.names.keys() | self.durable.keys()):
            seen = self.names.get(name)
            if seen is not self.durable.get(name) and survives(path / name, None):
                kept.pop(name, None)
                if seen is not None:
                    kept[name] = seen
        directory = _Directory()
        directory.names = {name: node.after_crash(path / name, survives, tear) for name, node in kept.items()}
        directory.sync()
        return directory


class MemoryMappedFile:
    """A view of a file's bytes, shared by all mappings as the page cache is."""

    def __init__(self, fs: "MemoryFs", path: Path, file: _File, *, writable: bool) -> None:
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
        self._file.sync()

    def fail_sync(self) -> None:
        """Do to the file what a sync does that fails: its dirty pages are lost, and later syncs do not know of it."""
        self._file.fail_sync()

    def write(self, position: int, data: memoryview) -> None:
        """See `MappedFile.write`."""
        assert 0 <= position <= position + len(data) <= self.size_bytes
        failpoint("file.write")
        self._file.write(position, data)

    def reserve(self, position: int, size_bytes: int) -> None:
        """See `MappedFile.reserve`. Blocks begin at the start of a file, so those before `position` come along."""
        assert 0 <= position < position + size_bytes <= self.size_bytes
        failpoint("file.reserve")
        self._fs.reserve(self.path, self._file, position + size_bytes)

    def lock(self) -> None:
        """See `MappedFile.lock`. Memory stays."""

    def unlock(self) -> None:
        """See `MappedFile.unlock`."""

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
        page_starts = range(position - position % PAGE_SIZE_BYTES, self.size_bytes, PAGE_SIZE_BYTES)
        return [
            (max(start, position), min(start + PAGE_SIZE_BYTES, self.size_bytes))
            for start in page_starts
            if any(self._file.data[start : start + PAGE_SIZE_BYTES])
            or any(self._file.durable[start : start + PAGE_SIZE_BYTES])
        ]

    def close(self) -> None:
        """See `MappedFile.close`."""
        self.buffer = memoryview(b"")


class MemoryReadableFile:
    """A file and the directory entry under which it was found. Nothing is ever waited for."""

    def __init__(self, fs: "MemoryFs", path: Path, file: _File) -> None:
        self._fs = fs
        self._path = path
        self._file = file

    def read(self, position: int, size_bytes: int, *, may_wait: bool) -> bytes | None:
        """See `ReadableFile.read`."""
        del may_wait
        failpoint("file.read")
        return bytes(self._file.data[position : position + size_bytes])

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
    """`Fs` in memory. `capacity_bytes` bounds what all files take; tests may change it at any time."""

    def __init__(self, capacity_bytes: int = CAPACITY_BYTES) -> None:
        self.capacity_bytes = capacity_bytes
        self._root = _Directory()
        self._locked: set[Path] = set()
        self._mutex = threading.RLock()

    def crash(self, survives: Survives = nothing_survives, tear: Tear = whole_pages) -> None:
        """Cut the power: go back to what the disk has. Locks end; handles from before belong to nothing."""
        with self._mutex:
            self._root = self._root.after_crash(Path("/"), survives, tear)
            self._locked = set()

    def used_bytes(self) -> int:
        """Sum of what all files take."""
        with self._mutex:
            return _used_bytes(self._root)

    def create_mapped(self, path: Path, size_bytes: int, *, reserved_bytes: int | None = None) -> MemoryMappedFile:
        """See `Fs.create_mapped`."""
        assert 0 < (reserved_bytes or size_bytes) <= size_bytes
        with self._mutex:
            parent = self._directory(path.parent)
            if path.name in parent.names:
                raise FileExistsError(errno.EEXIST, "file exists", str(path))
            self._reserve(path, reserved_bytes or size_bytes)
            file = _File(bytes(size_bytes), bytes(size_bytes), reserved_bytes)
            failpoint("create.before_rename")
            parent.names[path.name] = file
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
            file = self._file(path)
            if not file.data:
                raise OSError(errno.EINVAL, "cannot map an empty file", str(path))
            return MemoryMappedFile(self, path, file, writable=writable)

    def open_readable(self, path: Path) -> MemoryReadableFile:
        """See `Fs.open_readable`."""
        with self._mutex:
            return MemoryReadableFile(self, path, self._file(path))

    def reserve(self, path: Path, file: _File, end: int) -> None:
        """Give a file blocks up to here, if there is room."""
        with self._mutex:
            old_bytes, old_reserved_bytes = file.allocated_bytes, file.reserved_bytes
            file.reserve(end)
            if file.allocated_bytes > old_bytes and self.has(path, file) and self.used_bytes() > self.capacity_bytes:
                needed_bytes, file.reserved_bytes = file.allocated_bytes - old_bytes, old_reserved_bytes
                raise DiskFull(path, needed_bytes=needed_bytes)

    def has(self, path: Path, file: _File) -> bool:
        """Whether this very file still has this name."""
        with self._mutex:
            return self.exists(path) and self._node(path) is file

    def read(self, path: Path) -> bytes:
        """See `Fs.read`."""
        with self._mutex:
            return bytes(self._file(path).data)

    def write_atomic(self, path: Path, data: bytes) -> None:
        """See `Fs.write_atomic`."""
        with self._mutex:
            parent = self._directory(path.parent)
            temporary = path.name + TEMPORARY_SUFFIX
            self._reserve(path, len(data))
            file = parent.names[temporary] = _File(data)
            try:
                failpoint("write_atomic.before_sync")
                file.sync()
                failpoint("write_atomic.before_rename")
            except OSError:
                del parent.names[temporary]
                raise
            parent.names[path.name] = parent.names.pop(temporary)
            failpoint("write_atomic.after_rename")
            self.sync_directory(path.parent)

    def append(self, path: Path, data: bytes) -> None:
        """See `Fs.append`."""
        with self._mutex:
            parent = self._directory(path.parent)
            self._reserve(path, len(data))
            is_new = path.name not in parent.names
            file = parent.names.setdefault(path.name, _File())
            if isinstance(file, _Directory):
                raise IsADirectoryError(errno.EISDIR, "is a directory", str(path))
            file.data += data
            file.sync()
            if is_new:
                self.sync_directory(path.parent)

    def remove(self, path: Path) -> None:
        """See `Fs.remove`."""
        with self._mutex:
            self._file(path)
            del self._directory(path.parent).names[path.name]

    def rename(self, source: Path, target: Path) -> None:
        """See `Fs.rename`."""
        with self._mutex:
            node = self._node(source)
            target_parent = self._directory(target.parent)
            del self._directory(source.parent).names[source.name]
            target_parent.names[target.name] = node

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
            return self.exists(path) and isinstance(self._node(path), _Directory)

    def size(self, path: Path) -> int:
        """See `Fs.size`."""
        with self._mutex:
            return len(self._file(path).data)

    def allocated_bytes(self, path: Path) -> int:
        """See `Fs.allocated_bytes`."""
        with self._mutex:
            return self._file(path).allocated_bytes

    def make_directory(self, path: Path) -> None:
        """See `Fs.make_directory`."""
        with self._mutex:
            for directory in reversed((path, *path.parents)):
                if not self.exists(directory):
                    self._directory(directory.parent).names[directory.name] = _Directory()
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
            parent.names.setdefault(path.name, _File(LOCK_CONTENT))
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

    def _node(self, path: Path) -> _File | _Directory:
        assert path.is_absolute(), path
        node: _File | _Directory = self._root
        for name in path.parts[1:]:
            if isinstance(node, _File):
                raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path))
            if name not in node.names:
                raise FileNotFoundError(errno.ENOENT, "no such file or directory", str(path))
            node = node.names[name]
        return node

    def _file(self, path: Path) -> _File:
        node = self._node(path)
        if isinstance(node, _Directory):
            raise IsADirectoryError(errno.EISDIR, "is a directory", str(path))
        return node

    def _directory(self, path: Path) -> _Directory:
        node = self._node(path)
        if isinstance(node, _File):
            raise NotADirectoryError(errno.ENOTDIR, "not a directory", str(path))
        return node

    def _reserve(self, path: Path, size_bytes: int) -> None:
        if self.used_bytes() + size_bytes > self.capacity_bytes:
            raise DiskFull(path, needed_bytes=size_bytes)


def _used_bytes(directory: _Directory) -> int:
    return sum(
        _used_bytes(node) if isinstance(node, _Directory) else node.allocated_bytes for node in directory.names.values()
    )
