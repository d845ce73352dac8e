# SPDX-License-Identifier: Apache-2.0
"""Where a restored log ends: the last boundary of a record that an offset or a time allows. Pure."""

from __future__ import annotations

import bisect
from array import array

import numpy as np
from msgspec import Struct, field

from cli.backup.errors import BackupDamaged
from libs.formats.state.system_topics import STATE_TOPIC
from libs.kernel import layout
from libs.kernel.scan import scan_cy
from libs.kernel.scan.scan_columns import ScanColumns
from libs.log.end import STATUS_REASONS

RECORD_COUNT_MAX = 16_384


class Cut(Struct):
    """The bounds of a restore: an offset that no record may pass, and the newest store time. None is no bound."""

    end_physical_offset: int | None = None
    until_ms: int | None = None
    record_count: int = 0
    """Records that were kept."""
    last_store_time_ms: int = 0
    """Store time of the last record that was kept."""
    state_offsets: array[int] = field(default_factory=lambda: array("q"))
    """Physical offsets of the kept records that have positions of groups, ascending."""
    _columns: ScanColumns = field(default_factory=lambda: ScanColumns(RECORD_COUNT_MAX, 1))

    def kept_bytes(self, start_physical_offset: int, data: bytes, name: str) -> int:
        """Return the number of bytes of a piece that belong to the restored log. At the cut it is less than all.

        All records of the piece up to the cut are checked with their checksums. Raises BackupDamaged.
        """
        position, end, columns = 0, len(data), self._columns
        while position < end:
            status = scan_cy.scan(data, position, end, start_physical_offset, True, columns)
            if columns.count:
                kept = self._kept_count(columns)
                self._note(columns, kept)
                if kept < columns.count:
                    return int(columns.positions[kept])
                position = columns.end_position
            if status == layout.S_BLANK:
                limit = self.end_physical_offset
                is_whole = limit is None or start_physical_offset + end <= limit
                return end if is_whole else position
            if status not in (layout.S_END, layout.S_FULL):
                reason = STATUS_REASONS.get(status, "no record is there")
                raise BackupDamaged(f"{name}: at physical offset {start_physical_offset + position} {reason}")
        return end

    def _kept_count(self, columns: ScanColumns) -> int:
        count = columns.count
        if self.end_physical_offset is not None:
            starts = np.frombuffer(columns.physical_offsets, dtype=np.int64, count=count)
            ends = starts + np.frombuffer(columns.record_sizes, dtype=np.int32, count=count)
            count = bisect.bisect_right(ends, self.end_physical_offset)
        if self.until_ms is not None:
            times = np.frombuffer(columns.store_times_ms, dtype=np.int64, count=columns.count)
            later = np.flatnonzero(times > self.until_ms)
            count = min(count, int(later[0])) if later.size else count
        return count

    def _note(self, columns: ScanColumns, kept_count: int) -> None:
        self.record_count += kept_count
        if kept_count:
            times = np.frombuffer(columns.store_times_ms, dtype=np.int64, count=kept_count)
            self.last_store_time_ms = max(self.last_store_time_ms, int(times.max()))
            of_state = [index for index, (topic, _) in enumerate(columns.queues()) if topic == STATE_TOPIC.encode()]
            queues = np.frombuffer(columns.queue_indexes, dtype=np.int32, count=kept_count)
            offsets = np.frombuffer(columns.physical_offsets, dtype=np.int64, count=kept_count)
            self.state_offsets.extend(offsets[np.isin(queues, of_state)].tolist())
