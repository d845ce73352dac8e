# SPDX-License-Identifier: Apache-2.0
"""The simulation as a part of the crash harness: many seeds, in some processes at once.

A run needs neither files nor other processes. Hash seeds do not matter: nothing in a run depends on the order of a set
of texts. A violation is shown with the shortest list of steps that still leads to it.
"""

import concurrent.futures
import multiprocessing
from collections import Counter
from collections.abc import Callable, Iterator

from tests.crash.part import PartReport, Violation, repeat_command
from tests.crash.sim.simulate import Outcome, Plan, make_plan, run_plan, shrunk, silence

NAME = "sim"
CHUNK_COUNT = 25
"""Seeds that one process takes at a time."""
SHRUNK_COUNT_MAX = 5
"""Violations of one run whose steps are made fewer."""


class SimulationPart:
    """See `tests.crash.part.Part`."""

    name: str = NAME

    def __init__(self) -> None:
        self.counts_by_size = {"ci": 1_500, "long": 25_000}

    def run(self, *, first_seed: int, count: int, jobs: int, advance: Callable[[int], None]) -> PartReport:
        """Run the seeds; the first few violations are made shorter, which takes a while."""
        counts: Counter[str] = Counter()
        broken: list[int] = []
        for seeds, chunk_counts, chunk_broken in _run_chunks(first_seed, count, jobs):
            counts.update(chunk_counts)
            broken += chunk_broken
            advance(len(seeds))
        violations = [_violation(seed, is_shrunk=index < SHRUNK_COUNT_MAX) for index, seed in enumerate(sorted(broken))]
        return PartReport(NAME, {"seeds": count, **dict(sorted(counts.items()))}, violations)


def run_seeds(seeds: range) -> tuple[range, Counter[str], list[int]]:
    """Run some seeds in this process; what they did in all, and which of them failed."""
    counts: Counter[str] = Counter()
    broken = []
    with silence():
        for seed in seeds:
            outcome = run_plan(make_plan(seed))
            counts.update(outcome.counts)
            if outcome.violation:
                broken.append(seed)
    return seeds, counts, broken


def describe(plan: Plan, outcome: Outcome) -> str:
    """Say what happened, step by step."""
    return "\n".join([str(plan.setup), *(f"  {line}" for line in outcome.lines), outcome.violation])


def _run_chunks(first_seed: int, count: int, jobs: int) -> Iterator[tuple[range, Counter[str], list[int]]]:
    end = first_seed + count
    chunks = [range(seed, min(seed + CHUNK_COUNT, end)) for seed in range(first_seed, end, CHUNK_COUNT)]
    if jobs == 1 or len(chunks) == 1:
        yield from map(run_seeds, chunks)
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
        for done in concurrent.futures.as_completed([pool.submit(run_seeds, chunk) for chunk in chunks]):
            yield done.result()


def _violation(seed: int, *, is_shrunk: bool) -> Violation:
    plan = make_plan(seed)
    with silence():
        plan, outcome = shrunk(plan) if is_shrunk else (plan, run_plan(plan))
    return Violation(seed, describe(plan, outcome), repeat_command(NAME, seed))


PART = SimulationPart()
