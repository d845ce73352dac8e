# SPDX-License-Identifier: Apache-2.0
"""LogCheck: goes through every record of the log once, reports what is wrong, and gives the rest as columns.

It stands on the walk of all who read a log (libs/log/walk.py), and ends where the log ends: behind the last whole
record of the last segment that has one. After damage it goes on at the next whole record; the bytes between are kept as
a damaged range, so that what queues and index say about records in it is not held against them. A record whose body
alone is damaged still counts, because its other fields are right.
What lies behind the end is told from damage by this: no whole record follows.
Rules: docs/formats/commit_log.md section 9. Not handled: queues and index, which take the columns.
"""

from __future__ import annotations

import zlib
from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from cli.verify.files import Files
from cli.verify.findings import Report
from cli.verify.log.files import RECORD_SIZE_BYTES_MAX, LogFile, LogFiles
from cli.verify.state import StoreState
from libs.formats import limits
from libs.formats.crc import CRC_PROPERTY_PREFIX
from libs.formats.errors import FormatError
from libs.formats.limits import CRC_PROPERTY_SIZE_BYTES
from libs.formats.records import record
from libs.formats.records.delay_level import DELAY_LEVELS_MS
from libs.formats.state.store_checkpoint import StoreCheckpoint
from libs.kernel import layout
from libs.kernel.scan import scan_cy
from libs.kernel.scan.scan_columns import ScanColumns
from libs.log import end as log_end
from libs.log import tail_search
from libs.log.walk import UNSOUND, LogWalk, Stop

RECORD_COUNT_MAX = 1 << 16
LIKE_COUNT_MIN = 6
"""So many equal bytes of its name make a CRC property, if it is not whole."""

_CODE_OF_STATUS = {
    layout.S_TRUNCATED: "LOG_RECORD_LENGTH",
    layout.S_BAD_MAGIC: "LOG_RECORD_MAGIC",
    layout.S_BAD_LENGTH: "LOG_RECORD_LENGTH",
    layout.S_BAD_OFFSET: "LOG_RECORD_OFFSET",
}
_REASON = {
    "LOG_RECORD_LENGTH": "the lengths of the record contradict each other or run past the segment",
    "LOG_RECORD_MAGIC": "no record starts here",
    "LOG_RECORD_OFFSET": "the record says that it belongs to another place",
    "LOG_BODY_CRC": "the body does not have its checksum",
    "LOG_PROPERTY_CRC": "the record does not have the checksum of its CRC property",
    "LOG_STALE_RECORD": "the record is older than the one before it, so an older log left it",
    "LOG_HOLE": "zeros where a record should start",
}


@dataclass(frozen=True, slots=True)
class LogBatch:
    """Consecutive whole records as columns. The arrays are views that the next batch overwrites."""

    queues: list[tuple[bytes, int]]
    physical_offsets: NDArray[np.int64]
    queue_offsets: NDArray[np.int64]
    tags_codes: NDArray[np.int64]
    store_times_ms: NDArray[np.int64]
    record_sizes: NDArray[np.int32]
    queue_indexes: NDArray[np.int32]
    sys_flags: NDArray[np.int32]
    key_counts: NDArray[np.int32]
    key_hashes: NDArray[np.int32]

    def part(self, start: int, end: int) -> LogBatch:
        """Return the records numbered [start, end) of this batch."""
        key = int(self.key_counts[:start].sum())
        key_end = key + int(self.key_counts[start:end].sum())
        return LogBatch(
            queues=self.queues,
            physical_offsets=self.physical_offsets[start:end],
            queue_offsets=self.queue_offsets[start:end],
            tags_codes=self.tags_codes[start:end],
            store_times_ms=self.store_times_ms[start:end],
            record_sizes=self.record_sizes[start:end],
            queue_indexes=self.queue_indexes[start:end],
            sys_flags=self.sys_flags[start:end],
            key_counts=self.key_counts[start:end],
            key_hashes=self.key_hashes[key:key_end],
        )


@dataclass(slots=True)
class SegmentSpan:
    """Store times of the first and last record of a segment, None while it has none."""

    first_store_time_ms: int | None = None
    last_store_time_ms: int | None = None


