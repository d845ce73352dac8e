# SPDX-License-Identifier: Apache-2.0
"""The common interface of the parts of the crash harness: the call that runs a part, and its report.

Invariants: a case depends on its seed alone, as far as chance is ours to choose (the scheduler of a real process is
not); each violation names the command that repeats just its case. Callers: the driver (`tests.crash.__main__`).
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Literal, Protocol

Size = Literal["ci", "long"]


@dataclass(frozen=True, slots=True)
class Violation:
    """A promise that did not hold. `command` repeats the case alone."""

    seed: int
    what: str
    command: str


@dataclass(frozen=True, slots=True)
class PartReport:
    """The report of a part. `counts` are totals by name, in the order to show; `skipped` is a reason, shown loudly."""

    name: str
    counts: dict[str, int]
    violations: list[Violation]
    skipped: str = ""


@dataclass
class CaseReport:
    """The report of the case of a seed. `wrong` has a text for each broken promise."""

    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)


class Part(Protocol):
    """A part of the harness: a package below `tests.crash` that exposes an object of this class as `PART`."""

    name: str
    counts_by_size: dict[str, int]
    """Cases (seeds) of a run of each size."""

    def run(self, *, first_seed: int, count: int, jobs: int, advance: Callable[[int], None]) -> PartReport:
        """Run the cases of seeds [first_seed, first_seed + count) with up to `jobs` at once.

        Calls `advance` with the number of cases that are done since the last call. A violation ends its case, not the
        run. Leaves no process and no file behind, except the files that the inspection of a violation needs.
        """
        ...


def repeat_command(part: str, seed: int) -> str:
    """Return the command that repeats the case of a seed."""
    return f"python -m tests.crash --only {part} --seed {seed} --count 1"


def sum_up(part: str, seed_count: int, reports: Iterable[CaseReport], advance: Callable[[int], None]) -> PartReport:
    """Return the report of a part from the reports of its cases, and call `advance` for each case as it comes."""
    counts: Counter[str] = Counter()
    violations: list[Violation] = []
    for report in reports:
        counts += report.counts
        if report.wrong:
            violations.append(Violation(report.seed, "\n".join(report.wrong), repeat_command(part, report.seed)))
        advance(1)
    return PartReport(part, {"seeds": seed_count, **dict(sorted(counts.items()))}, violations)
