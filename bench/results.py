# SPDX-License-Identifier: Apache-2.0
"""The measured values, and their arithmetic: medians, spreads, and ratios of figures of the same round.

A ratio is taken round by round, because figures of the same round share the state of the machine; the median of the
ratios is reported. Knows nothing of scenarios and systems but their names.
"""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Run:
    """A measurement: a scenario on a system in a round, with figures or the error that it ended with."""

    scenario: str
    peer: str
    round_number: int
    figures: Figures
    error: str = ""


@dataclass(frozen=True, slots=True)
class Spread:
    """Values of several rounds."""

    median: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread | None":
        """Return the spread of some values, None of none."""
        found = list(values)
        if not found:
            return None
        return cls(statistics.median(found), min(found), max(found), len(found))


class Results:
    """All runs so far."""

    def __init__(self, runs: Sequence[Run] = ()) -> None:
        self.runs = list(runs)

    def by_round(self, scenario: str, peer: str, figure: str) -> dict[int, float]:
        """Return the values of a figure, for each round that has it."""
        return {
            run.round_number: run.figures[figure]
            for run in self.runs
            if run.scenario == scenario and run.peer == peer and figure in run.figures
        }

    def spread(self, scenario: str, peer: str, figure: str) -> Spread | None:
        """Return median, lowest and highest value."""
        return Spread.of(self.by_round(scenario, peer, figure).values())

    def ratio(self, numerator: tuple[str, str, str], denominator: tuple[str, str, str]) -> Spread | None:
        """Return a figure through another figure, each given by scenario, peer and name.

        None without a common round.
        """
        above, below = self.by_round(*numerator), self.by_round(*denominator)
        return Spread.of(above[number] / below[number] for number in above if below.get(number))

    def errors(self, scenario: str, peer: str) -> list[str]:
        """Return the errors of the failed runs."""
        return [run.error for run in self.runs if run.scenario == scenario and run.peer == peer and run.error]

    def figures(self, scenario: str, peer: str) -> list[str]:
        """Return the names of the figures, in the order in which they were first recorded."""
        names: dict[str, None] = {}
        for run in self.runs:
            if run.scenario == scenario and run.peer == peer:
                names |= dict.fromkeys(run.figures)
        return list(names)

    @property
    def has_failed(self) -> bool:
        """Whether any run ended with an error."""
        return any(run.error for run in self.runs)
