# SPDX-License-Identifier: Apache-2.0
"""SegmentKeeper: lists the segments, and deletes the oldest when it is safe.

Invariants: the log has no holes, so only the oldest segments are deleted. The segment for appends stays. A segment that
is still being copied from the pool stays. A segment that the Indexer has not indexed durably stays unless the caller
insists. A segment with readers stays for segment_release_timeout_ms after the first request to delete it; then its
readers' streams end.
Callers: the loop that owns the log; the files are removed in a worker thread, one request at a time.
Rules: docs/formats/commit_log.md section 2; RocketMQ's counterpart is MappedFileQueue.deleteExpiredFileByTime, but for
its use of file times.
"""

import asyncio
import bisect
import enum
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from msgspec import Struct

from libs.log.state import directories as log_directories
from libs.machine.clock import Clock
from libs.machine.failpoints import failpoint
from libs.machine.fs import Fs
from libs.machine.uninterrupted import uninterrupted
from libs.requests.errors import BadArgument
from libs.segments.chain import SegmentChain
from libs.segments.directories import SegmentDirectories
from libs.segments.segment import Segment
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.keep.checkpoint import CheckpointKeeper
from services.commitlog.engine.keep.epochs import EpochHistory
from services.commitlog.engine.keep.queue_snapshot import SnapshotKeeper
from services.commitlog.engine.keep.small_files import SmallFiles

DELETE_COUNT_MAX = 1_000
READER_WAIT_S, READER_POLL_S = 1.0, 0.005
"""Longest wait for a moment without readers, and its interval. Most readers are done within milliseconds."""

_log = logging.getLogger(__name__)


class Refusal(enum.Enum):
    """Why a segment was not deleted."""

    ACTIVE = "active"
    NOT_OLDEST = "not oldest"
    NOT_INDEXED = "not indexed"
    UNKNOWN = "unknown"
    IN_USE = "in use"


class SegmentFacts(Struct, frozen=True):
    """The description of a segment. Store times in milliseconds, 0 if it has no record."""

    base_physical_offset: int
    size_bytes: int
    wrote_bytes: int
    first_store_time_ms: int
    last_store_time_ms: int
    is_active: bool
    is_indexed: bool
    reader_count: int


class Deletion(Struct, frozen=True):
    """The outcome for a segment, without a refusal if it is gone."""

    base_physical_offset: int
    refusal: Refusal | None
    freed_bytes: int


