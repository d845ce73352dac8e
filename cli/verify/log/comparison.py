# SPDX-License-Identifier: Apache-2.0
"""Comparison: two logs byte by byte: a store and a copy of it, or two members of a replicated log.

They are compared from the first byte that both keep to the end of the shorter log. Bytes behind the blank that
closes a segment are no part of the log, and RocketMQ may leave any bytes there.
A difference is a fault. If either log had not confirmed its bytes yet it is a note, because the next start, or a
leader, decides which bytes stay. The finding also has the offset at which the tables of epochs differ.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np

from cli.verify.codes import Area
from cli.verify.files import WINDOW_BYTES, Files
from cli.verify.findings import Report
from cli.verify.log.check import LogFacts
from cli.verify.log.files import LogFiles
from cli.verify.state import StoreState, load_state
from libs.formats import store_layout
from libs.log.common_history import common_end


class Comparison:
    """The comparison of a log, which was walked, with another log, which was not."""

    def __init__(self, files: Files, log: LogFiles, facts: LogFacts, state: StoreState, report: Report) -> None:
        self._files = files
        self._log = log
        self._facts = facts
        self._state = state
        self._report = report

    def run(self, other_dir: Path, progress: Callable[[int], None]) -> int:
        """Report the differences and the parts that were not compared. Returns the number of compared bytes."""
        quiet = Report(show=lambda _: None, limit=0, areas=frozenset((Area.LOG,)))
        other, other_state = LogFiles(self._files, other_dir, quiet), load_state(other_dir, other_dir, quiet)
        mine_end, other_end = self._facts.end_physical_offset, other.content_end
        start = max(self._log.min_physical_offset, other.min_physical_offset)
        end = max(start, min(mine_end, other_end))
        self._tell_rest("begins", self._log.min_physical_offset, other.min_physical_offset, other_dir)
        self._tell_rest("ends", mine_end, other_end, other_dir)
        parted = common_end(self._state.epochs, mine_end, other_state.epochs, other_end)
        confirmed = min(one.checkpoint.confirmed_physical_offset for one in (self._state, other_state))
        at, compared_bytes = start, 0
        while at < end:
            try:
                window = self._window(other, at, end)
            except OSError as error:
                message = f"it, or that of {other_dir}, can't be compared: {error.strerror or error}"
                self._report.add("FILE_UNREADABLE", self._name(at), message, physical_offset=at)
                at = self._next(at + 1, is_told=True)
                continue
            if window is None:  # a hole in the files, which the check of that log reports
                at += min(WINDOW_BYTES, end - at)
                continue
            size_bytes, difference = window
            if difference is not None:
                self._tell(difference, other_dir, parted, is_note=difference >= confirmed > 0)
            compared_bytes += size_bytes
            progress(self._log.size_bytes + compared_bytes)
            at = self._next(at + size_bytes, is_told=difference is not None)
        return compared_bytes

    def _window(self, other: LogFiles, at: int, end: int) -> tuple[int, int | None] | None:
        """Compare the next bytes of a segment. Returns their number, and the offset of the first byte that differs.

        Returns None if either log has no file there.
        """
        segment, theirs = self._log.find(at), other.find(at)
        if segment is None or theirs is None:
            return None
        blank = self._facts.blanks.get(segment.base_physical_offset, end)
        most = min(end, blank, segment.end_physical_offset, theirs.end_physical_offset, at + WINDOW_BYTES) - at
        mine, found = (self._files.read(one.path, at - one.base_physical_offset, most) for one in (segment, theirs))
        if mine == found:
            return most, None
        count = min(len(mine), len(found))
        differs = np.frombuffer(mine, np.uint8, count) != np.frombuffer(found, np.uint8, count)
        return most, at + (int(differs.argmax()) if differs.any() else count)

    def _next(self, at: int, *, is_told: bool) -> int:
        """Return the offset to continue at: in the next segment behind a blank, or if this segment differs."""
        segment = self._log.find(at - 1)
        if segment is None:
            return at
        blank = self._facts.blanks.get(segment.base_physical_offset, segment.end_physical_offset)
        return segment.end_physical_offset if is_told or at >= blank else at

    def _name(self, physical_offset: int) -> str:
        segment = self._log.find(physical_offset)
        return segment.name if segment is not None else store_layout.COMMIT_LOG

    def _tell(self, physical_offset: int, other_dir: Path, parted: int, *, is_note: bool) -> None:
        segment = self._log.find(physical_offset)
        assert segment is not None
        self._report.add(
            "LOG_DIFFERS",
            segment.name,
            f"{other_dir} has other bytes from here on; by their epochs the two are the same up to {parted}",
            position=physical_offset - segment.base_physical_offset,
            physical_offset=physical_offset,
            is_note=is_note,
        )

    def _tell_rest(self, what: str, mine: int, theirs: int, other_dir: Path) -> None:
        if mine != theirs:
            message = f"the log {what} at {mine}, that of {other_dir} at {theirs}"
            self._report.add("LOG_NOT_COMPARED", store_layout.COMMIT_LOG, message, physical_offset=min(mine, theirs))
