# SPDX-License-Identifier: Apache-2.0
"""What the owners of files say of them: the policy's only input. Values alone.

Offsets are bytes of the log; times are milliseconds since the epoch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

LOG_OWNER, INDEX_OWNER = "commitlog", "indexer"
"""Names of the owners, as in the answers of the service."""


@dataclass(frozen=True, slots=True)
class SegmentFacts:
    """What the CommitLog says of one segment. Times are milliseconds since the epoch, None if it has no record."""

    base_physical_offset: int
    size_bytes: int
    last_store_time_ms: int | None
    is_active: bool
    is_indexed: bool

    @property
    def end_physical_offset(self) -> int:
        """First byte behind the segment."""
        return self.base_physical_offset + self.size_bytes


@dataclass(frozen=True, slots=True)
class Disk:
    """The disk of an owner, "commitlog" or "indexer". `used_percent` is rounded up, None where it can't be told.

    The owner may have several; of several under one name the emptiest counts, because files can go there.
    """

    service: str
    used_percent: int | None
    total_bytes: int = 0
    free_bytes: int = 0
    path: str = ""
    """Directory of the segments, for a disk of the CommitLog; else empty."""
    own_bytes: int | None = None
    """Bytes of it that are the owner's segments or index files; None if nobody asked. All else is others'."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What the owners say: all segments, oldest first, what the Indexer has synced, what in-sync replicas have."""

    segments: Sequence[SegmentFacts]
    indexed_physical_offset: int
    replicated_physical_offset: int
    disks: Sequence[Disk] = ()
    relief_end_physical_offset: int = 0
    """End of the oldest segments whose index files would free what the Indexer's disk needs, or as much of it as there
    is; 0 if it needs nothing of its own files, or none would go. See `index_relief`."""

    @property
    def newest_store_time_ms(self) -> int | None:
        """Store time of the newest record, None without one."""
        times_ms = [one.last_store_time_ms for one in self.segments]
        return max((time_ms for time_ms in times_ms if time_ms is not None), default=None)


@dataclass(frozen=True, slots=True)
class LogFacts:
    """What the CommitLog says. It has a disk for each directory that takes new segments."""

    segments: Sequence[SegmentFacts]
    replicated_physical_offset: int
    disks: Sequence[Disk]


@dataclass(frozen=True, slots=True)
class IndexFacts:
    """What the Indexer says."""

    indexed_physical_offset: int
    disk: Disk


@dataclass(frozen=True, slots=True)
class ConsumerBelow:
    """A group whose stored offset is below the first entry that is kept, or will be."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    min_queue_offset: int


@dataclass(frozen=True, slots=True)
class Trimmed:
    """What the Indexer forgot, or would forget: bytes that it freed, and the consumers that miss something."""

    freed_bytes: int
    consumers: Sequence[ConsumerBelow] = ()
    consumer_count: int = 0
    own_bytes: int = 0
    """Bytes of all files of the indexes now, if it only tells what it would forget."""
