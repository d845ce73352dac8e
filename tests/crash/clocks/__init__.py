# SPDX-License-Identifier: Apache-2.0
"""The part `clocks`: the clocks of CommitLog, Indexer, Delivery and gateway are set under the load of `messaging`."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.crash.clocks.stepping import run_case
from tests.crash.fault.shim import compile_shim
from tests.crash.part import PartReport, sum_up
from tests.crash.workers import run_seeds


class ClocksPart:
    """The part `clocks` of the crash harness."""

    name = "clocks"

    def __init__(self) -> None:
        self.counts_by_size = {"ci": 2, "long": 40}

    def run(self, *, first_seed: int, count: int, jobs: int, advance: Callable[[int], None]) -> PartReport:
        """See `Part`. Needs gcc."""
        with tempfile.TemporaryDirectory() as directory:
            try:
                environment = {"LD_PRELOAD": str(compile_shim(Path(directory)))}
            except FileNotFoundError as error:
                return PartReport(self.name, {}, [], skipped=f"no C compiler: {error}")
            seeds = range(first_seed, first_seed + count)
            reports = run_seeds(run_case, seeds, jobs=jobs, environment=environment)
            return sum_up(self.name, count, reports, advance)


PART = ClocksPart()
