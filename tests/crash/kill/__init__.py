# SPDX-License-Identifier: Apache-2.0
"""The part `kill`: real processes under load, killed at every failpoint and at any moment, restarted and checked."""

from collections import Counter
from collections.abc import Callable

from tests.crash.kill.case import CaseReport, run_case
from tests.crash.kill.plan import ANY, EARLY, Target, places, seeds_of_a_lap, seeds_of_all, targets
from tests.crash.part import PartReport, Violation, repeat_command
from tests.crash.workers import run_seeds


class KillPart:
    """The part `kill` of the crash harness."""

    name = "kill"

    def __init__(self) -> None:
        self.counts_by_size = {"ci": seeds_of_a_lap(), "long": 3 * seeds_of_all()}

    def run(self, *, first_seed: int, count: int, jobs: int, advance: Callable[[int], None]) -> PartReport:
        """See `Part`. A place that no seed met is a violation of the harness, if the seeds are enough for all."""
        fired: Counter[Target] = Counter()
        counts: Counter[str] = Counter()
        violations: list[Violation] = []
        for report in run_seeds(run_case, range(first_seed, first_seed + count), jobs=jobs):
            assert isinstance(report, CaseReport)
            fired += report.fired
            counts += report.counts
            if report.wrong:
                violations.append(
                    Violation(report.seed, "\n".join(report.wrong), repeat_command(self.name, report.seed))
                )
            advance(1)
        met = {(target.service, target.failpoint) for target in fired if target.is_named}
        named = {(service, name) for service, name in places() if name not in (ANY, EARLY)}
        missed = named - met
        if missed and count >= seeds_of_a_lap():
            what = "nobody was killed at these places:\n" + "\n".join(map(str, sorted(missed)))
            command = f"python -m tests.crash --only {self.name} --seed {first_seed} --count {count}"
            violations.append(Violation(first_seed, what, command))
        counts[f"places killed at, of {len(named)}"] = len(met)
        target_count = len({target for target in targets() if target.is_named})
        counts[f"places and flush modes killed at, of {target_count}"] = sum(target.is_named for target in fired)
        return PartReport(self.name, {"seeds": count, **counts}, violations)


PART = KillPart()
