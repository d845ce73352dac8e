# SPDX-License-Identifier: Apache-2.0
"""KnownTopics: what a simulated store promised about topics that clients made, changed and deleted.

A change that was answered outlives a power cut. A change that was answered with an error, or not at all, may be made or
not: until a start shows it, both are possible.
"""

import random
from collections.abc import Callable

from tests.crash.sim.model import expect

NAMES = ("made-0", "made-1", "made-2", "made-3")
QUEUE_COUNT_MAX = 9


class KnownTopics:
    """The possible queue counts of each topic; 0 is no topic."""

    def __init__(self) -> None:
        self._possible: dict[str, set[int]] = {name: {0} for name in NAMES}

    def draw(self, chance: random.Random) -> tuple[str, int]:
        """Return a topic and its next queue count, 0 to delete it."""
        name = chance.choice(NAMES)
        return name, chance.choice((0, *range(1, QUEUE_COUNT_MAX)))

    def begun(self, name: str, queue_count: int) -> None:
        """A change was begun."""
        self._possible[name].add(queue_count)

    def answered(self, name: str, queue_count: int) -> None:
        """A change was answered as made."""
        self._possible[name] = {queue_count}

    def look(self, queue_count_of: Callable[[str], int]) -> None:
        """Compare with the topics of a log that has just started. What it shows is certain from now on."""
        for name, possible in self._possible.items():
            found = queue_count_of(name)
            expect(found in possible, f"topic {name} has {found} queues after a start, not one of {sorted(possible)}")
            self._possible[name] = {found}
