# SPDX-License-Identifier: Apache-2.0
"""The part `fault`: real processes whose disk is full, dies, or fails at a call."""

import tempfile
from collections.abc import Callable
from pathlib import Path

from tests.crash.fault.case import run_case
from tests.crash.fault.shim import compile_shim
from tests.crash.fault.small_disk import enter_own_mounts, reason_not_to_mount
from tests.crash.part import PartReport, sum_up
from tests.crash.workers import run_seeds


class FaultPart:
    """The part `fault` of the crash harness."""

    name = "fault"

    def __init__(self) -> None:
        self.counts_by_size = {"ci": 18, "long": 180}

    def run(self, *, first_seed: int, count: int, jobs: int, advance: Callable[[int], None]) -> PartReport:
        """See `Part`. Needs root for the small disks, and gcc."""
        if reason := reason_not_to_mount():
            return PartReport(self.name, {}, [], skipped=f"no file system can be mounted here: {reason}")
        with tempfile.TemporaryDirectory() as directory:
            try:
                environment = {"LD_PRELOAD": str(compile_shim(Path(directory)))}
            except FileNotFoundError as error:
                return PartReport(self.name, {}, [], skipped=f"no C compiler: {error}")
            seeds = range(first_seed, first_seed + count)
            reports = run_seeds(run_case, seeds, jobs=jobs, environment=environment, prepare=enter_own_mounts)
            return sum_up(self.name, count, reports, advance)


PART = FaultPart()