@dataclass(slots=True)
class LogFacts:
    """What the walk learned of the log as a whole."""

    delay_levels_ms: Sequence[int] = DELAY_LEVELS_MS
    """By which the tags codes of delayed messages are reckoned; nothing in the store tells."""
    record_count: int = 0
    end_physical_offset: int = 0
    last_store_time_ms: int = 0
    spans: dict[int, SegmentSpan] = field(default_factory=dict)
    damaged_starts: list[int] = field(default_factory=list)
    damaged_ends: list[int] = field(default_factory=list)

    def add_damage(self, start: int, end: int) -> None:
        """Remember that the records of [start, end) can't be read. Ranges come in ascending order."""
        if self.damaged_ends and self.damaged_ends[-1] == start:
            self.damaged_ends[-1] = end
        elif end > start:
            self.damaged_starts.append(start)
            self.damaged_ends.append(end)

    def is_damaged(self, physical_offset: int) -> bool:
        """Return whether this offset lies where records can't be read."""
        index = bisect_right(self.damaged_starts, physical_offset) - 1
        return index >= 0 and physical_offset < self.damaged_ends[index]

    def has_damage_between(self, start: int, end: int) -> bool:
        """Return whether a damaged range touches [start, end)."""
        index = bisect_right(self.damaged_ends, start)
        return index < len(self.damaged_starts) and self.damaged_starts[index] < end


