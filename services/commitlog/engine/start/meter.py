# SPDX-License-Identifier: Apache-2.0
"""RecoveryMeter: the progress of a start's scan, for the console and for callers of the status.

Invariants: `scanned_bytes` never decreases; `target_bytes` is an upper estimate, because the end of the records is
unknown until the scan reaches it.
Callers: the scan's thread changes it; any thread reads its numbers.
"""

import logging

from libs.log.tail_search import LogFile
from libs.machine.clock import Clock

LOG_INTERVAL_S = 1.0

_log = logging.getLogger(__name__)


class RecoveryMeter:
    """The counts of a start. If it takes longer than a second, it logs a line at most each second."""

    def __init__(self, clock: Clock) -> None:
        self.segment_number = 0
        """Number of the segment that is being scanned, from 1; 0 before the first."""
        self.segment_count = 0
        """Number of segments to scan, an estimate: the segments with data, as far as known before the scan."""
        self.scanned_bytes = 0
        self.target_bytes = 0
        self._clock = clock
        self._file: LogFile | None = None
        self._started_s = self._logged_s = clock.monotonic_s()

    def begin(self, *, segment_count: int, target_bytes: int) -> None:
        """Begin a scan of this size."""
        self.segment_count, self.target_bytes = segment_count, target_bytes
        self._started_s = self._logged_s = self._clock.monotonic_s()

    def advance(self, file: LogFile, size_bytes: int) -> None:
        """Count bytes that were read from a file, either the same file as before or the next file."""
        if file is not self._file:
            self._file = file
            self.segment_number += 1
            self.segment_count = max(self.segment_count, self.segment_number)
        self.scanned_bytes += size_bytes
        now_s = self._clock.monotonic_s()
        if now_s - self._logged_s >= LOG_INTERVAL_S:
            self._logged_s = now_s
            self._tell(now_s - self._started_s)

    def _tell(self, spent_s: float) -> None:
        left_bytes = max(self.target_bytes - self.scanned_bytes, 0)
        _log.info(
            "recovering: segment %d of %d, %.0f %%, %d of about %d MiB, about %.0f s left",
            self.segment_number,
            self.segment_count,
            100 * self.scanned_bytes / (self.scanned_bytes + left_bytes),
            self.scanned_bytes >> 20,
            (self.scanned_bytes + left_bytes) >> 20,
            spent_s * left_bytes / self.scanned_bytes,
        )
