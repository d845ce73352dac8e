# SPDX-License-Identifier: Apache-2.0
"""LogCheck: reads every record of the log once, reports faults, and yields the sound records as columns.

It uses the walk of all readers of a log (libs/log/walk.py), and ends at the end of the log: behind the last whole
record of the last segment that has a whole record. After damage it continues at the next whole record. The bytes
between are kept as a damaged range, so that units and entries for records in it are not reported as faults. A record
whose body alone is damaged still counts, because its other fields are right.
Bytes behind the end differ from damage in this: no whole record follows.
Rules: docs/formats/commit_log.md section 9. Not handled: queues and index, which take the columns.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence

import numpy as np
from msgspec import Struct, field
from numpy.typing import NDArray

from cli.verify.codes import Area
from cli.verify.files import Files
from cli.verify.findings import Report
from cli.verify.log.files import RECORD_SIZE_BYTES_MAX, LogFile, LogFiles
from cli.verify.state import StoreState
from libs.formats import limits
from libs.formats.crc import CRC_PROPERTY_PREFIX
from libs.formats.errors import BadChecksum
from libs.formats.limits import CRC_PROPERTY_SIZE_BYTES
from libs.formats.records import dispatch_columns, record
from libs.formats.records.dispatch_columns import DispatchBatch
from libs.kernel import layout
from libs.kernel.scan import scan_cy
from libs.kernel.scan.scan_columns import ScanColumns
from libs.log import end as log_end
from libs.log import tail_search
from libs.log.walk import UNSOUND, LogWalk, Stop

RECORD_COUNT_MAX = 1 << 16
LIKE_COUNT_MIN = 6
"""Least number of equal bytes of its name by which a damaged CRC property is recognized."""

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
    "LOG_PROPERTY_CRC_MISSING": "the record lacks the CRC property that others around it have",
    "LOG_STALE_RECORD": "the record is older than the one before it, so an older log left it",
    "LOG_HOLE": "zeros where a record should start",
    "LOG_HOST_PORT": "a host's port has an impossible value",
}


class LogFacts(Struct):
    """Facts about the log as a whole, from the walk."""

    delay_levels_ms: Sequence[int]
    """Delay levels for the tags codes of delayed messages; they are not in the store."""
    record_count: int = 0
    end_physical_offset: int = 0
    last_store_time_ms: int = 0
    spans: dict[int, tuple[int, int]] = field(default_factory=dict)
    """First and newest store time of each segment that has records, by its base."""
    blanks: dict[int, int] = field(default_factory=dict)
    """Offset behind the head of the blank that closes a segment, by the segment's base. The log continues in the
    next."""
    _damage: list[int] = field(default_factory=list)
    """Start, end, start, end, … of the damaged ranges, ascending."""

    def add_damage(self, start: int, end: int) -> None:
        """Record that the records of [start, end) can't be read. Ranges come in the order of their starts."""
        if self._damage and start <= self._damage[-1]:
            self._damage[-1] = max(end, self._damage[-1])
        elif end > start:
            self._damage += [start, end]

    def are_damaged(self, physical_offsets: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return for each offset whether it lies in a damaged range."""
        bounds = np.array(self._damage, np.int64)
        return (np.searchsorted(bounds, physical_offsets, side="right") % 2).astype(np.bool_)

    def has_damage_between(self, start: int, end: int) -> bool:
        """Return whether a damaged range touches [start, end)."""
        index = bisect_right(self._damage, start)
        return index % 2 == 1 or (index < len(self._damage) and self._damage[index] < end)


class LogCheck:
    """A check of a log. Iterate over `batches` once. `facts` grow meanwhile and are complete afterwards."""

    def __init__(
        self, files: Files, log: LogFiles, state: StoreState, report: Report, *, delay_levels_ms: Sequence[int]
    ) -> None:
        self.facts = LogFacts(delay_levels_ms=delay_levels_ms, end_physical_offset=log.min_physical_offset)
        self._files = files
        self._log = log
        self._state = state
        self._durable = log_end.known_durable(state.checkpoint, has_epochs=bool(state.epochs))
        self._report = report
        self._check_crc = Area.LOG in report.areas
        count = min(RECORD_COUNT_MAX, log.size_bytes // limits.RECORD_SIZE_BYTES_MIN + 1)
        self._columns = ScanColumns(count, 4 * count, delay_levels_ms)
        self._walk = LogWalk(
            log.segments,
            self._columns,
            self._durable,
            clock_step_ms_max=limits.CLOCK_STEP_MS_MAX,
            check_crc=self._check_crc,
        )
        self._is_over = False

    def batches(self) -> Iterator[DispatchBatch]:
        """Yield all whole records in the order of the log. A batch is valid until the next batch."""
        expected = self._log.min_physical_offset
        for index, segment in enumerate(self._log.segments):
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

    def _segment(self, index: int, segment: LogFile) -> Iterator[DispatchBatch]:
        """Walk a segment to its blank or its end."""
        position: int | None = 0
        while position is not None and position < segment.size_bytes:
            for step in self._walk.steps_in(index, position):
                if self._columns.count:
                    yield self._batch(segment)
                position = step.end
            if self._walk.stop is not None:
                position = yield from self._damage(index, segment, self._walk.stop)
            else:
                self._check_blank(segment, self._columns.end_position)
                self.facts.end_physical_offset = segment.end_physical_offset
                return

    def _least_time_ms(self, physical_offset: int) -> int:
        """Return the least store time of a record from this offset on."""
        is_free = self._durable.is_foreign or physical_offset < self._durable.physical_offset
        return 0 if is_free else self.facts.last_store_time_ms - limits.CLOCK_STEP_MS_MAX

    def _batch(self, segment: LogFile) -> DispatchBatch:
        """Return the records of the columns as a batch, after checks of the fields that no checksum covers."""
        columns, facts = self._columns, self.facts
        end = columns.physical_offsets[columns.count - 1] + columns.record_sizes[columns.count - 1]
        batch = dispatch_columns.batch_of(columns, columns.physical_offsets[0], end)
        self._check_times(segment, batch)
        data = np.frombuffer(segment.buffer, np.uint8)
        positions = batch.physical_offsets - segment.base_physical_offset
        self._check_hosts(segment, data, positions)
        if self._check_crc:
            self._check_property_names(segment, data, positions + batch.record_sizes)
        if self._check_crc and not self._durable.is_foreign:
            self._check_missing_crc(segment, data, positions + batch.record_sizes)
        first_ms, _ = facts.spans.get(segment.base_physical_offset, (int(batch.store_times_ms[0]), 0))
        facts.last_store_time_ms = max(facts.last_store_time_ms, int(batch.store_times_ms.max()))
        facts.spans[segment.base_physical_offset] = first_ms, facts.last_store_time_ms
        facts.record_count += columns.count
        facts.end_physical_offset = end
        return batch

    def _check_times(self, segment: LogFile, batch: DispatchBatch) -> None:
        times = np.concatenate(([self.facts.last_store_time_ms], batch.store_times_ms))
        back = np.flatnonzero(times[1:] < times[:-1])
        if len(back):
            position = int(batch.physical_offsets[back[0]]) - segment.base_physical_offset
            message = f"store times run back by up to {int((times[:-1] - times[1:]).max())} ms, as a clock that was set"
            self._add("LOG_STORE_TIME", segment, position, message, count=len(back))

    def _check_hosts(self, segment: LogFile, data: NDArray[np.uint8], positions: NDArray[np.int64]) -> None:
        """Check ports: of 4 bytes the upper two are zero. Other values mean a host of another size, or damage."""
        flags = np.frombuffer(self._columns.sys_flags, np.int32, len(positions))
        ports = positions + record.BORN_HOST_AT + np.where(flags & record.BORN_HOST_V6_FLAG, 16, 4)
        wrong = data[ports] | data[ports + 1]
        ports = ports + 4 + record.TIME.size + np.where(flags & record.STORE_HOST_V6_FLAG, 16, 4)
        wrong = wrong | data[ports] | data[ports + 1]
        code, places = "LOG_HOST_PORT", positions[np.flatnonzero(wrong)].tolist()
        self._report.add_each(places, lambda at: self._add(code, segment, at), code, segment.name, "more records")

    def _check_property_names(self, segment: LogFile, data: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        """Search CRC properties with a damaged name. No checksum finds them, but most bytes of the name are right."""
        starts = ends - CRC_PROPERTY_SIZE_BYTES
        like = np.zeros(len(starts), np.int8)
        for at, byte in enumerate(CRC_PROPERTY_PREFIX):
            like += data[starts + at] == byte
        is_damaged = (like >= LIKE_COUNT_MIN) & (like < len(CRC_PROPERTY_PREFIX))
        for row in np.flatnonzero(is_damaged).tolist():
            self._add("LOG_PROPERTY_CRC", segment, self._columns.positions[row])

    def _check_missing_crc(self, segment: LogFile, data: NDArray[np.uint8], ends: NDArray[np.int64]) -> None:
        """Search records without the CRC property among records that have it: no checksum covers their properties.

        A record with properties whose last byte is zero has lost it, because properties do not end with zero. Another
        record between two with the CRC property was written without it only if the setting was turned off for it alone.
        """
        starts = ends - CRC_PROPERTY_SIZE_BYTES
        has = np.ones(len(ends), np.bool_)
        for at, byte in enumerate(CRC_PROPERTY_PREFIX):
            has &= data[starts + at] == byte
        if not has.any():
            return
        is_cut = ~has & (data[ends - 1] == 0)
        for row in np.flatnonzero(is_cut).tolist():
            shape = record.check_header(segment.buffer, self._columns.positions[row])
            is_cut[row] = shape.properties_size_bytes > 0  # without properties the last byte belongs to their size
        is_between = np.zeros(len(ends), np.bool_)
        is_between[1:-1] = ~has[1:-1] & has[:-2] & has[2:] & ~is_cut[1:-1]
        for row in np.flatnonzero(is_cut | is_between).tolist():
            is_note = not is_cut[row]
            self._add("LOG_PROPERTY_CRC_MISSING", segment, self._columns.positions[row], is_note=is_note)

    def _add(
        self, code: str, segment: LogFile, position: int, message: str = "", *, count: int = 1, is_note: bool = False
    ) -> None:
        """Report a finding at a place in a segment. Without a message the text of the code is used."""
        message, place = message or _REASON[code], segment.base_physical_offset + position
        self._report.add(
            code, segment.name, message, position=position, physical_offset=place, count=count, is_note=is_note
        )

    def _check_blank(self, segment: LogFile, position: int) -> None:
        left = segment.size_bytes - position
        if left < record.BLANK.size:
            return
        base = segment.base_physical_offset
        self.facts.blanks[base] = base + position + record.BLANK.size
        size = record.INT.unpack_from(segment.buffer, position)[0]
        if size != left:
            self._add("LOG_BLANK_SIZE", segment, position, f"the blank says {size} bytes, but {left} are left")

    def _damage(self, index: int, segment: LogFile, stop: Stop) -> Generator[DispatchBatch, None, int | None]:
        """Judge the place where the walk stopped. Returns the position to continue at in this segment, or None."""
        at, physical_offset = stop.position, segment.base_physical_offset + stop.position
        code = _code_of(segment, stop)
        following = self._following(segment, at, code)
        is_ended = following is None and not self._has_records(index + 1)
        known_end = self._state.known_end_physical_offset
        if is_ended and (physical_offset >= known_end or code == "LOG_HOLE"):
            self._end(index, segment, at, code)
            return None
        is_lost = not self._state.is_log_clean and self._is_lost(segment, at, following)
        self._add(code, segment, at, is_note=is_lost)
        if code == "LOG_BODY_CRC" and following is not None:
            yield from self._damaged_body(segment, at, following)
        else:
            end = segment.size_bytes if following is None else following
            self.facts.add_damage(physical_offset, segment.base_physical_offset + end)
        if is_ended:
            self.facts.end_physical_offset = min(known_end, segment.end_physical_offset)
            self._is_over = True
        return following

    def _following(self, segment: LogFile, at: int, code: str) -> int | None:
        """Return the position to continue at: behind the record if its lengths are right, else at the next record."""
        base = segment.base_physical_offset
        if code in ("LOG_BODY_CRC", "LOG_PROPERTY_CRC"):
            end = record.check_header(segment.buffer, at).end
            is_durable = base + end <= self._state.known_end_physical_offset
            is_closed = record.is_blank(self._files.read(segment.path, end, record.BLANK.size))
            if is_durable or is_closed or self._log.is_record(base + end):
                return end
        least_ms = self._least_time_ms(base + at + 1)
        return segment.next_record(at + 1, store_time_ms_min=least_ms, or_blank=True)

    def _damaged_body(self, segment: LogFile, at: int, following: int) -> Iterator[DispatchBatch]:
        """Yield the record with the damaged body, whose other fields still count."""
        columns, newest_ms = self._columns, self.facts.last_store_time_ms
        scan_cy.scan(segment.buffer, at, following, segment.base_physical_offset, False, columns)
        stale = log_end.first_stale(columns, newest_ms, limits.CLOCK_STEP_MS_MAX, self._durable)
        if columns.count == 1 and stale is None:
            yield self._batch(segment)
            self._walk.last_store_time_ms = self.facts.last_store_time_ms

    def _has_records(self, index: int) -> bool:
        """Return whether this segment or a later segment has a whole record that is not too old."""
        for segment in self._log.segments[index:]:
            least_ms = self._least_time_ms(segment.base_physical_offset)
            try:
                if segment.next_record(0, store_time_ms_min=least_ms) is not None:
                    return True
            except OSError:
                continue
        return False

    def _is_lost(self, segment: LogFile, at: int, following: int | None) -> bool:
        """Return whether a write is missing here as after a power cut: then recovery truncates the log here."""
        start = at - at % tail_search.SECTOR_BYTES
        end = segment.size_bytes if following is None else following
        data = self._files.read(segment.path, start, min(end - start, RECORD_SIZE_BYTES_MAX))
        return tail_search.has_lost_sector(memoryview(data), at - start, len(data))

    def _end(self, index: int, segment: LogFile, at: int, code: str) -> None:
        """Record that the log ends here, and report bytes behind the end, if there are any."""
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
            self._add(name, later, nonzero, message, is_note=not self._state.is_end_known(end))
            return


def _code_of(segment: LogFile, stop: Stop) -> str:
    """Return the code of the damage at which the walk has stopped. It has read the bytes there."""
    if stop.status == UNSOUND:
        return "LOG_STALE_RECORD" if stop.reason == log_end.STALE_REASON else "LOG_PROPERTY_CRC"
    if stop.status != layout.S_BAD_CRC:
        segment.check_readable(stop.position, min(stop.position + record.BLANK.size, segment.size_bytes))
        head = segment.buffer[stop.position : stop.position + record.BLANK.size]
        return _CODE_OF_STATUS[stop.status] if any(head) else "LOG_HOLE"
    try:
        record.check_body_crc(segment.buffer, record.check_header(segment.buffer, stop.position))
    except BadChecksum:
        return "LOG_BODY_CRC"
    return "LOG_PROPERTY_CRC"
