# SPDX-License-Identifier: Apache-2.0
"""SegmentChain: files of equal size, each named by the offset of its first byte, in a single directory or several.

Invariants: the offsets of neighbours differ by exactly the segment size; only the last segment is written; every
segment but the last is full; after the first failed sync, commit or write the chain is sealed and none succeeds again.
With a pool, written bytes reach the files by `commit`, oldest first, so that the committed bytes never have a hole;
segments that exist at `open` are written in place. Without a pool, every byte is committed as soon as it is written.
Callers: a single writer for all changes of the chain; `find`, `segments`, `commit`, `sync` and the offsets from any
thread.
Used for the commit log (large files, with the next file prepared ahead) and for each consume queue (small files,
created when needed, which get their blocks by steps; many thousands of chains, so nothing is mapped or started before
it is needed).
Not handled: the meaning of the bytes. So a chain can't know the end of the data in the last file: it opens with every
file full, and recovery calls `truncate_after` with the end that it found.
Rules: docs/formats/commit_log.md section 2; RocketMQ's counterpart is MappedFileQueue.
"""

import errno
from collections.abc import Sequence
from pathlib import Path
from typing import Self

from libs.formats.store_layout import FILE_NAME_DIGIT_COUNT, file_name, parse_file_name
from libs.machine.errors import DiskFull
from libs.machine.fs import PAGE_SIZE_BYTES, TEMPORARY_SUFFIX, Fs, MappedFile
from libs.segments.allocator import SegmentAllocator
from libs.segments.directories import SegmentDirectories
from libs.segments.errors import (
    OffsetBeyondEnd,
    OffsetTrimmed,
    SegmentMissing,
    SegmentSizeWrong,
    SegmentTwice,
    StoreFull,
)
from libs.segments.map_budget import MapBudget
from libs.segments.pool import TransientStorePool
from libs.segments.segment import Segment, SharedState

_TAKES_NO_FILE = {errno.ENOSPC, errno.EROFS, errno.ENOENT, errno.ENOTDIR}
"""Errors of a directory that is full, read-only or not mounted any more, before any file is created."""


