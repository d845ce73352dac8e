# SPDX-License-Identifier: Apache-2.0
"""Segment: a preallocated, memory-mapped file of fixed size, with three cursors.

Invariants: 0 <= flushed_position <= committed_position <= wrote_position <= size_bytes; none ever decreases, except by
`truncate`. Bytes below wrote_position are complete. Bytes below committed_position are in the file: every reader may
read them, and they survive the process. Bytes below flushed_position survive a power cut.
There are two ways to write. Small pieces go into `buffer`, the file's own pages, and `advance` publishes them. Batches
go into `room`, memory that stays in the processor's cache, and `put` copies them into the file with a single call. This
costs half as much as faults on fresh pages, and a refusal of the disk is an error, not the end of the process (decision
0014). With a pool `room` is a borrowed buffer, which `commit` copies into the file later; it is returned when the whole
segment is in the file. Without a pool, written bytes are committed.
Callers: a single writer, any number of threads that commit or sync (they wait for each other), any number of readers.
A reader that works outside of the writer's thread holds the segment meanwhile; deletion then waits with the mapping.
Not handled: the meaning of the bytes, the next segment (SegmentChain), when to sync (the engines).
Layout: docs/formats/commit_log.md, docs/formats/consume_queue.md. RocketMQ's counterpart is DefaultMappedFile.
"""

import errno
from collections.abc import Callable
from pathlib import Path

from libs.machine import memory
from libs.machine.errors import DiskFull
from libs.machine.failpoints import failpoint
from libs.machine.fs import PAGE_SIZE_BYTES, Fs, MappedFile
from libs.machine.workers import workers
from libs.segments.errors import CommitFailed, SegmentUnreadable, StoreFull, SyncFailed, WriteFailed
from libs.segments.map_budget import MapBudget
from libs.segments.pool import TransientStorePool

CLEAR_CHUNK_BYTES = 1 << 20
"""Piece that `truncate` compares with zeros at a time: large enough for memcmp's speed, small enough for the cache."""

GROWTH_BYTES_MAX = 1 << 20
"""Maximum that `reserve` takes ahead: a busy queue's file reserves six times, and wastes at most this size."""
_ZEROS = bytes(CLEAR_CHUNK_BYTES)
_OF_THE_FILE = {errno.ENOENT, errno.EISDIR, errno.EINVAL, errno.EACCES, errno.EIO}
"""Errors of mapping that concern a single file: it is missing, no file, empty, forbidden, or the disk fails."""


class SharedState:
    """The state that the segments of a chain share.

    The file system, the segment size, the first failed sync, commit or write, locks, and the memory of `room`.
    """

    def __init__(
        self, fs: Fs, size_bytes: int, *, maps: MapBudget | None = None, pool: TransientStorePool | None = None
    ) -> None:
        self.fs = fs
        self.size_bytes = size_bytes
        self.maps = maps or MapBudget()
        self.pool = pool
        self.error: SyncFailed | None = None
        self.staging = memoryview(b"")
        self.lock = workers().lock()
        self.commit_lock = workers().lock()


