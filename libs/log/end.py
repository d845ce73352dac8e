# SPDX-License-Identifier: Apache-2.0
"""The end of the commit log: decides from the place where a walk over its records stopped whether records are lost.

There are three kinds of ends. CLEAN: only zeros follow, and no record is lost. TORN_TAIL: either bytes follow that were
never a whole record, as after the crash of a process during a write, or sectors are missing, as after a power cut.
DAMAGED: the place was durable once, or records are changed that have all their sectors, with whole records after them.
No program may decide to drop such records.
The module changes no file. Callers: the CommitLog's recovery, which truncates a torn tail, and readers of the files of
a log whose CommitLog does not run. Both must find the same end.
Rules: docs/formats/commit_log.md section 9; RocketMQ's counterpart is CommitLog.recoverAbnormally, which truncates in
all three cases.
"""

import enum
from collections.abc import Iterator, Sequence

import numpy as np
from msgspec import Struct

from libs.formats.crc import CRC_PROPERTY_PREFIX
from libs.formats.limits import CRC_PROPERTY_SIZE_BYTES
from libs.formats.records import record
from libs.formats.state.store_checkpoint import StoreCheckpoint
from libs.kernel import layout
from libs.kernel.scan.scan_columns import ScanColumns
from libs.log import tail_search
from libs.log.tail_search import SECTOR_BYTES, LogFile

STATUS_REASONS = {
    layout.S_TRUNCATED: "a record runs past the end of the segment",
    layout.S_BAD_MAGIC: "no record starts here",
    layout.S_BAD_LENGTH: "the lengths of a record contradict each other",
    layout.S_BAD_CRC: "the checksum of a record is wrong",
    layout.S_BAD_OFFSET: "a record belongs to another place",
}
STALE_REASON = "a record is older than the one before it"
TORN_REASON = "a sector with properties of a record is missing"


class ScanEndKind(enum.Enum):
    """The kind of a scan's end, with its name in the recovery report."""

    CLEAN = "clean end"
    TORN_TAIL = "torn tail"
    DAMAGED = "damaged middle"


class ScanEnd(Struct, frozen=True):
    """The end of the whole records, and the reason. `reason` is for people."""

    kind: ScanEndKind
    physical_offset: int
    reason: str


class KnownDurable(Struct, frozen=True):
    """Data that was certainly on disk before the start: bytes below an offset, records up to a store time (0: unknown).

    With `is_end` the offset is also the end of the log, because the stop before was clean. `is_foreign` says that
    another program, RocketMQ, wrote last: its store times follow the clock with all its steps.
    """

    physical_offset: int = 0
    store_time_ms: int = 0
    is_end: bool = False
    is_foreign: bool = False


def known_durable(checkpoint: StoreCheckpoint, *, has_epochs: bool) -> KnownDurable:
    """Return the durable data by a store's checkpoint. Reput has written to a store that has had an epoch."""
    return KnownDurable(
        physical_offset=checkpoint.durable_physical_offset,
        store_time_ms=checkpoint.commit_log_time_ms,
        is_foreign=not has_epochs or checkpoint.is_of_rocketmq,
    )


def first_unsound(
    buffer: memoryview, columns: ScanColumns, newest_time_ms: int, clock_step_ms_max: int, durable: KnownDurable
) -> tuple[int, str] | None:
    """Return the index of the first unsound record, and why, or None. It passed all checks, but is not of the log.

    Either the record is the rest of an older log: its store time is earlier than the newest before it, by more than a
    clock may step. Or the sector with its properties is missing, and with it the CRC property if it had this property:
    no other check covers the properties. Durable records are sound. Records of another program are sound, too, because
    its store times follow the clock. `newest_time_ms` is the newest store time before these records; 0 if unknown.
    """
    count = columns.count
    starts = np.frombuffer(columns.physical_offsets, dtype=np.int64, count=count)
    if durable.is_foreign or not count or starts[-1] < durable.physical_offset:
        return None
    stale = first_stale(columns, newest_time_ms, clock_step_ms_max, durable)
    torn = next((int(index) for index in _cut(buffer, columns) if starts[index] >= durable.physical_offset), count)
    if stale is not None and stale <= torn:
        return stale, STALE_REASON
    return (torn, TORN_REASON) if torn < count else None