class LogCheck:
    """One check. Iterate over `batches` once. `facts` grow meanwhile and are complete afterwards."""

    def __init__(
        self,
        files: Files,
        log: LogFiles,
        state: StoreState,
        report: Report,
        *,
        check_crc: bool,
        delay_levels_ms: Sequence[int],
    ) -> None:
        self.facts = LogFacts(delay_levels_ms=delay_levels_ms, end_physical_offset=log.min_physical_offset)
        self._files = files
        self._log = log
        self._state = state
        self._durable = log_end.known_durable(state.checkpoint or StoreCheckpoint(), has_epochs=bool(state.epochs))
        self._report = report
        self._check_crc = check_crc
        count = min(RECORD_COUNT_MAX, log.size_bytes // limits.RECORD_SIZE_BYTES_MIN + 1)
        self._columns = ScanColumns(count, 4 * count, delay_levels_ms)
        self._walk = LogWalk(
            log.segments,
            self._columns,
            self._durable,
            clock_step_ms_max=limits.CLOCK_STEP_MS_MAX,
            check_crc=check_crc,
        )
        self._is_over = False

    def batches(self) -> Iterator[LogBatch]:
        """Yield all whole records in the order of the log."""
        expected = self._log.min_physical_offset
        for index, segment in enumerate(self._log.segments):
            if segment.base_physical_offset > expected:
                self.facts.add_damage(expected, segment.base_physical_offset)
            if not self._is_over:
                try:
                    yield from self._segment(index, segment)
                except OSError as error:
                    self._report.add("FILE_UNREADABLE", segment.name, error.strerror or str(error))
                    self.facts.add_damage(self.facts.end_physical_offset, segment.end_physical_offset)
                    known_end = min(self._state.known_end_physical_offset, segment.end_physical_offset)
                    self.facts.end_physical_offset = max(self.facts.end_physical_offset, known_end)
                segment.close()
            expected = segment.end_physical_offset

    def _segment(self, index: int, segment: LogFile) -> Iterator[LogBatch]:
        """Walk one segment to its blank or its end."""
        position: int | None = 0
        while position is not None and position < segment.size_bytes:
            for step in self._walk.steps_in(index, position):
                if self._columns.count:
                    yield self._batch(segment, segment.buffer)
                position = step.end
            if self._walk.stop is not None:
                position = yield from self._damage(index, segment, self._walk.stop)
            else:
                self._check_blank(segment, self._columns.end_position)
                self.facts.end_physical_offset = segment.end_physical_offset
                return

    def _first_stale(self) -> int | None:
        return log_end.first_stale(
            self._columns, self.facts.last_store_time_ms, limits.CLOCK_STEP_MS_MAX, self._durable
        )

    def _least_time_ms(self, physical_offset: int) -> int:
        """Return the store time that a record from this offset on has at least."""
        is_free = self._durable.is_foreign or physical_offset < self._durable.physical_offset
        return 0 if is_free else self.facts.last_store_time_ms - limits.CLOCK_STEP_MS_MAX

    def _batch(self, segment: LogFile, view: memoryview) -> LogBatch:
        """Return the records of the columns as a batch, after a look at what no checksum covers."""
        columns, count = self._columns, self._columns.count
        key_counts = np.frombuffer(columns.key_counts, np.int32, count)
        batch = LogBatch(
            queues=columns.queues(),
            physical_offsets=np.frombuffer(columns.physical_offsets, np.int64, count),
            queue_offsets=np.frombuffer(columns.queue_offsets, np.int64, count),
            tags_codes=np.frombuffer(columns.tags_codes, np.int64, count),
            store_times_ms=np.frombuffer(columns.store_times_ms, np.int64, count),
            record_sizes=np.frombuffer(columns.record_sizes, np.int32, count),
            queue_indexes=np.frombuffer(columns.queue_indexes, np.int32, count),
            sys_flags=np.frombuffer(columns.sys_flags, np.int32, count),
            key_counts=key_counts,
            key_hashes=np.frombuffer(columns.key_hashes, np.int32, int(key_counts.sum())),
        )
        self._check_times(segment, batch)
        positions = np.frombuffer(columns.positions, np.int64, count)
        self._check_hosts(segment, batch, view, positions)
        if self._check_crc:
            self._check_property_names(segment, batch, view, positions)
        facts = self.facts
        times = batch.store_times_ms
        span = facts.spans.setdefault(segment.base_physical_offset, SegmentSpan())
        if span.first_store_time_ms is None:
            span.first_store_time_ms = int(times[0])
        facts.last_store_time_ms = span.last_store_time_ms = max(facts.last_store_time_ms, int(times.max()))
        facts.record_count += count
        facts.end_physical_offset = int(batch.physical_offsets[-1]) + int(batch.record_sizes[-1])
        return batch

    def _check_times(self, segment: LogFile, batch: LogBatch) -> None:
        times = np.concatenate(([self.facts.last_store_time_ms], batch.store_times_ms))
        back = np.flatnonzero(times[1:] < times[:-1])
        if len(back):
            physical_offset = int(batch.physical_offsets[back[0]])
            message = f"store times run back by up to {int((times[:-1] - times[1:]).max())} ms, as a clock that was set"
            self._report.add(
                "LOG_STORE_TIME",
                segment.name,
                message,
                position=physical_offset - segment.base_physical_offset,
                physical_offset=physical_offset,
                count=len(back),
            )

    def _check_hosts(self, segment: LogFile, batch: LogBatch, view: memoryview, positions: NDArray[np.int64]) -> None:
        """Check ports: of 4 bytes the upper two are zero. Anything else is a host of another size, or damage."""
        data = np.frombuffer(view, np.uint8)
        flags = batch.sys_flags
        ports = positions + record.BORN_HOST_AT + np.where(flags & record.BORN_HOST_V6_FLAG, 16, 4)
        wrong = data[ports] | data[ports + 1]
        ports = ports + 4 + record.TIME.size + np.where(flags & record.STORE_HOST_V6_FLAG, 16, 4)
        wrong = wrong | data[ports] | data[ports + 1]
        rows = np.flatnonzero(wrong)
        if len(rows):
            self._report.add_all(
                rows.tolist(),
                lambda row: self._record("LOG_HOST_PORT", segment, int(batch.physical_offsets[row]), "a host's port"),
                lambda rest: self._report.add("LOG_HOST_PORT", segment.name, "more records", count=rest),
            )

    def _check_property_names(
        self, segment: LogFile, batch: LogBatch, view: memoryview, positions: NDArray[np.int64]
    ) -> None:
        """Look for a CRC property whose name is damaged. It hides from the checksum, but still looks much like one."""
        data = np.frombuffer(view, np.uint8)
        starts = positions + batch.record_sizes - CRC_PROPERTY_SIZE_BYTES
        like = np.zeros(len(starts), np.int8)
        for at, byte in enumerate(CRC_PROPERTY_PREFIX):
            like += data[starts + at] == byte
        rows = np.flatnonzero((like >= LIKE_COUNT_MIN) & (like < len(CRC_PROPERTY_PREFIX)))
        for row in rows.tolist():
            self._record("LOG_PROPERTY_CRC", segment, int(batch.physical_offsets[row]), "a CRC property")

    def _record(self, code: str, segment: LogFile, physical_offset: int, what: str, *, is_note: bool = False) -> None:
        position = physical_offset - segment.base_physical_offset
        message = _REASON.get(code, f"{what} has an impossible value")
        self._report.add(
            code, segment.name, message, position=position, physical_offset=physical_offset, is_note=is_note
        )

    def _check_blank(self, segment: LogFile, position: int) -> None:
        if position + record.BLANK.size > segment.size_bytes:
            return
        size = record.BLANK.unpack(self._files.read(segment.path, position, record.BLANK.size))[0]
        left = segment.size_bytes - position
        if size != left:
            self._report.add(
                "LOG_BLANK_SIZE",
                segment.name,
                f"the blank says {size} bytes, but {left} are left",
                position=position,
                physical_offset=segment.base_physical_offset + position,
            )

    def _damage(self, index: int, segment: LogFile, stop: Stop) -> Generator[LogBatch, None, int | None]:
        """Judge the place where the walk stopped. Returns where to go on in this segment, None for nowhere."""
        at, physical_offset = stop.position, segment.base_physical_offset + stop.position
        code = self._code_of(segment, stop)
        following = self._following(segment, at, code)
        is_ended = following is None and not self._has_records(index + 1)
        known_end = self._state.known_end_physical_offset
        if is_ended and (physical_offset >= known_end or code == "LOG_HOLE"):
            self._end(index, segment, at, code)
            return None
        is_lost = not self._state.is_log_clean and self._is_lost(segment, at, following)
        self._record(code, segment, physical_offset, "a record", is_note=is_lost)
        if code == "LOG_BODY_CRC" and following is not None:
            yield from self._damaged_body(segment, at, following)
        else:
            end = segment.size_bytes if following is None else following
            self.facts.add_damage(physical_offset, segment.base_physical_offset + end)
        if is_ended and following is None:
            self.facts.end_physical_offset = min(known_end, segment.end_physical_offset)
            self._is_over = True
        return following

    def _code_of(self, segment: LogFile, stop: Stop) -> str:
        if stop.status == UNSOUND:
            return "LOG_STALE_RECORD" if stop.reason == log_end.STALE_REASON else "LOG_PROPERTY_CRC"
        if stop.status != layout.S_BAD_CRC:
            head = self._files.read(segment.path, stop.position, record.BLANK.size)
            return _CODE_OF_STATUS[stop.status] if any(head) else "LOG_HOLE"
        data = self._read_record(segment, stop.position)
        shape = record.check_header(data)
        stored = record.INT.unpack_from(data, record.BODY_CRC_AT)[0]
        body = data[shape.body_at : shape.body_at + shape.body_size_bytes]
        return "LOG_BODY_CRC" if zlib.crc32(body) & limits.INT32_MAX != stored else "LOG_PROPERTY_CRC"

    def _read_record(self, segment: LogFile, at: int) -> bytes:
        size = record.INT.unpack(self._files.read(segment.path, at, record.INT.size))[0]
        return self._files.read(segment.path, at, size)

    def _following(self, segment: LogFile, at: int, code: str) -> int | None:
        """Return where the walk can go on here: behind the record if its lengths are right, else at the next one."""
        if code in ("LOG_BODY_CRC", "LOG_PROPERTY_CRC"):
            end = at + len(self._read_record(segment, at))
            is_durable = segment.base_physical_offset + end <= self._state.known_end_physical_offset
            if is_durable or self._is_item_at(segment, end):
                return end
        least = self._least_time_ms(segment.base_physical_offset + at + 1)
        return self._log.next_item(segment, at + 1, store_time_ms_min=least)

    def _is_item_at(self, segment: LogFile, position: int) -> bool:
        head = self._files.read(segment.path, position, record.BLANK.size)
        is_blank = len(head) == record.BLANK.size and record.is_blank(head)
        return is_blank or self._log.is_record(segment.base_physical_offset + position)

    def _damaged_body(self, segment: LogFile, at: int, following: int) -> Iterator[LogBatch]:
        """Yield the record with the damaged body, whose other fields still count."""
        data = memoryview(self._files.read(segment.path, at, following - at))
        scan_cy.scan(data, 0, len(data), segment.base_physical_offset + at, False, self._columns)
        if self._columns.count == 1 and self._first_stale() is None:
            yield self._batch(segment, data)
            self._walk.last_store_time_ms = self.facts.last_store_time_ms

    def _has_records(self, index: int) -> bool:
        """Return whether a segment from this one on has a whole record that is not too old."""
        for segment in self._log.segments[index:]:
            least = self._least_time_ms(segment.base_physical_offset)
            try:
                position = self._log.next_item(segment, 0, store_time_ms_min=least)
                while position is not None and not self._log.is_record(segment.base_physical_offset + position):
                    position = self._log.next_item(segment, position + 1, store_time_ms_min=least)
            except OSError:
                continue
            if position is not None:
                return True
        return False

    def _is_lost(self, segment: LogFile, at: int, following: int | None) -> bool:
        """Return whether a write is missing here as after a power cut, in which case recovery cuts the log here."""
        start = at - at % tail_search.SECTOR_BYTES
        end = segment.size_bytes if following is None else following
        data = self._files.read(segment.path, start, min(end - start, RECORD_SIZE_BYTES_MAX))
        try:
            return tail_search.has_lost_sector(memoryview(data), at - start, len(data))
        except (FormatError, ValueError):
            return False

    def _end(self, index: int, segment: LogFile, at: int, code: str) -> None:
        """Note that the log ends here, and tell what lies behind the end, if anything does."""
        self._is_over = True
        end = segment.base_physical_offset + at
        self.facts.end_physical_offset = end
        for later in self._log.segments[index:]:
            start = at if later is segment else 0
            nonzero = self._files.first_nonzero(later.path, start, later.size_bytes)
            if nonzero is None:
                continue
            tail_end = self._files.content_end(later.path, nonzero, later.size_bytes)
            is_torn = later is segment and code != "LOG_HOLE"
            name = code if code == "LOG_STALE_RECORD" else "LOG_TORN_TAIL" if is_torn else "LOG_RUBBISH"
            message = f"bytes up to position {tail_end} lie behind the end of the log at {end} and are no records of it"
            self._report.add(
                name,
                later.name,
                message,
                position=nonzero,
                physical_offset=later.base_physical_offset + nonzero,
                is_note=not self._state.is_end_known(end),
            )
            return
