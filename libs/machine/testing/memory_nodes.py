# SPDX-License-Identifier: Apache-2.0
"""The files and directories of MemoryFs: bytes, blocks and names as processes see them and as the disk has them.

`after_crash` returns their state after a crash. `Survives` and `Tear` decide which pages and names survive, and
`PowerCut` makes both by chance. Not handled: paths, locks, room on the disk (MemoryFs).
"""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

from libs.machine.fs import PAGE_SIZE_BYTES

Survives = Callable[[Path, int | None], bool]
"""Decides whether unsynced data survives a crash: a page of a file by its number, or, with None, the change of a name
(created, removed or replaced) in its directory."""


def nothing_survives(_path: Path, _page: int | None) -> bool:
    """Lose all unsynced data: the worst crash."""
    return False


def everything_survives(_path: Path, _page: int | None) -> bool:
    """Keep all written data, as after a killed process on a running machine."""
    return True


SECTOR_BYTES = 512
"""Size of the data that a disk writes as a whole."""

SECTORS_PER_PAGE = PAGE_SIZE_BYTES // SECTOR_BYTES

Tear = Callable[[Path, int], int]
"""Returns the new sectors of a surviving page, as bits. The lowest bit is the first sector."""

ALL_SECTORS = (1 << SECTORS_PER_PAGE) - 1


def whole_pages(_path: Path, _page: int) -> int:
    """Tear no page."""
    return ALL_SECTORS


class PowerCut:
    """A crash by chance: each page and each name survives with its probability; some of the pages are torn."""

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


class File:
    """Bytes as seen, bytes on the disk, and what the kernel believes to be on the disk.

    The last two differ after a failed sync: like Linux, it marks the dirty pages clean, so that later syncs succeed
    without writing them. Only a write makes them dirty again. A call of `write` does so even with the same bytes; a
    store into a mapping that changes nothing can't be detected.
    `reserved_bytes` is the end of the file's blocks; None if it has all blocks. A file whose size is not durable, for
    example after a creation without a sync, may be empty after a crash. `is_removed` is true when the file's name was
    removed or given to another file. A crash does not set it, because a crash makes new files.
    """

    def __init__(
        self,
        data: bytes = b"",
        durable: bytes = b"",
        reserved_bytes: int | None = None,
        *,
        is_size_durable: bool = True,
    ) -> None:
        self.data = bytearray(data)
        self.durable = durable
        self.believed = durable
        self.reserved_bytes = reserved_bytes
        self.is_removed = False
        self._before_write_back = durable
        self._is_size_durable = is_size_durable
        self._durably_reserved_bytes = reserved_bytes
        self._written_pages: set[int] = set()

    @property
    def allocated_bytes(self) -> int:
        """The bytes that the file occupies on the disk."""
        return len(self.data) if self.reserved_bytes is None else self.reserved_bytes

    def reserve(self, end: int) -> None:
        """Make sure that the file has blocks up to `end`."""
        if self.reserved_bytes is not None:
            end = min(-(-end // PAGE_SIZE_BYTES) * PAGE_SIZE_BYTES, len(self.data))
            self.reserved_bytes = max(self.reserved_bytes, end)

    def write(self, position: int, data: memoryview) -> None:
        """Write bytes, and make their pages dirty, even if no byte changes."""
        self.data[position : position + len(data)] = data
        self._written_pages.update(range(position // PAGE_SIZE_BYTES, -(-(position + len(data)) // PAGE_SIZE_BYTES)))

    def sync(self) -> None:
        """Write the dirty pages. None may be in a hole: on a full disk, a store there would have ended the process."""
        kept = bytearray(self.durable)
        for start in self._dirty_pages():
            assert start < self.allocated_bytes, f"a store at {start}, where the file has no blocks"
            _put(kept, start, self.data[start : start + PAGE_SIZE_BYTES])
        self.durable = bytes(kept)
        self._is_size_durable, self._durably_reserved_bytes = True, self.reserved_bytes
        self._make_clean()

    def write_back(self) -> None:
        """Write the dirty pages. `fail_write_back` takes this back."""
        self._before_write_back = self.durable
        self.sync()

    def fail_write_back(self) -> None:
        """Lose the pages of the last `write_back`, like a disk error, and forget that they were dirty."""
        self.durable = self._before_write_back

    def fail_sync(self) -> None:
        """Lose the dirty pages, like a disk error, and forget that they were dirty."""
        self._make_clean()

    def after_crash(self, path: Path, survives: Survives, tear: Tear) -> "File":
        """Return the file as the disk has it. A size that was not synced survives with the file's last page."""
        if not self._is_size_durable and not survives(path, (len(self.data) - 1) // PAGE_SIZE_BYTES):
            return File()
        kept = bytearray(self.durable)
        for start in self._dirty_pages():
            page = start // PAGE_SIZE_BYTES
            if survives(path, page):
                sectors = tear(path, page)
                page_end = min(start + PAGE_SIZE_BYTES, len(self.data))
                for index, at in enumerate(range(start, page_end, SECTOR_BYTES)):
                    if sectors >> index & 1:
                        _put(kept, at, self.data[at : at + SECTOR_BYTES])
        file = File(bytes(kept), bytes(kept), self._durably_reserved_bytes)
        file.reserve(len(kept.rstrip(b"\0")))
        return file

    def _make_clean(self) -> None:
        self.believed = self.durable if self.durable == self.data else bytes(self.data)
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


class Directory:
    """Names as seen, and names on the disk."""

    def __init__(self) -> None:
        self.names: dict[str, File | Directory] = {}
        self.durable: dict[str, File | Directory] = {}

    def sync(self) -> None:
        """Write the current names to the disk."""
        self.durable = dict(self.names)

    def write_back(self) -> None:
        """Write the names and everything below them."""
        self.sync()
        for node in self.names.values():
            node.write_back()

    def after_crash(self, path: Path, survives: Survives, tear: Tear) -> "Directory":
        """Return the directory as the disk has it."""
        kept = dict(self.durable)
        for name in sorted(self.names.keys() | self.durable.keys()):
            seen = self.names.get(name)
            if seen is not self.durable.get(name) and survives(path / name, None):
                kept.pop(name, None)
                if seen is not None:
                    kept[name] = seen
        directory = Directory()
        directory.names = {name: node.after_crash(path / name, survives, tear) for name, node in kept.items()}
        directory.sync()
        return directory