def first_stale(columns: ScanColumns, newest_time_ms: int, clock_step_ms_max: int, durable: KnownDurable) -> int | None:
    """Return the index of the first scanned record of an older log, as in `first_unsound`, or None."""
    if durable.is_foreign:
        return None
    count = columns.count
    starts = np.frombuffer(columns.physical_offsets, dtype=np.int64, count=count)
    times = np.frombuffer(columns.store_times_ms, dtype=np.int64, count=count)
    newest = np.maximum.accumulate(np.concatenate(([newest_time_ms], times)))[:-1]
    stale = np.flatnonzero((times < newest - clock_step_ms_max) & (starts >= durable.physical_offset))
    return int(stale[0]) if stale.size else None


def _cut(buffer: memoryview, columns: ScanColumns) -> Iterator[int]:
    """Yield the indexes of records without CRC property that lost a sector after their body, where no check covers."""
    content = np.frombuffer(buffer, np.uint8)
    starts = np.frombuffer(columns.positions, dtype=np.int64, count=columns.count)
    ends = starts + np.frombuffer(columns.record_sizes, dtype=np.int32, count=columns.count)
    sector_lasts = np.arange(
        starts[0] | (SECTOR_BYTES - 1), min(ends[-1] + SECTOR_BYTES - 1, len(content)), SECTOR_BYTES
    )
    zeros = sector_lasts[content[sector_lasts] == 0]
    owners = np.unique(np.minimum(np.searchsorted(ends, zeros, side="right"), columns.count - 1))
    prefixes = content[ends[owners, np.newaxis] + np.arange(len(CRC_PROPERTY_PREFIX)) - CRC_PROPERTY_SIZE_BYTES]
    for index in owners[(prefixes != np.frombuffer(CRC_PROPERTY_PREFIX, np.uint8)).any(axis=1)]:
        shape = record.check_header(buffer, int(starts[index]))
        has_bad_topic = 0 in buffer[shape.topic_at : shape.topic_at + shape.topic_size_bytes]
        if has_bad_topic or (
            shape.properties_size_bytes and tail_search.is_cut(buffer, shape.properties_at, shape.end)
        ):
            yield int(index)


def judge_closed(end_physical_offset: int, durable: KnownDurable) -> ScanEnd:
    """Return the end of a log whose last file is closed: clean, unless the log once continued."""
    if end_physical_offset < durable.physical_offset:
        reason = f"the log has no file from here on, although it was on disk up to {durable.physical_offset} once"
        return ScanEnd(ScanEndKind.DAMAGED, end_physical_offset, reason)
    return ScanEnd(ScanEndKind.CLEAN, end_physical_offset, "the last segment is closed")


def judge(
    files: Sequence[LogFile],
    position: int,
    reason: str,
    durable: KnownDurable,
    *,
    last_store_time_ms: int,
    clock_step_ms_max: int,
) -> ScanEnd:
    """Return the log's end, with its kind. The walk stopped at `position` of the first file, for `reason`.

    `last_store_time_ms` is the newest store time before it, 0 if unknown.
    """
    first = files[0]
    end = first.base_physical_offset + position
    was_newer_durable = 0 < last_store_time_ms < durable.store_time_ms
    if end < durable.physical_offset or was_newer_durable:
        return ScanEnd(ScanEndKind.DAMAGED, end, f"{reason}, although what was there was on disk once")
    if durable.is_end and end == durable.physical_offset:
        return ScanEnd(ScanEndKind.CLEAN, end, reason)
    has_content = False
    for file in files:
        start = position if file is first else 0
        content_end = tail_search.content_end(file, start)
        if content_end == start:
            continue
        has_content = True
        file.check_readable(start, content_end)
        found = tail_search.find_record(
            file.buffer,
            _behind_body(file.buffer, start, end) if file is first else start,
            content_end,
            base_physical_offset=file.base_physical_offset,
            store_time_ms_min=last_store_time_ms - clock_step_ms_max,
        )
        if found is not None and not tail_search.has_lost_sector(
            first.buffer, position, found if file is first else first.size_bytes
        ):
            return ScanEnd(
                ScanEndKind.DAMAGED, end, f"{reason}, but a whole record follows at byte {found} of {file.path.name}"
            )
    return ScanEnd(ScanEndKind.TORN_TAIL if has_content else ScanEndKind.CLEAN, end, reason)


def _behind_body(buffer: memoryview, position: int, physical_offset: int) -> int:
    """Return where the records after the record at `position` can begin. Its body never contains records."""
    body_end = record.claimed_body_end(buffer, position, physical_offset)
    return position + 1 if body_end is None else body_end
