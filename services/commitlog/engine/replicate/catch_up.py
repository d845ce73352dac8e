# SPDX-License-Identifier: Apache-2.0
"""CatchUpPace: limits the rate at which all followers of a log together read old data.

A token bucket: a piece is read at once and delays the next piece. Any interval carries at most rate × time plus a
piece. First come, first served. Pure: sizes and times go in, waits come out.
"""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class CatchUpPace:
    """A rate limit; `bytes_per_s` of 0 is unlimited. Times are in seconds of a monotonic clock."""

    bytes_per_s: int
    _free_at_s: float = 0.0
    """Earliest time of the next read."""

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until the next read."""
        return max(self._free_at_s - now_s, 0.0)

    def take(self, size_bytes: int, now_s: float) -> None:
        """Record a read."""
        if self.bytes_per_s:
            self._free_at_s = max(self._free_at_s, now_s) + size_bytes / self.bytes_per_s