@dataclass(slots=True, eq=False)
class SegmentKeeper:
    """The keeper of the segments. A deletion saves the facts about the deleted records first, and small files last."""

    _fs: Fs
    _chain: SegmentChain
    _directories: SegmentDirectories
    _epochs: EpochHistory
    _checkpoint: CheckpointKeeper
    _snapshot: SnapshotKeeper
    _small_files: SmallFiles
    _clock: Clock
    _config: CommitLogConfig
    reader_wait_s: float = READER_WAIT_S
    deleted_count: int = 0
    evicted_count: int = 0
    """Segments whose readers' streams were ended."""
    _wanted: tuple[int, float] | None = None
    """The segment that was last refused because of its readers, with the time of its first refusal."""
    _deletion: asyncio.Lock = field(default_factory=asyncio.Lock)

    @property
    def min_physical_offset(self) -> int:
        """First byte of the log."""
        return self._chain.min_physical_offset

    def list_from(self, physical_offset: int, count: int) -> list[SegmentFacts]:
        """Return up to `count` segments that begin at or after this offset, oldest first."""
        segments = self._chain.segments
        first = bisect.bisect_left(segments, physical_offset, key=lambda segment: segment.base_physical_offset)
        return [self._facts(segment) for segment in segments[first : first + count]]

    async def delete(self, bases: Sequence[int], *, allow_unindexed: bool) -> list[Deletion]:
        """Delete segments at the old end, durably. Returns an answer for each, in order.

        Raises BadArgument, and StoreSealed or OSError when facts that only these segments contain cannot be saved.
        """
        _check_bases(bases)
        return await uninterrupted(self._delete_in_turn(list(bases), allow_unindexed=allow_unindexed))

    async def finish(self) -> None:
        """Wait for the current deletions. Their callers may be gone."""
        async with self._deletion:
            pass

    async def _delete_in_turn(self, bases: list[int], *, allow_unindexed: bool) -> list[Deletion]:
        async with self._deletion:
            deletions = []
            for base in bases:
                refusal = await self._lasting_refusal(base, allow_unindexed=allow_unindexed)
                freed_bytes = 0
                if refusal is None and base >= self._chain.min_physical_offset:
                    await self._delete_first()
                    self.deleted_count += 1
                    freed_bytes = self._chain.segment_size_bytes
                deletions.append(Deletion(base, refusal, freed_bytes))
            if any(deletion.freed_bytes for deletion in deletions):
                await self._tidy()
        return deletions

    async def _delete_first(self) -> None:
        """Remove the file, then the segment. If the file stays, the segment stays, too, so the log gets no hole."""
        segment = self._chain.segments[0]
        if segment.is_held:
            _log.warning("segment %s is deleted although %d read it: their streams end", segment, segment.hold_count)
            segment.evict()
            self.evicted_count += 1
        await self._snapshot.cover(segment.end_physical_offset)
        await self._checkpoint.save_start(segment.end_physical_offset)
        is_held = segment.hold()  # concurrent readers need the mapping: the file is gone
        assert is_held
        try:
            await asyncio.to_thread(self._remove_file, segment)
        finally:
            segment.release()
        self._chain.detach_first()
        await asyncio.to_thread(segment.close)  # may wait for a running sync

    async def _tidy(self) -> None:
        """Remove deleted segments from the small files. Without room, the next deletion or start does it."""

        def save() -> None:
            self._epochs.trim(self._chain.min_physical_offset)
            log_directories.save(self._fs, self._config.data_dir, self._directories.used)

        try:
            await self._small_files.write(save, with_ballast=True)
        except OSError as error:
            _log.warning("small files still speak of deleted segments: %s", error)

    def _remove_file(self, segment: Segment) -> None:
        failpoint("delete_segment.before_remove")
        if self._fs.exists(segment.path):  # a retry after a failure below finds no file
            self._fs.remove(segment.path)
        self._fs.sync_directory(segment.path.parent)
        failpoint("delete_segment.after_remove")

    async def _lasting_refusal(self, base: int, *, allow_unindexed: bool) -> Refusal | None:
        """Return the refusal that remains after short readers are done."""
        now_s = asyncio.get_running_loop().time
        end_s = now_s() + self.reader_wait_s
        while True:
            refusal = self._refusal(base, allow_unindexed=allow_unindexed)
            if refusal is not Refusal.IN_USE or now_s() >= end_s:
                return refusal
            await asyncio.sleep(READER_POLL_S)

    def _refusal(self, base: int, *, allow_unindexed: bool) -> Refusal | None:
        segments = self._chain.segments
        if base < 0 or base % self._chain.segment_size_bytes or not segments:
            return Refusal.UNKNOWN
        if base > segments[-1].base_physical_offset:
            return Refusal.UNKNOWN
        if base < segments[0].base_physical_offset:
            return None
        if base == segments[-1].base_physical_offset or not segments[0].is_committed:
            return Refusal.ACTIVE
        if base != segments[0].base_physical_offset:
            return Refusal.NOT_OLDEST
        if not allow_unindexed and not self._is_indexed(segments[0]):
            return Refusal.NOT_INDEXED
        return Refusal.IN_USE if self._must_wait(segments[0]) else None

    def _must_wait(self, segment: Segment) -> bool:
        """Return whether readers still have time to finish with a segment that is to be deleted."""
        if not segment.is_held:
            return False
        base, now_s = segment.base_physical_offset, self._clock.monotonic_s()
        if self._wanted is None or self._wanted[0] != base:
            self._wanted = (base, now_s)
        return (now_s - self._wanted[1]) * 1000 < self._config.segment_release_timeout_ms

    def _is_indexed(self, segment: Segment) -> bool:
        return self._checkpoint.indexed_flushed_physical_offset >= segment.end_physical_offset

    def _facts(self, segment: Segment) -> SegmentFacts:
        return SegmentFacts(
            base_physical_offset=segment.base_physical_offset,
            size_bytes=segment.size_bytes,
            wrote_bytes=segment.wrote_position,
            first_store_time_ms=segment.first_store_time_ms,
            last_store_time_ms=segment.last_store_time_ms,
            is_active=segment is self._chain.active,
            is_indexed=segment.wrote_position > 0 and self._is_indexed(segment),
            reader_count=segment.hold_count,
        )


def _check_bases(bases: Sequence[int]) -> None:
    field = "base_physical_offsets"
    if len(bases) > DELETE_COUNT_MAX:
        raise BadArgument("too many segments", field=field, value=len(bases), limit=DELETE_COUNT_MAX)
    for index, base in enumerate(bases):
        if base < 0 or (index > 0 and base <= bases[index - 1]):
            reason = "base offsets ascend and are not negative"
            raise BadArgument(reason, field=f"{field}[{index}]", value=base, limit=0)
