# SPDX-License-Identifier: Apache-2.0
"""Findings: the results of a check of a store, counted in full and shown up to a limit.

Every finding has a code of `codes.py`. A fault makes the store unsound; a note is worth knowing. The same damage can be
a fault in a store and a note in another: damage that the next start of a service repairs by itself is a note.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import Struct, field

from cli.verify.codes import CODES, Area, Severity

SINGLE_COUNT_MAX = 1000
"""Most findings of a kind in a step of the walk that are reported singly; a file of noise would give millions."""


class Finding(Struct, frozen=True):
    """A finding.

    `position` is in the file, in bytes, and `physical_offset` in the log. Both are None if there is none. `count` is
    the number of records, units or entries that the sentence is about.
    """

    code: str
    severity: Severity
    file: str
    position: int | None
    physical_offset: int | None
    message: str
    count: int


class Counts(Struct):
    """Number of findings of a code."""

    faults: int = 0
    notes: int = 0


class Report(Struct):
    """Counts all findings and passes at most `limit` faults and as many notes to `show`.

    Findings of other areas than the selected ones are dropped.
    """

    show: Callable[[Finding], None]
    limit: int
    areas: frozenset[Area] = frozenset(Area)
    counts: dict[str, Counts] = field(default_factory=dict)
    _shown: Counter[Severity] = field(default_factory=Counter)
    _tallies: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    @property
    def fault_count(self) -> int:
        """The number of all faults."""
        return sum(counts.faults for counts in self.counts.values())

    @property
    def note_count(self) -> int:
        """The number of all notes."""
        return sum(counts.notes for counts in self.counts.values())

    def add(
        self,
        code: str,
        file: str,
        message: str,
        *,
        position: int | None = None,
        physical_offset: int | None = None,
        count: int = 1,
        is_note: bool = False,
    ) -> None:
        """Add a finding. `is_note` makes a fault a note."""
        known = CODES[code]
        if count == 0 or (known.area is not None and known.area not in self.areas):
            return
        severity: Severity = "note" if is_note else known.severity
        counts = self.counts.setdefault(code, Counts())
        if severity == "fault":
            counts.faults += count
        else:
            counts.notes += count
        self._shown[severity] += 1
        if self._shown[severity] <= self.limit:
            self.show(Finding(code, severity, file, position, physical_offset, message, count))

    def add_each(
        self,
        indexes: Sequence[int],
        tell: Callable[[int], None],
        code: str,
        file: str,
        message: str = "more of the same",
        *,
        is_note: bool = False,
    ) -> None:
        """Let `tell` add a finding about each index. If there are too many, a last finding counts the rest."""
        for index in indexes[:SINGLE_COUNT_MAX]:
            tell(index)
        self.add(code, file, message, count=max(len(indexes) - SINGLE_COUNT_MAX, 0), is_note=is_note)

    def tally(self, code: str, file: str, message: str, count: int = 1) -> None:
        """Add to a count. `add_tallies` makes a single finding for each code, file and message."""
        self._tallies[code, file, message] += count

    def add_tallies(self) -> None:
        """Add a finding for each tally, after the whole store was checked."""
        for (code, file, message), count in self._tallies.items():
            self.add(code, file, message, count=count)
