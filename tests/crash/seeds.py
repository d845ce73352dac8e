# SPDX-License-Identifier: Apache-2.0
"""Simulations as parts of the crash harness: a seed becomes a plan, a plan a run; many seeds, some processes at once.

A run needs neither files nor other processes. Hash seeds do not matter: nothing in a run depends on the order of a set
of texts. A violation is shown with the shortest list of steps that still leads to it. Invariants: a run depends on its
plan alone, a plan on its seed alone; leaving out steps keeps the draws of the other steps. Callers: the packages `sim`
and `cluster`, each with a module `simulate` that makes and runs plans.
"""

import concurrent.futures
import contextlib
import importlib
import logging
import multiprocessing
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.crash.part import PartReport, Violation, repeat_command

CHUNK_COUNT = 25
"""Seeds that a process takes at a time."""
SHRUNK_COUNT_MAX = 5
"""Violations of a run whose steps are made fewer."""


@dataclass(frozen=True, slots=True)
class Step:
    """A kind of action, and the seed of its draws."""

    kind: str
    seed: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The plan of a run. `setup` is the initial state of its world."""

    setup: Any
    steps: list[Step]
    seed: int


@dataclass(slots=True)
class Outcome:
    """The outcome of a run: its steps and counts, and the violation, if any."""

    lines: list[str] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)
    violation: str = ""


def draw_steps(chance: random.Random, weights: Mapping[str, float], count: int) -> list[Step]:
    """Draw steps by the weights of their kinds."""
    kinds = chance.choices(list(weights), list(weights.values()), k=count)
    return [Step(kind, chance.getrandbits(32)) for kind in kinds]


class SimulationPart:
    """See `tests.crash.part.Part`. The module `simulate` of the package has `make_plan` and `run_plan`."""

    def __init__(self, name: str, counts_by_size: dict[str, int]) -> None:
        self.name = name
        self.counts_by_size = counts_by_size

    def run(self, *, first_seed: int, count: int, jobs: int, advance: Callable[[int], None]) -> PartReport:
        """Run the seeds; the first few violations are made shorter, which takes a while."""
        counts: Counter[str] = Counter()
        broken: list[int] = []
        for seeds, chunk_counts, chunk_broken in _run_chunks(self.name, first_seed, count, jobs):
            counts.update(chunk_counts)
            broken += chunk_broken
            advance(len(seeds))
        violations = [
            _violation(self.name, seed, is_shrunk=index < SHRUNK_COUNT_MAX) for index, seed in enumerate(sorted(broken))
        ]
        return PartReport(self.name, {"seeds": count, **dict(sorted(counts.items()))}, violations)


def run_seeds(name: str, seeds: range) -> tuple[range, Counter[str], list[int]]:
    """Run some seeds of a simulation in this process. Returns their counts in all, and the seeds that failed."""
    simulate, counts, broken = _module(name), Counter[str](), []
    with silence():
        for seed in seeds:
            outcome = simulate.run_plan(simulate.make_plan(seed))
            counts.update(outcome.counts)
            if outcome.violation:
                broken.append(seed)
    return seeds, counts, broken


def shortest(name: str, seed: int, *, is_shrunk: bool = True) -> str:
    """Run a seed that fails, and report the fewest steps that lead to the same failure."""
    simulate = _module(name)
    with silence():
        plan = simulate.make_plan(seed)
        plan, outcome = shrunk(plan, simulate.run_plan) if is_shrunk else (plan, simulate.run_plan(plan))
    return "\n".join([str(plan.setup), *(f"  {line}" for line in outcome.lines), outcome.violation])


def shrunk(plan: Plan, run_plan: Callable[[Plan], Outcome], *, budget: int = 200) -> tuple[Plan, Outcome]:
    """Leave out steps, in halves, quarters and so on, as long as the run still fails."""
    best, outcome = plan, run_plan(plan)
    kind = _kind_of(outcome)
    size = max(1, len(plan.steps) // 2)
    while size and budget:
        at, is_smaller = 0, False
        while at < len(best.steps) and budget:
            budget -= 1
            trial = Plan(best.setup, best.steps[:at] + best.steps[at + size :], best.seed)
            tried = run_plan(trial)
            if _kind_of(tried) == kind:
                best, outcome, is_smaller = trial, tried, True
            else:
                at += size
        size = size if is_smaller and size == 1 else size // 2
    return best, outcome


def _kind_of(outcome: Outcome) -> str:
    """The violation's last line without its numbers."""
    return re.sub(r"\d+", "", outcome.violation.strip().rpartition("\n")[2])[:60]


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Silence the engines' warnings: most events that they warn of are arranged here."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _run_chunks(name: str, first_seed: int, count: int, jobs: int) -> Iterator[tuple[range, Counter[str], list[int]]]:
    end = first_seed + count
    chunks = [range(seed, min(seed + CHUNK_COUNT, end)) for seed in range(first_seed, end, CHUNK_COUNT)]
    if jobs == 1 or len(chunks) == 1:
        yield from (run_seeds(name, chunk) for chunk in chunks)
        return
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(jobs, mp_context=context) as pool:
        for done in concurrent.futures.as_completed([pool.submit(run_seeds, name, chunk) for chunk in chunks]):
            yield done.result()


def _violation(name: str, seed: int, *, is_shrunk: bool) -> Violation:
    return Violation(seed, shortest(name, seed, is_shrunk=is_shrunk), repeat_command(name, seed))


def _module(name: str) -> Any:
    return importlib.import_module(f"tests.crash.{name}.simulate")
