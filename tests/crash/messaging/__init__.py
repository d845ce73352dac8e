# SPDX-License-Identifier: Apache-2.0
"""The part `messaging`: CommitLog, Indexer, Delivery and gateway killed under the load of producers and groups."""

from collections import Counter
from collections.abc import Callable

from tests.crash.messaging.case import CaseReport, run_case
from tests.crash.part import PartReport, Violation, repeat_command
from tests.crash.workers import run_seeds


class MessagingPart:
    """See the module."""

    name = "messaging"

    def __init__(self) -> None:
        self.counts_by_size = {"ci": 1, "long": 20}

    def run(self, *, first_seed: int, count: int, jobs: int, advance: Callable[[int], None]) -> PartReport:
        """See `Part`."""
        counts: Counter[str] = Counter()
        violations: list[Violation] = []
        for report in run_seeds(run_case, range(first_seed, first_seed + count), jobs=jobs):
            assert isinstance(report, CaseReport)
            counts += report.counts
            if report.wrong:
                command = repeat_command(self.name, report.seed)
                violations.append(Violation(report.seed, "\n".join(report.wrong), command))
            advance(1)
        return PartReport(self.name, {"seeds": count, **dict(sorted(counts.items()))}, violations)


PART = MessagingPart()
