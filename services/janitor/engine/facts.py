# SPDX-License-Identifier: Apache-2.0
"""Facts: the answers of the files' owners, which are the policy's only input. Plain values.

Offsets are bytes of the log. Times are milliseconds since the epoch.
"""

from collections.abc import Sequence

from msgspec import Struct

LOG_OWNER, INDEX_OWNER = "commitlog", "indexer"
"""Names of the owners, as in the answers of the service."""


class SegmentFacts(Struct, frozen=True):
    """A segment, from the CommitLog. Times are milliseconds since the epoch, None if it has no record."""

    base_physical_offset: int
    size_bytes: int
    last_store_time_ms: int | None
    is_active: bool
    is_indexed: bool
    first_store_time_ms: int | None = None

    @property
    def end_physical_offset(self) -> int:
        """The first byte after the segment."""
        return self.base_physical_offset + self.size_bytes


class Disk(Struct, frozen=True):
    """A disk of an owner, "commitlog" or "indexer". `used_percent` is rounded up, None if it is unknown.

    An owner may have several disks. The policy uses the emptiest disk of an owner, because it can take new files.
    """

    service: str
    used_percent: int | None
    total_bytes: int = 0
    free_bytes: int = 0
    path: str = ""
    """Directory of the segments, for a disk of the CommitLog; else empty."""
    own_bytes: int | None = None
    """Bytes of the owner's segments or index files on the disk, None if unknown. All other used bytes are others'."""


class Hold(Struct, frozen=True):
    """The first record of the log that a topic's own rule keeps, and the topic."""

    physical_offset: int
    topic: str
    hours: int


class Facts(Struct, frozen=True):
    """The facts for a decision: all segments, oldest first, and the offsets that are indexed and replicated."""

    segments: Sequence[SegmentFacts]
    indexed_physical_offset: int
    replicated_physical_offset: int
    disks: Sequence[Disk] = ()
    hold: "Hold | None" = None
    """The messages of a topic that are kept for longer than retention_hours."""
    relief_end_physical_offset: int = 0
    """End of the oldest segments whose index files, when deleted, free the bytes that the Indexer's disk needs, or as
    many of these bytes as possible. 0 if this disk needs no bytes of the index files, or no index file would be
    deleted. See `index_relief`."""

    @property
    def newest_store_time_ms(self) -> int | None:
        """Store time of the newest record, None without a record."""
        times_ms = [one.last_store_time_ms for one in self.segments]
        return max((time_ms for time_ms in times_ms if time_ms is not None), default=None)


class LogFacts(Struct, frozen=True):
    """The facts from the CommitLog. There is a disk for each directory that takes new segments."""

    segments: Sequence[SegmentFacts]
    replicated_physical_offset: int
    disks: Sequence[Disk]
    is_follower: bool = False


class IndexFacts(Struct, frozen=True):
    """The facts from the Indexer."""

    indexed_physical_offset: int
    disk: Disk


class TopicRule(Struct, frozen=True):
    """A topic's own rule of retention. A limit of 0 is none."""

    topic: str
    retention_hours: int = 0
    retention_bytes: int = 0


class ConsumerBelow(Struct, frozen=True):
    """A group whose stored offset is below the first entry that is kept, or will be kept."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    min_queue_offset: int


class Expiry(Struct, frozen=True):
    """The messages of a topic that expire by its rule, and the messages that stay, from the Indexer."""

    begin_physical_offset: int = 0
    expired_message_count: int = 0
    kept_message_count: int = 0
    kept_bytes: int = 0
    first_store_time_ms: int | None = None
    shown_physical_offset: int = 0
    """The begin of the topic as far as the Indexer has heard of it, or the log's first byte."""
    consumers: Sequence[ConsumerBelow] = ()
    """The groups that have not read all messages that expire, if they were asked for."""
    consumer_count: int = 0


class Trimmed(Struct, frozen=True):
    """The result of a trim, or of its dry run: the freed bytes, and the consumers that miss messages by it."""

    freed_bytes: int
    consumers: Sequence[ConsumerBelow] = ()
    consumer_count: int = 0
    own_bytes: int = 0
    """Bytes of all files of the indexes now, in a dry run."""
