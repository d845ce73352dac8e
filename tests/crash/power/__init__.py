# SPDX-License-Identifier: Apache-2.0
"""The part `power`: real processes on a real file system whose disk loses unflushed sectors.

A few cases run as a control, with all syncs made void by eatmydata: the control must lose messages, or the part can't
see anything. A single case may be lucky, as when the disk keeps all its sectors in each of its cuts.
"""

import ctypes.util
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from tests.crash.fault.small_disk import enter_own_mounts
from tests.crash.part import CaseReport, PartReport, Violation, repeat_command
from tests.crash.power.case import ROUND_COUNT, run_case
from tests.crash.power.disk import reason_not_to_run
from tests.crash.workers import run_seeds

CASES_OF_ONE_CONTROL = 25
SEEDS_OF_ONE_CONTROL = 4


class PowerPart:
    """The part `power` of the crash harness."""

    name = "power"

    def __init__(self) -> None:
        self.counts_by_size = {"ci": 40 // ROUND_COUNT, "long": 240 // ROUND_COUNT}

    def run(self, *, first_seed: int, count: int, jobs: int, advance: Callable[[int], None]) -> PartReport:
        """See `Part`. Needs root, and the programs that `reason_not_to_run` names."""
        if reason := reason_not_to_run():
            return PartReport(self.name, {}, [], skipped=reason)
        counts: Counter[str] = Counter()
        violations: list[Violation] = []
        for report in run_seeds(run_case, range(first_seed, first_seed + count), jobs=jobs, prepare=enter_own_mounts):
            assert isinstance(report, CaseReport)
            counts += report.counts
            if report.wrong:
                what = "\n".join(report.wrong)
                violations.append(Violation(report.seed, what, repeat_command(self.name, report.seed)))
            advance(1)
        violations += self._control(first_seed, 1 + count // CASES_OF_ONE_CONTROL, jobs, counts)
        return PartReport(self.name, {"seeds": count, **counts}, violations)

    def _control(self, first_seed: int, count: int, jobs: int, counts: Counter[str]) -> list[Violation]:
        """The same cases without any sync; a control of which no seed finds anything wrong violates the harness."""
        environment = {"LD_PRELOAD": _eatmydata()}
        seeds = range(first_seed, first_seed + count * SEEDS_OF_ONE_CONTROL)
        reports = run_seeds(run_case, seeds, jobs=jobs, environment=environment, prepare=enter_own_mounts)
        seeing = {report.seed for report in reports if any("is not there" in what for what in report.wrong)}
        controls = [seeds[at : at + SEEDS_OF_ONE_CONTROL] for at in range(0, len(seeds), SEEDS_OF_ONE_CONTROL)]
        blind = [control[0] for control in controls if seeing.isdisjoint(control)]
        counts["controls without syncs that lost messages, as they must"] = count - len(blind)
        what = "without any sync nothing was lost: the disk does not do its work"
        return [Violation(seed, what, repeat_command(self.name, seed)) for seed in blind]


def _eatmydata() -> str:
    found = ctypes.util.find_library("eatmydata")
    candidates = [Path(found)] if found and found.startswith("/") else []
    candidates += sorted(Path("/usr/lib").glob("*/libeatmydata.so*"))
    return str(candidates[0])


PART = PowerPart()
