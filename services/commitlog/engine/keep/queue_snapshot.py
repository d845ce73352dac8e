# SPDX-License-Identifier: Apache-2.0
"""QueueSnapshot: what a start would otherwise have to scan the whole log for. Kept in `reput/queue_offsets`.

Invariants: all bytes of the log below `end_physical_offset` were synced before the snapshot was written; `counters`
count exactly the records below it; `segment_times` has every segment that begins below it; `writers` and
`writer_sequences` are the table of the writers below it.
A snapshot that is missing or damaged is no loss: the start then scans the log from its beginning.
Layout: docs/formats/reput_files.md (a checksummed file whose payload is JSON). RocketMQ has no such file: it derives
the counters from the consume queues, which here belong to another service.
"""

from collections.abc import Iterator
from itertools import islice
from pathlib import Path

import msgspec

from libs.formats import store_layout
from libs.formats.errors import FormatError
from libs.formats.state import checksummed
from libs.kernel.append.topic_table import Counter
from libs.machine.fs import Fs
from services.commitlog.engine.write.writers import WriterBatch

SNAPSHOT_KIND = "queue_offsets"

PART_COUNT = 1_000
"""Counters that are encoded without a pause for other threads."""


class SegmentTimes(msgspec.Struct, frozen=True, array_like=True):
    """Store times (ms) of the first and last record of a segment; 0 while it has none."""

    base_physical_offset: int
    first_store_time_ms: int
    last_store_time_ms: int


class QueueCounter(msgspec.Struct, frozen=True, array_like=True):
    """Number that the next message of a queue gets. The topic's bytes are kept as Latin-1, which takes any."""

    topic: str
    queue_id: int
    next_queue_offset: int


class QueueSnapshot(msgspec.Struct, frozen=True):
    """Counters, times and writers of the log below one physical offset."""

    end_physical_offset: int
    last_store_time_ms: int
    segment_times: list[SegmentTimes]
    counters: list[QueueCounter]
    writers: list[WriterBatch] = []
    writer_sequences: list[tuple[str, int]] = []


def load(fs: Fs, data_dir: Path) -> QueueSnapshot | None:
    """Read the snapshot. None if there is none; raises FormatError or msgspec.ValidationError for a damaged one."""
    path = data_dir / store_layout.QUEUE_SNAPSHOT
    if not fs.exists(path):
        return None
    return msgspec.json.decode(checksummed.unwrap(SNAPSHOT_KIND, fs.read(path)), type=QueueSnapshot)


def save(fs: Fs, data_dir: Path, snapshot: QueueSnapshot, counters: Iterator[Counter]) -> None:
    """Write the snapshot with these counters, durably. The caller has synced the log up to its end before.

    For a thread: the counters are encoded in parts, so that other threads have their turn.
    """
    parts = []
    while part := [QueueCounter(topic.decode("latin-1"), *rest) for topic, *rest in islice(counters, PART_COUNT)]:
        parts.append(msgspec.json.encode(part)[1:-1])
    encoded = {**msgspec.structs.asdict(snapshot), "counters": msgspec.Raw(b"[" + b",".join(parts) + b"]")}
    fs.write_atomic(
        data_dir / store_layout.QUEUE_SNAPSHOT, checksummed.wrap(SNAPSHOT_KIND, msgspec.json.encode(encoded))
    )


DAMAGE_ERRORS = (FormatError, msgspec.DecodeError)
"""What `load` raises for a file that is not a snapshot."""
