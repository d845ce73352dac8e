# SPDX-License-Identifier: Apache-2.0
"""A line on standard error that shows the progress of a long command, its rate, and the time that is left.

It appears on terminals only, and after a second, so that a quick command neither flickers nor imports rich.
"""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from libs.figures import size_rate_text, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from rich.progress import Progress

DELAY_S = 1.0
"""A command that takes less shows nothing."""


class Meter:
    """Shows the progress that it is given. `noun` names the counted things. Without a noun they are bytes."""

    def __init__(self, description: str, total: int | None, noun: str, *, is_shown: bool) -> None:
        self._description, self._total, self._noun = description, total, noun
        self._is_shown = is_shown
        self._start_s = time.monotonic()
        self._bar: Progress | None = None

    def show(self, done: int, *, count: int | None = None, total: int | None = None) -> None:
        """Show that `done` of the total is done. The rate is that of `count`, if it is given."""
        self._total = total if total is not None else self._total
        elapsed_s = time.monotonic() - self._start_s
        if not self._is_shown or elapsed_s < DELAY_S:
            return
        if self._bar is None:
            self._bar = _new_bar(self._description)
        self._bar.update(
            self._bar.task_ids[0], completed=done, total=self._total, told=self._told(count, done, elapsed_s)
        )

    def close(self) -> None:
        """Remove the line."""
        if self._bar is not None:
            self._bar.stop()

    def _told(self, count: int | None, done: int, elapsed_s: float) -> str:
        number = done if count is None else count
        if not self._noun:
            return f"{size_text(number)}, {size_rate_text(number / elapsed_s)}"
        return f"{number:,} {self._noun}, {number / elapsed_s:,.0f}/s"


def _new_bar(description: str) -> Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

    told = TextColumn("{task.fields[told]}", markup=False)
    columns = (TextColumn("{task.description}"), BarColumn(), TaskProgressColumn(), told, TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True, highlight=False), transient=True)
    bar.add_task(description, total=None, told="")
    bar.start()
    return bar


@contextmanager
def progress(description: str, total: int | None = None, noun: str = "") -> Iterator[Meter]:
    """Show a line while the block runs. The block reports its progress to the meter."""
    is_shown = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
    meter = Meter(description, total, noun, is_shown=is_shown)
    try:
        yield meter
    finally:
        meter.close()
