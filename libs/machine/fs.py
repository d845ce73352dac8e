# SPDX-License-Identifier: Apache-2.0
"""Fs and MappedFile: the interface of the file system for engines, with the durability that each method promises.

Two implementations promise the same: `PosixFs` on a real disk and `MemoryFs`, which can crash.
"Durable" means: still there after a power cut. Nothing is durable before the call that promises it returns.
Methods may be called from any thread, except that a file has a single writer at a time; all of them may block.
Every method raises OSError; `libs.machine.errors` has the errors with a special meaning.
"""

from pathlib import Path
from typing import Protocol

from msgspec import Struct

PAGE_SIZE_BYTES = 4096
"""Unit in which the page cache keeps and a crash loses bytes."""

TEMPORARY_SUFFIX = ".tmp"
"""Ends the name of a file that is not finished, as a crash may leave it. Such files are never read. The next writer of
the same name replaces them, and the owner of the directory may remove them."""


class DiskUsage(Struct, frozen=True):
    """Size of the file system that holds a path, its used bytes, and the bytes that an unprivileged process may write.

    The last two are less than the first where the file system keeps a reserve for root.
    """

    total_bytes: int
    free_bytes: int
    used_bytes: int
    is_read_only: bool = False
    """Whether it refuses all writes: mounted read-only, or made so by the kernel after an error."""

    @property
    def used_percent(self) -> int:
        """Used part of the space that an unprivileged process could use, rounded up, as `df` shows it. 0 if unknown."""
        usable_bytes = self.used_bytes + self.free_bytes
        return -(-100 * self.used_bytes // usable_bytes) if usable_bytes else 0


class MappedFile(Protocol):
    """A file that is mapped in full. Its size never changes.

    Writes go into `buffer`, or through `write`, and are visible at once to every mapping of the file; they survive the
    process, but not a power cut until `sync` returns.
    """

    @property
    def path(self) -> Path:
        """Path of the file when it was opened."""
        ...

    @property
    def size_bytes(self) -> int:
        """Size of the file and of `buffer`."""
        ...

    @property
    def buffer(self) -> memoryview:
        """All bytes of the file. Slices stay readable after `close`, because pages stay as long as any view of them."""
        ...

    def write(self, position: int, data: memoryview) -> None:
        """Copy bytes into the file. They are visible in `buffer` on return, and other threads run meanwhile.

        A disk that refuses raises OSError here, where a store into `buffer` would end the process. After an error a
        part may have been written.
        """
        ...

    def write_out(self, position: int, size_bytes: int) -> None:
        """Start writing these bytes to the disk, so that a later `sync` waits less. A hint, which promises nothing.

        Other threads run meanwhile. It may wait for the disk's queue. `sync` reports errors.
        """
        ...

    def sync(self) -> None:
        """Make all bytes durable that were written before the call. Other threads run meanwhile.

        Raises OSError once; after that the bytes may be lost although a repeated call succeeds. Never retry it.
        A file that was removed or replaced is such an error, because a reader would not find the bytes.
        """
        ...

    def check_written(self) -> None:
        """Raise the error that `sync` would raise, after `Fs.write_back` has written the bytes. Waits for no disk."""
        ...

    def reserve(self, position: int, size_bytes: int) -> None:
        """Reserve the blocks of these bytes, so that no later store into `buffer` there can lack space.

        Changes no byte, and an existing block stays. A file may have holes if it was created with fewer blocks, was
        copied or comes from another store, and a store into a hole on a full disk would end the process. Raises
        DiskFull.
        """
        ...

    def populate(self, position: int, size_bytes: int) -> None:
        """Make pages present and writable, so that the first write into them does not wait for the file system.

        Changes no byte, and other threads run meanwhile. This is a hint: it has no effect where the kernel can't do it.
        """
        ...

    def lock(self) -> None:
        """Keep all pages in memory until `unlock` or the end of the mapping. Other threads run meanwhile.

        Raises OSError if the process may not lock so much.
        """
        ...

    def unlock(self) -> None:
        """End `lock`. It is no error when nothing is locked."""
        ...

    def check_readable(self, position: int, size_bytes: int) -> None:
        """Read these bytes from the disk, unless they are in memory, and forget them. Other threads run meanwhile.

        A disk that can't read them raises OSError here, where a touch of `buffer` would end the process.
        """
        ...

    def data_ranges(self, position: int) -> list[tuple[int, int]]:
        """Return the stretches [start, end) from `position` on that may hold bytes which are not zero, ascending.

        Reserved blocks that were never written are left out where the file system knows them. So the time of a call
        depends on the written bytes. Written bytes that are not synced count, too. Bytes that were only read may count.
        """
        ...

    def close(self) -> None:
        """Close the file. Makes nothing durable. Views that were handed out stay valid. May be repeated."""
        ...


class ReadableFile(Protocol):
    """A file that another process may write, extend in place and remove meanwhile. Closed with its last reference."""

    def read(self, position: int, target: memoryview, *, may_wait: bool) -> int | None:
        """Fill a buffer from a position on. Returns the number of bytes, which is smaller at the end of the file.

        Returns None if not `may_wait` and the disk would have to be read.
        """
        ...

    def is_removed(self) -> bool:
        """Return whether the file has no name any more."""
        ...


class Lock(Protocol):
    """An exclusive lock that ends with `release` or with the process."""

    def release(self) -> None:
        """Release the lock. The lock file stays. May be repeated."""
        ...


class Fs(Protocol):
    """The operations on files that a store needs."""

    def create_mapped(
        self, path: Path, size_bytes: int, *, reserved_bytes: int | None = None, is_durable: bool = True
    ) -> MappedFile:
        """Create a file of zeros with all its blocks reserved, so that no later write to it can lack space.

        With `reserved_bytes` only the blocks of its first bytes are reserved, and the rest is a hole: see
        `MappedFile.reserve`. The file and its name are durable on return; a crash leaves either the whole file or none.
        Without `is_durable` it waits for no disk, and the file is durable after its `sync` and `sync_directory` of its
        directory: until then a power cut leaves the whole file, an empty file, or no file.
        Raises FileExistsError, DiskFull (then nothing is left behind) or FileSystemUnsuited.
        """
        ...

    def open_mapped(self, path: Path, *, writable: bool = True) -> MappedFile:
        """Map an existing file that is not empty. Raises FileNotFoundError."""
        ...

    def open_readable(self, path: Path) -> ReadableFile:
        """Open an existing file, to read pieces of it. Raises FileNotFoundError."""
        ...

    def read(self, path: Path) -> bytes:
        """Return all bytes of a small file. Raises FileNotFoundError."""
        ...

    def write_atomic(self, path: Path, data: bytes) -> None:
        """Replace the file's content. Durable on return. A crash leaves the old content or the new, never a mix."""
        ...

    def append(self, path: Path, data: bytes) -> None:
        """Append to a file, or create it. Durable on return. A crash may leave a part of the data."""
        ...

    def remove(self, path: Path) -> None:
        """Remove a file. Durable after `sync_directory` of its directory. Raises FileNotFoundError."""
        ...

    def rename(self, source: Path, target: Path) -> None:
        """Move a file within the file system, over any old target. Durable after `sync_directory` of both sides."""
        ...

    def list(self, directory: Path) -> list[str]:
        """Return the names in a directory, sorted, of files and directories alike. Raises FileNotFoundError."""
        ...

    def exists(self, path: Path) -> bool:
        """Return whether a file or a directory has this name."""
        ...

    def is_directory(self, path: Path) -> bool:
        """Return whether a directory has this name."""
        ...

    def size(self, path: Path) -> int:
        """Return the size of a file in bytes. Raises FileNotFoundError."""
        ...

    def allocated_bytes(self, path: Path) -> int:
        """Return the bytes that a file occupies on disk, without its holes. Raises FileNotFoundError."""
        ...

    def make_directory(self, path: Path, *, is_durable: bool = True) -> None:
        """Create a directory and its missing parents. Durable on return. It is no error if it exists.

        Without `is_durable` each is durable after `sync_directory` of its parent. Raises DiskFull.
        """
        ...

    def remove_directory(self, path: Path) -> None:
        """Remove an empty directory. Durable after `sync_directory` of its parent. Raises OSError when not empty."""
        ...

    def sync_directory(self, path: Path) -> None:
        """Make the names in the directory durable: names that were created, renamed or removed in it."""
        ...

    def write_back(self, directory: Path) -> bool:
        """Make all bytes and names below a directory durable that were written before, as one work of the disk.

        It may write more, up to the whole file system. Files whose bytes could not be written are reported by
        `MappedFile.check_written`, if they were mapped during the whole call, and only there. Returns False, and
        promises nothing, where the file system is not known to do this. Raises OSError.
        """
        ...

    def disk_usage(self, path: Path) -> DiskUsage:
        """Return the usage of the file system that holds `path`, which must exist."""
        ...

    def lock(self, path: Path) -> Lock:
        """Lock the store in RocketMQ's way: with a file of the 4 bytes `lock`, locked on its first byte.

        A RocketMQ broker and Reput exclude each other. Raises StoreLocked at once when another process has the lock.
        """
        ...

    def lock_directory(self, path: Path) -> Lock:
        """Lock a directory without a file in it, against processes that lock it in this way. Raises StoreLocked."""
        ...
