# SPDX-License-Identifier: Apache-2.0
"""The part `messaging`: CommitLog, Indexer, Delivery and gateway killed under the load of producers and groups."""

from collections.abc import Callable

from tests.crash.messaging.case import run_case
from tests.crash.part import PartReport, sum_up
from tests.crash.workers import run_seeds


class MessagingPart:
    """The part `messaging` of the crash harness."""

    name = "messaging"

    def __init__(self) -> None:
        self.counts_by_size = {"ci": 1, "long": 20}

    def run(self, *, first_seed: int, count: int, jobs: int, advance: Callable[[int], None]) -> PartReport:
        """See `Part`."""
        reports = run_seeds(run_case, range(first_seed, first_seed + count), jobs=jobs)
        return sum_up(self.name, count, reports, advance)


PART = MessagingPart()
