# SPDX-License-Identifier: Apache-2.0
"""Segment: one preallocated, memory-mapped file of fixed size, with two cursors.

Invariants: 0 <= flushed_position <= wrote_position <= size_bytes; neither ever decreases, except by `truncate`.
Bytes below wrote_position are complete and may be read by anybody; bytes below flushed_position survive a power cut.
Callers: one writer (writes into `buffer`, then calls `advance`), one syncing thread at a time, any number of readers.
A reader that works outside of the writer's thread holds the segment meanwhile; deletion then waits with the mapping.
Not handled: what the bytes mean, which segment comes next (SegmentChain), when to sync (the engines).
Layout: docs/formats/commit_log.md and docs/formats/consume_queue.md; RocketMQ's counterpart is DefaultMappedFile.
"""

import threading
from pathlib import Path

from libs.machine.failpoints import failpoint
from libs.machine.fs import Fs, MappedFile
from libs.store.errors import SyncFailed
from libs.store.map_budget import MapBudget

CLEAR_CHUNK_BYTES = 1 << 20
"""Piece that `truncate` compares with zeros at a time: large enough for memcmp's speed, small enough for the cache."""

_ZEROS = bytes(CLEAR_CHUNK_BYTES)


class Seal:
    """Shared by the segments of one chain: the first sync that failed, and the lock under which syncs take turns."""

    def __init__(self) -> None:
        self.error: SyncFailed | None = None
        self.lock = threading.Lock()
        self.sync_count = 0


