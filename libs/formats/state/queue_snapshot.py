# SPDX-License-Identifier: Apache-2.0
"""QueueSnapshot: the data for which a start would otherwise have to scan the whole log.

`counters` count exactly the records below `end_physical_offset`. `segment_times` has every segment that begins below
it. `writers` and `writer_sequences` are the table of the writers below it.
RocketMQ has no such file: it derives the counters from the consume queues, which here belong to another service.
Spec: docs/formats/reput_files.md section 2.
"""

from collections.abc import Iterator
from itertools import islice
from typing import Self

import msgspec

from libs.formats.records.writer_stamp import WriterStamp
from libs.formats.state.checksummed import JsonFile, wrap

PART_COUNT = 1_000
"""Number of counters that are encoded without a pause for other threads."""


class SegmentTimes(msgspec.Struct, frozen=True, array_like=True):
    """Store times (ms) of the first and last record of a segment, 0 while it has no record."""

    base_physical_offset: int
    first_store_time_ms: int
    last_store_time_ms: int


class QueueCounter(msgspec.Struct, frozen=True, array_like=True):
    """The next queue offset of a queue. The topic's bytes are stored as Latin-1, which accepts all bytes."""

    topic: str
    queue_id: int
    next_queue_offset: int


class WriterBatch(msgspec.Struct, frozen=True, array_like=True):
    """A batch of a writer in the log: its stamp and its store time."""

    writer_id: str
    sequence: int
    checksum: int
    start_physical_offset: int
    size_bytes: int
    store_time_ms: int

    @classmethod
    def of(cls, stamp: WriterStamp, store_time_ms: int) -> Self:
        """Return the batch of a stamp."""
        return cls(
            stamp.writer_id,
            stamp.sequence,
            stamp.checksum,
            stamp.start_physical_offset,
            stamp.size_bytes,
            store_time_ms,
        )

    @property
    def end_physical_offset(self) -> int:
        """End of the batch, exclusive."""
        return self.start_physical_offset + self.size_bytes


class SnapshotEnd(JsonFile, frozen=True):
    """The end of a snapshot, read without its other values."""

    KIND = "queue_offsets"

    end_physical_offset: int


class QueueSnapshot(JsonFile, frozen=True):
    """Counters, times and writers of the log below a physical offset."""

    KIND = "queue_offsets"

    end_physical_offset: int
    last_store_time_ms: int
    segment_times: list[SegmentTimes]
    counters: list[QueueCounter]
    writers: list[WriterBatch] = msgspec.field(default_factory=list)
    writer_sequences: list[tuple[str, int]] = msgspec.field(default_factory=list)

    def encode_with(self, counters: Iterator[tuple[bytes, int, int]]) -> bytes:
        """Return the file with these counters in place of its own, each a topic, a queue id and the next queue offset.

        Callers: a thread. The counters are encoded in parts, so that other threads run in between.
        """
        parts = []
        while part := [QueueCounter(topic.decode("latin-1"), *rest) for topic, *rest in islice(counters, PART_COUNT)]:
            parts.append(msgspec.json.encode(part)[1:-1])
        raw = msgspec.Raw(b"[" + b",".join(parts) + b"]")
        return wrap(self.KIND, msgspec.json.encode({**msgspec.structs.asdict(self), "counters": raw}))