class SegmentChain:
    """The segments of `directory`, or of `directories`, which include `directory`. It has no segments before `open`.

    `preallocates` creates each next file ahead of need, and `warms` makes its pages present: see SegmentAllocator. With
    `grows` a new file has only the blocks of its first page, and the writer calls `Segment.reserve`.
    """

    def __init__(
        self,
        fs: Fs,
        directory: Path,
        segment_size_bytes: int,
        *,
        preallocates: bool = False,
        warms: bool = False,
        maps: MapBudget | None = None,
        pool: TransientStorePool | None = None,
        directories: SegmentDirectories | None = None,
        grows: bool = False,
    ) -> None:
        assert segment_size_bytes > 0
        assert not (grows and preallocates)
        assert pool is None or pool.size_bytes == segment_size_bytes
        self.directory = directory
        self.segment_size_bytes = segment_size_bytes
        self.pool = pool
        self.directories = directories
        self._fs = fs
        self._shared = SharedState(fs, segment_size_bytes, maps=maps, pool=pool)
        self.maps = self._shared.maps
        self._first_bytes = min(PAGE_SIZE_BYTES, segment_size_bytes) if grows else segment_size_bytes
        self._segments: list[Segment] = []
        self.allocator = SegmentAllocator(fs, segment_size_bytes, warms=warms) if preallocates else None

    def open(self, *, is_clean: bool = False, is_durable: bool = True) -> Self:
        """Open the existing files. Creates missing directories. Maps no file. Returns the chain.

        Every file counts as written in full. It counts as flushed only with `is_clean` (the last process ended
        orderly): otherwise the bytes of a killed process may be only in the page cache, and the first `sync` covers
        them. New directories are durable with `is_durable`. Files whose names are not 20 digits are ignored.
        Unfinished files that a crash left are removed, and so is an empty last file, which RocketMQ may leave.
        Raises SegmentSizeWrong, SegmentMissing and SegmentTwice, and then nothing was removed.
        """
        listed = [found for directory in self.directory_paths for found in self._listed(directory, is_durable)]
        paths = sorted((path for path in listed if _is_segment(path.name)), key=lambda path: path.name)
        leftovers = [path for path in listed if path.suffix == TEMPORARY_SUFFIX and _is_segment(path.stem)]
        if paths and self._fs.size(paths[-1]) == 0:
            leftovers.append(paths.pop())
        for path in paths:
            self._open_segment(path, is_clean=is_clean)
        for path in leftovers:
            self._fs.remove(path)
            self._fs.sync_directory(path.parent)
        return self

    @property
    def directory_paths(self) -> Sequence[Path]:
        """All directories that may have files of the chain."""
        return self.directories.all if self.directories is not None else (self.directory,)

    @property
    def segments(self) -> list[Segment]:
        """All segments, oldest first. The list is a snapshot: a change of the chain makes a new list."""
        return self._segments

    @property
    def active(self) -> Segment | None:
        """The last segment, which is written. None while the chain is empty."""
        segments = self._segments
        return segments[-1] if segments else None

    @property
    def min_physical_offset(self) -> int:
        """Offset of the first kept byte, 0 while the chain is empty."""
        segments = self._segments
        return segments[0].base_physical_offset if segments else 0

    @property
    def max_physical_offset(self) -> int:
        """Offset where the next byte will be written, 0 while the chain is empty."""
        segments = self._segments
        return segments[-1].end_physical_offset if segments else 0

    @property
    def committed_physical_offset(self) -> int:
        """Offset below which all bytes are in the files: readers see them, and they survive the process."""
        if self.pool is None:
            return self.max_physical_offset
        offset = self.min_physical_offset
        for segment in reversed(self._segments):
            offset = segment.base_physical_offset + segment.committed_position
            if segment.committed_position > 0:
                break
        return offset

    @property
    def flushed_physical_offset(self) -> int:
        """Offset below which all bytes survive a power cut."""
        offset = self.min_physical_offset
        for segment in reversed(self._segments):
            offset = segment.base_physical_offset + segment.flushed_position
            if segment.flushed_position > 0:
                break
        return offset

    def find(self, physical_offset: int) -> Segment:
        """Return the segment that has this byte. Raises OffsetTrimmed, or OffsetBeyondEnd when it is not written."""
        segments = self._segments
        if not segments or physical_offset >= segments[-1].end_physical_offset:
            end = segments[-1].end_physical_offset if segments else 0
            raise OffsetBeyondEnd(value=physical_offset, max_offset=end)
        first_base = segments[0].base_physical_offset
        if physical_offset < first_base:
            raise OffsetTrimmed(value=physical_offset, min_offset=first_base)
        return segments[(physical_offset - first_base) // self.segment_size_bytes]

    @property
    def can_roll(self) -> bool:
        """Whether the next segment may begin: a pool must have a free buffer, which a commit returns."""
        return self.pool is None or self.pool.free_count > 0

    def roll(self, *, first_base_physical_offset: int = 0, is_durable: bool = True) -> Segment:
        """Add the next segment, durably, and make it the active segment. The former active segment must be full.

        An empty chain begins at `first_base_physical_offset`. Without `is_durable` the first file is created as
        described at `Fs.create_mapped`, and the next file must wait for its sync. Raises StoreFull: then nothing has
        changed.
        """
        active = self.active
        assert active is None or active.is_full
        assert self.can_roll
        assert is_durable or active is None
        base = first_base_physical_offset if active is None else active.base_physical_offset + self.segment_size_bytes
        mapped = self._create(base, is_durable=is_durable)
        segment = Segment(self._shared, mapped.path, base, reserved_position=self._first_bytes, mapped=mapped)
        self._segments = [*self._segments, segment]
        self._count(segment, 1)
        if self.allocator is not None:
            self.allocator.prepare(self._paths_for(base + self.segment_size_bytes)[0])
            if active is not None:
                self.allocator.retire(active)
        return segment

    def commit(self) -> int:
        """Copy all bytes that were published before the call from the pool into the files. Returns their end.

        Oldest first. Blocks without the GIL; does nothing without a pool. Raises CommitFailed.
        """
        end = self.max_physical_offset
        pending: list[Segment] = []
        for segment in reversed(self._segments):
            if not segment.is_committed:
                pending.append(segment)
            elif segment.wrote_position > 0:
                break
        for segment in reversed(pending):
            segment.commit()
        return end

    def sync(self) -> int:
        """Make all bytes durable that were committed before the call. Returns the flushed offset of the chain.

        Oldest first, so the flushed bytes never have a hole. Blocks without the GIL. Raises SyncFailed.
        """
        pending = self.unsynced()
        if self._shared.error is not None:
            raise self._shared.error
        for segment in pending:
            segment.sync()
        return self.flushed_physical_offset

    def unsynced(self) -> list[Segment]:
        """Return the segments with committed bytes that no sync has covered, oldest first."""
        pending: list[Segment] = []
        for segment in reversed(self._segments):
            if segment.committed_position > segment.flushed_position:
                pending.append(segment)
            elif segment.flushed_position > 0:
                break
        return pending[::-1]

    def truncate_after(self, physical_offset: int, *, clear_rest: bool = True) -> None:
        """Remove all bytes from this offset on, durably, newest first, so that a crash leaves no hole.

        Segments that begin at or after the offset are removed, except the first of the chain, which keeps its place.
        `clear_rest` as in `Segment.truncate`. Raises OffsetTrimmed, OffsetBeyondEnd (beyond, not at, the end).
        """
        if physical_offset < self.min_physical_offset:
            raise OffsetTrimmed(value=physical_offset, min_offset=self.min_physical_offset)
        if physical_offset > self.max_physical_offset:
            raise OffsetBeyondEnd(value=physical_offset, max_offset=self.max_physical_offset)
        if self.allocator is not None:
            self.allocator.discard()
        while len(self._segments) > 1 and self._segments[-1].base_physical_offset >= physical_offset:
            self._delete_last()
        if self._segments:
            last = self._segments[-1]
            last.truncate(physical_offset - last.base_physical_offset, clear_rest=clear_rest)

    def detach_first(self) -> Segment:
        """Detach the oldest segment from the chain, at once, for a caller that deletes its file in another thread.

        Until the file is deleted and the directory synced, a crash brings the segment back. The active segment can't be
        detached.
        """
        assert len(self._segments) > 1
        first = self._segments[0]
        self._segments = self._segments[1:]
        self._count(first, -1)
        return first

    def destroy(self) -> None:
        """Remove all segments, durably, newest first, so that a crash leaves no hole. `roll` may begin again.

        May be repeated after an OSError.
        """
        if self.allocator is not None:
            self.allocator.discard()
        while self._segments:
            self._delete_last()

    def close(self) -> None:
        """Unmap all files and remove the file that was prepared ahead. Makes nothing durable: call `sync` first."""
        if self.allocator is not None:
            self.allocator.close()
        for segment in self._segments:
            segment.close()

    def _delete_last(self) -> None:
        """Remove the newest segment, durably. With an error it still belongs to the chain, unless its file is gone."""
        last = self._segments[-1]
        last.delete()
        self._segments = self._segments[:-1]
        self._count(last, -1)
        self._fs.sync_directory(last.path.parent)

    def _open_segment(self, path: Path, *, is_clean: bool) -> None:
        size_bytes = self._fs.size(path)
        if size_bytes != self.segment_size_bytes:
            raise SegmentSizeWrong(path=path, size_bytes=size_bytes, expected_bytes=self.segment_size_bytes)
        base = parse_file_name(path.name)
        if self._segments and base == self._segments[-1].base_physical_offset:
            raise SegmentTwice(path=path, other=self._segments[-1].path)
        if self._segments and base != (expected := self._segments[-1].base_physical_offset + size_bytes):
            raise SegmentMissing(path=path, previous=self._segments[-1].path, missing=file_name(expected))
        flushed_position = size_bytes if is_clean else 0
        segment = Segment(self._shared, path, base, wrote_position=size_bytes, flushed_position=flushed_position)
        self._segments.append(segment)
        self._count(segment, 1)

    def _count(self, segment: Segment, change: int) -> None:
        if self.directories is not None:
            self.directories.counts[segment.path.parent] += change

    def _listed(self, directory: Path, is_durable: bool) -> list[Path]:
        self._fs.make_directory(directory, is_durable=is_durable)
        return [directory / name for name in self._fs.list(directory)]

    def _paths_for(self, base: int) -> list[Path]:
        """Return the possible paths of the file with this base offset, the best path first."""
        name = file_name(base)
        if self.directories is None:
            return [self.directory / name]
        return [directory / name for directory in self.directories.candidates(base // self.segment_size_bytes)]

    def _create(self, base: int, *, is_durable: bool) -> MappedFile:
        """Create a file: at the prepared path, or else at the first path that has room and accepts files.

        Raises StoreFull if a directory that accepts files has no room, and OSError if no directory accepts files.
        """
        prepared = self.allocator.prepared_path if self.allocator is not None else None
        paths = sorted(self._paths_for(base), key=lambda path: path != prepared)  # the others stay in order
        errors: list[OSError] = []
        for path in paths:
            try:
                if self.allocator is not None:
                    return self.allocator.allocate(path)
                return self._fs.create_mapped(
                    path, self.segment_size_bytes, reserved_bytes=self._first_bytes, is_durable=is_durable
                )
            except OSError as error:
                if error.errno not in _TAKES_NO_FILE or self._fs.exists(path):  # the content at the path is unknown
                    raise
                errors.append(error)
        if not any(isinstance(error, DiskFull) for error in errors):
            raise errors[0]
        raise StoreFull(path=paths[0], needed_bytes=self._first_bytes) from errors[0]


def _is_segment(name: str) -> bool:
    return len(name) == FILE_NAME_DIGIT_COUNT and name.isascii() and name.isdecimal()
