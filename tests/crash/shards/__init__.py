# SPDX-License-Identifier: Apache-2.0
"""The part `shards`: queues split, move and merge under load, while shards, the gateway and the commands are killed.

sharded_store   the processes of all shards, and the gateway before them.
load            producers of keys and an ordered group, by RocketMQ's protocol at the gateway.
trouble         changes of the topic, and kills.
promises        the promises, compared with the history. Pure.
case            a case of a seed.
"""

from collections.abc import Callable

from tests.crash.part import PartReport, sum_up
from tests.crash.shards.case import run_case
from tests.crash.workers import run_seeds


class ShardsPart:
    """The part `shards` of the crash harness."""

    name = "shards"

    def __init__(self) -> None:
        self.counts_by_size = {"ci": 1, "long": 20}

    def run(self, *, first_seed: int, count: int, jobs: int, advance: Callable[[int], None]) -> PartReport:
        """See `Part`. A case has ten processes and more, so cases run in turn."""
        del jobs
        reports = run_seeds(run_case, range(first_seed, first_seed + count), jobs=1)
        return sum_up(self.name, count, reports, advance)


PART = ShardsPart()