class Segment:
    """One file of a chain. Made by SegmentChain; mapped on first touch.

    `base_physical_offset` is the offset of its first byte in the chain, which its file name tells.
    `first_store_time_ms` and `last_store_time_ms` belong to the engines; 0 means unknown.
    """

    __slots__ = (
        "_fs",
        "_hold_count",
        "_is_closed",
        "_mapped",
        "_maps",
        "_seal",
        "base_physical_offset",
        "first_store_time_ms",
        "flushed_position",
        "is_touched",
        "last_store_time_ms",
        "path",
        "size_bytes",
        "wrote_position",
    )

    def __init__(
        self,
        fs: Fs,
        path: Path,
        *,
        base_physical_offset: int,
        size_bytes: int,
        wrote_position: int,
        flushed_position: int,
        seal: Seal,
        maps: MapBudget,
        mapped: MappedFile | None = None,
    ) -> None:
        assert 0 <= flushed_position <= wrote_position <= size_bytes
        self.path = path
        self.base_physical_offset = base_physical_offset
        self.size_bytes = size_bytes
        self.wrote_position = wrote_position
        self.flushed_position = flushed_position
        self.first_store_time_ms = 0
        self.last_store_time_ms = 0
        self.is_touched = True
        self._fs = fs
        self._seal = seal
        self._maps = maps
        self._mapped = mapped
        self._hold_count = 0
        self._is_closed = False
        if mapped is not None:
            with maps.lock:
                maps.admit(self)

    def __repr__(self) -> str:
        return f"Segment({self.path}, wrote={self.wrote_position}, flushed={self.flushed_position})"

    @property
    def buffer(self) -> memoryview:
        """All bytes of the file, writable. Slices of it stay valid for as long as they live, also after `delete`.

        Take it anew for each piece of work: a view that is kept keeps the mapping.
        """
        mapped = self._mapped
        if mapped is None:
            mapped = self._map()
        self.is_touched = True
        return mapped.buffer

    def data_ranges(self, position: int) -> list[tuple[int, int]]:
        """Where bytes may be that are not zero, from `position` on; see `MappedFile.data_ranges`."""
        return (self._mapped or self._map()).data_ranges(position)

    @property
    def end_physical_offset(self) -> int:
        """Offset in the chain where the next byte will be written."""
        return self.base_physical_offset + self.wrote_position

    @property
    def is_full(self) -> bool:
        """Whether no byte more can be written."""
        return self.wrote_position == self.size_bytes

    @property
    def is_mapped(self) -> bool:
        """Whether the file is mapped now."""
        return self._mapped is not None

    def advance(self, position: int) -> None:
        """Publish all bytes below `position` to readers. Makes nothing durable."""
        assert self.wrote_position <= position <= self.size_bytes
        self.wrote_position = position

    def populate(self, size_bytes: int) -> None:
        """Make the pages of the next bytes to be written present; see `MappedFile.populate`. Blocks without the GIL."""
        size_bytes = min(size_bytes, self.size_bytes - self.wrote_position)
        if size_bytes > 0:
            (self._mapped or self._map()).populate(self.wrote_position, size_bytes)

    def sync(self) -> int:
        """Make all bytes that were published before the call durable; return the flushed position.

        Blocks without the GIL; does nothing for a segment that was deleted meanwhile. Raises SyncFailed when the disk
        refuses, and from then on for every segment of the chain, because no later sync can be believed.
        """
        with self._seal.lock:
            position = self.wrote_position
            if self._seal.error is not None:
                raise self._seal.error
            if position > self.flushed_position and not self._is_closed:
                failpoint("segment.before_sync")
                try:
                    (self._mapped or self._map()).sync()
                except OSError as error:
                    reason = error.strerror or str(error)
                    self._seal.error = SyncFailed(path=self.path, position=position, reason=reason)
                    raise self._seal.error from error
                failpoint("segment.after_sync")
                self._seal.sync_count += 1
                self.flushed_position = position
            return self.flushed_position

    def truncate(self, position: int, *, clear_rest: bool = True) -> None:
        """Set both cursors back to `position`, for recovery only; no reader may be at work above it.

        With `clear_rest` all bytes above are zeros, durably, so that stale ones are never taken for new ones. Without
        it the caller knows that they are zeros. Raises SyncFailed.
        """
        assert 0 <= position <= self.wrote_position
        if clear_rest and self._clear(position):
            self.wrote_position, self.flushed_position = self.size_bytes, min(self.flushed_position, position)
            self.sync()
        self.wrote_position = position
        self.flushed_position = min(self.flushed_position, position)

    def hold(self) -> bool:
        """Keep the segment mapped until `release`; False when it was closed already, and then there is no release."""
        with self._maps.lock:
            if self._is_closed:
                return False
            if self._mapped is None:
                self._map()
            self._hold_count += 1
            return True

    def release(self) -> None:
        """End one `hold`."""
        with self._maps.lock:
            assert self._hold_count > 0
            self._hold_count -= 1
            if self._is_closed and self._hold_count == 0:
                self._unmap()

    @property
    def hold_count(self) -> int:
        """Readers that are at work."""
        return self._hold_count

    @property
    def is_held(self) -> bool:
        """Whether a reader is at work."""
        return self._hold_count > 0

    def close(self) -> None:
        """Unmap, or leave that to the last holder. Makes nothing durable. May be repeated."""
        if self.wrote_position > self.flushed_position:
            with self._seal.lock:  # a sync may be using the descriptor
                self._close()
        else:
            self._close()

    def delete(self, fs: Fs) -> None:
        """Close and remove the file. Readers that hold it finish their work. Durable after a sync of the directory."""
        self.close()
        fs.remove(self.path)

    def try_unmap(self) -> bool:
        """See `Evictable.try_unmap`: not while held, closed, or with unsynced bytes."""
        if self._hold_count or self.wrote_position > self.flushed_position:
            return False
        if self._mapped is not None:
            self._mapped.close()
            self._mapped = None
        return True

    def _map(self) -> MappedFile:
        with self._maps.lock:
            if self._mapped is None:
                assert not self._is_closed, f"{self.path} is closed"
                self._mapped = self._fs.open_mapped(self.path)
                self._maps.admit(self)
            return self._mapped

    def _close(self) -> None:
        with self._maps.lock:
            self._is_closed = True
            if self._hold_count == 0:
                self._unmap()

    def _unmap(self) -> None:
        if self._mapped is not None:
            self._maps.forget(self)
            self._mapped.close()
            self._mapped = None

    def _clear(self, position: int) -> bool:
        """Zero all bytes from `position` on; whether any was not zero. What holds zeros already is not made dirty."""
        buffer = self.buffer
        is_changed = False
        for start, end in self.data_ranges(position):
            for at in range(start, end, CLEAR_CHUNK_BYTES):
                chunk = buffer[at : min(at + CLEAR_CHUNK_BYTES, end)]
                zeros = _ZEROS[: len(chunk)]
                if bytes(chunk) != zeros:
                    chunk[:] = zeros
                    is_changed = True
        return is_changed
