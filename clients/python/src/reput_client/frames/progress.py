# SPDX-License-Identifier: Apache-2.0
"""Progress of a read: its numbers, and a line for a terminal."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TextIO

SHOW_INTERVAL_S = 0.2


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a read. It is done when `is_done`; the numbers of rows differ where a filter drops entries."""

    row_count: int
    """Rows that the consumer has got."""
    partition_count: int
    """Partitions of the plan that are read to their end."""
    planned_partition_count: int
    planned_row_count: int | None
    """Entries of the plan before the filter, None for a read by keys."""
    seconds: float
    """Time since the first batch was asked for."""

    @property
    def is_done(self) -> bool:
        """Whether the read is at its end."""
        return self.partition_count == self.planned_partition_count

    def __str__(self) -> str:
        of = "" if self.planned_row_count is None else f" of {self.planned_row_count:,}"
        rate = f", {self.row_count / self.seconds:,.0f} rows/s" if self.seconds > 0 else ""
        return f"{self.row_count:,}{of} rows, partition {self.partition_count} of {self.planned_partition_count}{rate}"


class Line:
    """Shows progress as a line that is written anew, some times a second."""

    def __init__(self, name: str, target: TextIO | None = None, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._name, self._target, self._clock_s = name, target or sys.stderr, clock_s
        self._shown_s: float | None = None

    def __call__(self, progress: Progress) -> None:
        """Show this progress, unless a line was shown a moment ago. The end is always shown."""
        now_s = self._clock_s()
        if not progress.is_done and self._shown_s is not None and now_s - self._shown_s < SHOW_INTERVAL_S:
            return
        self._shown_s = now_s
        self._target.write(f"\r{self._name}: {progress}" + ("\n" if progress.is_done else ""))
        self._target.flush()
