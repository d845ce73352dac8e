# SPDX-License-Identifier: Apache-2.0
"""CatchUpPace: how fast what is not new may be read, for all together that follow a log.

Pure: sizes and times go in, waits come out. What is read at once is waited for afterwards, so that over any time not
more than the pace comes, and one piece. Whoever comes first is served first.
"""

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class CatchUpPace:
    """`bytes_per_s` of 0 is no limit. Times in seconds, of one clock."""

    bytes_per_s: int
    _free_at_s: float = 0.0
    """When the next piece may be read."""

    def wait_s(self, now_s: float) -> float:
        """Return how long the next piece has to wait."""
        return max(self._free_at_s - now_s, 0.0)

    def take(self, size_bytes: int, now_s: float) -> None:
        """Take note of a piece that is read."""
        if self.bytes_per_s:
            self._free_at_s = max(self._free_at_s, now_s) + size_bytes / self.bytes_per_s
