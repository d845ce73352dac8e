# SPDX-License-Identifier: Apache-2.0
"""Comparisons: answers of Reput beside answers from the source. Differences are recorded, and fail the run."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

VALUE_WIDTH = 200
"""Maximum number of characters of a value in a difference."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A question with its outcome."""

    question: str
    shown: str
    """The answer in a few words."""
    difference: str
    """Empty if the answers are equal."""


@dataclass(slots=True)
class Comparisons:
    """All comparisons of a run."""

    on_comparison: Callable[[Comparison], None]
    count: int = 0
    different: list[Comparison] = field(default_factory=list)

    def equal(self, question: str, answer: Any, expected: Any, shown: str = "") -> None:
        """Compares Reput's answer with the expected answer."""
        comparison = Comparison(question, shown or short(answer), difference_of(answer, expected))
        self.count += 1
        if comparison.difference:
            self.different.append(comparison)
        self.on_comparison(comparison)

    @contextmanager
    def counted(self, on_comparison: Callable[[Comparison], None]) -> Iterator["Tally"]:
        """Counts the comparisons of a block. Within it, only this `on_comparison` is called."""
        heard, self.on_comparison = self.on_comparison, on_comparison
        tally = Tally(-self.count, -len(self.different))
        try:
            yield tally
        finally:
            self.on_comparison = heard
            tally.count += self.count
            tally.different_count += len(self.different)


@dataclass(slots=True)
class Tally:
    """The number of comparisons, and of comparisons with a difference."""

    count: int
    different_count: int

    def __str__(self) -> str:
        return f"{self.count - self.different_count} of {self.count}"


def difference_of(answer: Any, expected: Any) -> str:
    """Returns the first difference of two values, or "" if they are equal."""
    if answer == expected:
        return ""
    if isinstance(answer, list) and isinstance(expected, list):
        pairs = enumerate(zip(answer, expected, strict=False))
        first = next((at for at, (mine, theirs) in pairs if mine != theirs), min(len(answer), len(expected)))
        mine, theirs = (short(values[first]) if first < len(values) else "nothing" for values in (answer, expected))
        return f"{len(answer)} items, expected {len(expected)}; item {first} is {mine}, expected {theirs}"
    return f"is {short(answer)}, expected {short(expected)}"


def short(value: Any) -> str:
    """Returns a value in a line of limited length."""
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else repr(value)
    return text if len(text) <= VALUE_WIDTH else text[:VALUE_WIDTH] + "…"