class Segment:
    """A file of a chain. SegmentChain creates it, and its first touch maps it, unless it is new: `mapped`.

    `base_physical_offset` is the offset of its first byte in the chain, which is also its file name.
    `first_store_time_ms` and `last_store_time_ms` belong to the engines; 0 means unknown.
    Bytes below `reserved_position` certainly have blocks, so that a store there can't lack space.
    `hold_count` is the number of readers at work. With a pool, a new file is written through a buffer of the pool.
    """

    __slots__ = (
        *("_borrowed", "_committed_position"),
        "_holders",
        "_is_closed",
        "_mapped",
        "_shared",
        "base_physical_offset",
        "first_store_time_ms",
        "flushed_position",
        "hold_count",
        "is_touched",
        "last_store_time_ms",
        "path",
        "reserved_position",
        "size_bytes",
        "wrote_position",
    )

    def __init__(
        self,
        shared: SharedState,
        path: Path,
        base_physical_offset: int,
        *,
        wrote_position: int = 0,
        flushed_position: int = 0,
        reserved_position: int = 0,
        mapped: MappedFile | None = None,
    ) -> None:
        assert 0 <= flushed_position <= wrote_position <= shared.size_bytes
        self.path = path
        self.base_physical_offset = base_physical_offset
        self.size_bytes = shared.size_bytes
        self.wrote_position = wrote_position
        self.flushed_position = flushed_position
        self.first_store_time_ms = 0
        self.last_store_time_ms = 0
        self.is_touched = True
        self.reserved_position = reserved_position
        self.hold_count = 0
        self._shared = shared
        self._mapped = mapped
        self._borrowed = shared.pool.borrow() if shared.pool is not None and mapped is not None else None
        self._committed_position = wrote_position
        self._holders: dict[Callable[[], None], None] = {}
        self._is_closed = False
        if mapped is not None:
            with shared.maps.lock:
                shared.maps.admit(self)

    def __repr__(self) -> str:
        return f"Segment({self.path}, wrote={self.wrote_position}, flushed={self.flushed_position})"

    @property
    def buffer(self) -> memoryview:
        """All bytes of the file, writable. Slices of it stay valid for as long as they live, also after `delete`.

        Get it again for each piece of work: a kept view keeps the mapping. Raises SegmentUnreadable for a
        file that another program removed, shortened or replaced.
        """
        mapped = self._mapped
        if mapped is None:
            mapped = self._map_present()
        self.is_touched = True
        return mapped.buffer

    @property
    def room(self) -> memoryview:
        """Memory for the writer's next batch, as long as the rest of the file. `put` copies it into the file.

        Without a pool all segments of a chain share the same memory, so that its pages are already present.
        """
        if self._borrowed is not None:
            return self._borrowed[self.wrote_position :]
        if not self._shared.staging:
            self._shared.staging = memory.allocate(self.size_bytes)
        return self._shared.staging[: self.size_bytes - self.wrote_position]

    def check_readable(self, position: int, end: int) -> None:
        """Read [position, end) from the disk, so that a bad disk is an error here and not the end of the process.

        Raises SegmentUnreadable with the first page that can't be read.
        """
        at, step = position - position % PAGE_SIZE_BYTES, max(end - position, PAGE_SIZE_BYTES)
        try:
            mapped = self._mapped or self._map()
            while at < end:
                try:
                    mapped.check_readable(at, min(step, end - at))
                    at += step
                except OSError:
                    if step == PAGE_SIZE_BYTES:
                        raise
                    step = PAGE_SIZE_BYTES  # find the page
        except OSError as error:
            raise SegmentUnreadable(path=self.path, position=at, reason=error.strerror or str(error)) from error

    def data_ranges(self, position: int) -> list[tuple[int, int]]:
        """Return the ranges from `position` on that may have bytes which are not zero. See `MappedFile.data_ranges`.

        Raises SegmentUnreadable like `buffer`.
        """
        return (self._mapped or self._map_present()).data_ranges(position)

    @property
    def end_physical_offset(self) -> int:
        """Offset in the chain where the next byte will be written."""
        return self.base_physical_offset + self.wrote_position

    @property
    def committed_position(self) -> int:
        """End of the bytes that are in the file."""
        return self.wrote_position if self._borrowed is None else self._committed_position

    @property
    def is_committed(self) -> bool:
        """Whether all written bytes are in the file, and no buffer is borrowed if the segment is full."""
        return self._borrowed is None or self._committed_position == self.wrote_position < self.size_bytes

    @property
    def is_full(self) -> bool:
        """Whether no further byte can be written."""
        return self.wrote_position == self.size_bytes

    @property
    def is_mapped(self) -> bool:
        """Whether the file is mapped now."""
        return self._mapped is not None

    def advance(self, position: int) -> None:
        """Publish all bytes below `position`. Makes nothing durable."""
        assert self.wrote_position <= position <= self.size_bytes
        self.wrote_position = position

    def reserve(self, position: int) -> None:
        """Make sure that the writer can't lack space below `position`. Call it before writing past `reserved_position`.

        Reserves three times as much ahead, at most 1 MiB, so that a growing file reserves seldom. Raises StoreFull, and
        like `put` WriteFailed if another program removed the file.
        """
        if position <= self.reserved_position:
            return
        end = position + min(3 * position, GROWTH_BYTES_MAX)
        end = min(end + -end % PAGE_SIZE_BYTES, self.size_bytes)
        try:
            (self._mapped or self._map()).reserve(self.reserved_position, end - self.reserved_position)
        except DiskFull as error:
            raise StoreFull(path=self.path, needed_bytes=error.needed_bytes) from error
        except OSError as error:
            if error.errno not in _OF_THE_FILE:
                raise
            raise self._write_failed(error) from error
        self.reserved_position = end

    def put(self, size_bytes: int) -> None:
        """Publish the first bytes of `room`. Makes nothing durable.

        Raises WriteFailed when the disk refuses, and from then on like `sync`; then nothing was published.
        """
        if self._borrowed is None:
            self._write(self._shared.staging[:size_bytes])
        self.advance(self.wrote_position + size_bytes)

    def put_from(self, data: memoryview) -> None:
        """Publish bytes that are not in `room`, and fit into it. Otherwise like `put`."""
        if self._borrowed is None:
            self._write(data)
        else:
            self.room[: len(data)] = data
        self.advance(self.wrote_position + len(data))

    def fill(self, last: bytes) -> None:
        """Publish the rest of the file: the bytes of `last`, and zeros. Raises WriteFailed."""
        if self._borrowed is None:
            self._write(memoryview(last))
        else:
            self.room[: len(last)] = last
            rest = self.room[len(last) :]  # another segment may have used it before
            rest[:] = bytes(len(rest))
        self.advance(self.size_bytes)

    def commit(self) -> None:
        """Copy all bytes that were published before the call from the borrowed buffer into the file.

        Returns a full buffer to the pool. Blocks without the GIL. Raises CommitFailed when the disk refuses, and from
        then on like `sync`.
        """
        with self._shared.commit_lock:
            if self._shared.error is not None:
                raise self._shared.error
            borrowed, start, end = self._borrowed, self._committed_position, self.wrote_position
            if borrowed is None or self._is_closed:
                return
            if end > start:
                try:
                    failpoint("segment.before_commit")
                    (self._mapped or self._map()).write(start, borrowed[start:end])
                except OSError as error:
                    reason = error.strerror or str(error)
                    self._shared.error = CommitFailed(path=self.path, position=end, reason=reason)
                    raise self._shared.error from error
                failpoint("segment.after_commit")
                self._committed_position = end
            if end == self.size_bytes:
                assert self._shared.pool is not None
                self._borrowed = None
                self._shared.pool.give_back(borrowed)

    def populate(self, size_bytes: int) -> None:
        """Make the pages of the next bytes present, without the GIL. See `MappedFile.populate`."""
        size_bytes = min(size_bytes, self.size_bytes - self.wrote_position)
        if size_bytes > 0:
            (self._mapped or self._map()).populate(self.wrote_position, size_bytes)

    def unlock(self) -> None:
        """See `MappedFile.unlock`. Does nothing when the file is not mapped."""
        mapped = self._mapped
        if mapped is not None:
            mapped.unlock()

    def write_out(self, position: int) -> None:
        """Start writing the file's bytes from `position` on to the disk, so that the next `sync` waits less. A hint."""
        mapped, end = self._mapped, self.committed_position
        if mapped is not None and position < end:
            mapped.write_out(position, end - position)

    def sync(self) -> int:
        """Make durable all bytes that were committed before the call. Returns the flushed position.

        Blocks without the GIL, and does nothing for a segment that was deleted meanwhile. Raises SyncFailed when the
        disk refuses, and from then on for every segment of the chain, because no later sync can be believed.
        """
        return self._flush(None, lambda mapped: mapped.sync())

    def confirm(self, position: int) -> None:
        """Record that `Fs.write_back` wrote the bytes below `position` of the held segment. Raises as `sync` does."""
        self._flush(position, lambda mapped: mapped.check_written())

    def _flush(self, position: int | None, flush: Callable[[MappedFile], None]) -> int:
        with self._shared.lock:
            position = min(self.committed_position, self.committed_position if position is None else position)
            if self._shared.error is not None:
                raise self._shared.error
            if position > self.flushed_position and not self._is_closed:
                try:
                    failpoint("segment.before_sync")
                    flush(self._mapped or self._map())
                except OSError as error:
                    if self._is_closed:
                        return self.flushed_position  # it was deleted meanwhile
                    reason = error.strerror or str(error)
                    self._shared.error = SyncFailed(path=self.path, position=position, reason=reason)
                    raise self._shared.error from error
                failpoint("segment.after_sync")
                self.flushed_position = position
            return self.flushed_position

    def truncate(self, position: int, *, clear_rest: bool = True) -> None:
        """Set all cursors back to `position`, for recovery only. No reader may be at work above it.

        With `clear_rest` all bytes above are zeros, durably, so that stale bytes never count as new bytes. Without
        it the caller knows that they are zeros. Raises SyncFailed.
        """
        assert 0 <= position <= self.wrote_position
        assert self._borrowed is None
        if clear_rest and self._clear(position):
            self.wrote_position, self.flushed_position = self.size_bytes, min(self.flushed_position, position)
            self.sync()
        self.wrote_position = position
        self.flushed_position = min(self.flushed_position, position)

    def write_again(self, position: int) -> None:
        """Write the bytes from `position` on again, durably, except bytes that were never written. For recovery only.

        When a sync fails, the kernel marks the pages clean although the disk does not have them. A process that starts
        later finds them in the page cache: they look sound, but a sync alone would leave them out again.
        Raises OSError or SyncFailed.
        """
        assert self._borrowed is None
        mapped = self._mapped or self._map()
        for start, end in mapped.data_ranges(position):
            for at in range(start, end, CLEAR_CHUNK_BYTES):
                mapped.write(at, memoryview(bytes(mapped.buffer[at : min(at + CLEAR_CHUNK_BYTES, end)])))
        wrote_position = self.wrote_position
        self.wrote_position, self.flushed_position = self.size_bytes, min(self.flushed_position, position)
        self.sync()
        self.wrote_position = self.flushed_position = wrote_position

    def hold(self, let_go: Callable[[], None] | None = None) -> bool:
        """Keep the segment mapped until `release`. Returns False when it was closed already: then there is no release.

        A reader that may stay for long passes `let_go`: `evict` calls it. It must release the segment and read no more.
        Raises SegmentUnreadable like `buffer`.
        """
        with self._shared.maps.lock:
            if self._is_closed:
                return False
            if self._mapped is None:
                self._map_present()
            self.hold_count += 1
            if let_go is not None:
                self._holders[let_go] = None
            return True

    def release(self, let_go: Callable[[], None] | None = None) -> None:
        """End the `hold` that was made with the same `let_go`."""
        with self._shared.maps.lock:
            assert self.hold_count > 0
            self.hold_count -= 1
            if let_go is not None:
                del self._holders[let_go]
            if self._is_closed and self.hold_count == 0:
                self._unmap()

    def evict(self) -> None:
        """Make each reader that passed `let_go` release the segment. Runs in the thread of these readers."""
        for let_go in list(self._holders):
            let_go()

    @property
    def is_held(self) -> bool:
        """Whether a reader is at work."""
        return self.hold_count > 0

    def close(self) -> None:
        """Unmap the file, or leave this to the last holder. Makes nothing durable. May be repeated."""
        if self.wrote_position > self.flushed_position:
            with self._shared.commit_lock, self._shared.lock:  # a commit or a sync may be using the descriptor
                self._close()
        else:
            self._close()

    def delete(self) -> None:
        """Remove the file and close the segment. Its holders finish their work. Durable after a sync of the directory.

        Raises OSError, and then nothing has changed.
        """
        self._shared.fs.remove(self.path)
        self.close()

    def try_unmap(self) -> bool:
        """Drop the mapping, unless the segment is held or has unsynced bytes.

        Returns whether it is dropped. The caller holds the lock of the budget.
        """
        if self.hold_count or self.wrote_position > self.flushed_position:
            return False
        if self._mapped is not None:
            self._mapped.close()
            self._mapped = None
        return True

    def _write(self, data: memoryview) -> None:
        """Copy the next bytes into the file."""
        if self._shared.error is not None:
            raise self._shared.error
        try:
            failpoint("segment.before_write")
            (self._mapped or self._map()).write(self.wrote_position, data)
        except OSError as error:
            raise self._write_failed(error) from error

    def _write_failed(self, error: OSError) -> WriteFailed:
        """Record and return the error that ends all writes of the chain."""
        reason = error.strerror or str(error)
        self._shared.error = failed = WriteFailed(path=self.path, position=self.wrote_position, reason=reason)
        return failed

    def _map_present(self) -> MappedFile:
        """Map the file for a reader. Raises SegmentUnreadable if it is missing or has changed."""
        try:
            mapped = self._map()
        except OSError as error:
            if error.errno not in _OF_THE_FILE:
                raise
            raise SegmentUnreadable(path=self.path, position=0, reason=error.strerror or str(error)) from error
        if mapped.size_bytes != self.size_bytes:
            self.try_unmap()
            reason = f"the file has {mapped.size_bytes} bytes, not {self.size_bytes}"
            raise SegmentUnreadable(path=self.path, position=min(mapped.size_bytes, self.size_bytes), reason=reason)
        return mapped

    def _map(self) -> MappedFile:
        with self._shared.maps.lock:
            if self._mapped is None:
                assert not self._is_closed, f"{self.path} is closed"
                self._mapped = self._shared.fs.open_mapped(self.path)
                self._shared.maps.admit(self)
            return self._mapped

    def _close(self) -> None:
        with self._shared.maps.lock:
            self._is_closed = True
            if self.hold_count == 0:
                self._unmap()

    def _unmap(self) -> None:
        if self._mapped is not None:
            self._shared.maps.forget(self)
            self._mapped.close()
            self._mapped = None

    def _clear(self, position: int) -> bool:
        """Zero all bytes from `position` on, and leave zeros clean. Returns whether any was not zero."""
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


class SegmentHold:
    """A reader's hold of a segment. The reader ends it, or `Segment.evict` does when the segment has to be deleted.

    Held from the start, unless the segment was closed already; see `is_held`. Callers: a single thread, the thread of
    the reader, which also calls `Segment.evict`.
    """

    def __init__(self, segment: Segment) -> None:
        self.segment = segment
        self.is_held = segment.hold(self.let_go)

    def let_go(self) -> None:
        """End the hold. The segment must not be read after it. May be repeated."""
        if self.is_held:
            self.is_held = False
            self.segment.release(self.let_go)
