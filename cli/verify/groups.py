# SPDX-License-Identifier: Apache-2.0
"""Groups: similar findings, of which a reader needs only the first few, and the likely cause of many findings.

Findings are similar if they have the same code, severity and kind of file: the log, the queues, the index, or a file by
its name. Memory: a number for each group.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping

from cli.verify.findings import Counts, Finding

FIRST_COUNT = 3
"""Findings of a group that are shown singly."""

COPIED_WHILE_RUNNING = (
    "likely cause: a copy made while the store ran, so its files are of different moments: "
    "take it from a snapshot, or of a stopped store (docs/operations.md, Backup and restore)"
)


class Groups:
    """`add` each finding, then print `rest`."""

    def __init__(self, show: Callable[[Finding], None]) -> None:
        self._show = show
        self._counts: Counter[tuple[str, str, str]] = Counter()

    def add(self, finding: Finding) -> None:
        """Show a finding if it is among the first of its group."""
        group = (finding.severity, finding.code, kind_of(finding.file))
        self._counts[group] += 1
        if self._counts[group] <= FIRST_COUNT:
            self._show(finding)

    def rest(self) -> Iterator[str]:
        """Yield a line for each group that has more findings than were shown."""
        for (severity, code, kind), count in self._counts.items():
            if count > FIRST_COUNT:
                yield f"{severity.upper()} {code} in {kind}: and {count - FIRST_COUNT} more; --json has each"


def kind_of(file: str) -> str:
    """Return the directory of the store that has a file, or the name of a file that is in no directory."""
    return file.rpartition("/")[0] if file.startswith("/") else file.partition("/")[0]


def likely_cause(counts: Mapping[str, Counts]) -> str | None:
    """Return the cause that a pattern of findings suggests, if there is any.

    A copy of a running store has `abort`, and indexes that do not fit its log: they were copied at other moments.
    """
    parts = {code.partition("_")[0] for code, found in counts.items() if found.faults}
    is_open = "STORE_NOT_CLEAN" in counts
    return COPIED_WHILE_RUNNING if is_open and parts & {"QUEUE", "INDEX"} else None
