# SPDX-License-Identifier: Apache-2.0
"""Kept: all that Delivery and the gateway answered as done, and whether the log and a new Delivery agree in the end.

A call without an answer may have done its work or not: the only promise is that it is done once at most.
"""

from collections import Counter
from dataclasses import dataclass, field

from tests.crash.sim.model import expect

TASKS, REMINDERS, SALES = "tasks", "reminders", "sales"
WORKERS = "workers"
LETTERS = f"%DLQ%{WORKERS}"

Place = tuple[int, int]
"""A queue of the tasks, and a queue offset."""


@dataclass(slots=True)
class Kept:
    """The answers of a run. Messages are known by their bodies."""

    count: int = 0
    sent: dict[str, set[bytes]] = field(default_factory=lambda: {TASKS: set(), REMINDERS: set()})
    """By topic, the messages that the gateway answered as stored."""
    settled: set[Place] = field(default_factory=set)
    """Answered so."""
    doubtful: set[Place] = field(default_factory=set)
    """May be settled: the answer is missing."""
    buried: set[bytes] = field(default_factory=set)
    replayed_count: int = 0
    """The number of dead letters that replays reported."""
    cancels: dict[bytes, bool | None] = field(default_factory=dict)
    """Whether a delayed message was taken back, None where the answer is missing."""
    ends: dict[bytes, bool | None] = field(default_factory=dict)
    """Whether a transaction was committed, None where the answer to the commit is missing."""
    attempts_max: dict[str, int | None] = field(default_factory=dict)
    """The policies of groups as they were answered, 0 for a deleted group, None where the answer is missing."""
    positions: dict[str, dict[int, int] | None] = field(default_factory=dict)
    """Where groups were moved, by queue; None where the answer is missing."""

    def mark(self, kind: str) -> bytes:
        """Return a body that no message had before."""
        self.count += 1
        return b"<%s %06d>" % (kind.encode(), self.count)

    def received(self, place: Place, settled: set[Place]) -> None:
        """A group received a message, by a call that began when these were settled."""
        expect(place not in settled, f"{place} of {TASKS} came again after it was answered as settled")

    def check_letters(self, tasks: list[bytes], letters: list[bytes]) -> None:
        """Compare dead letters and replays, before anything else is replayed."""
        first, dead = Counter(tasks), Counter(letters)
        for mark in self.buried:
            expect(dead[mark] > 0, f"{mark!r} was answered as buried, and is not among the dead letters")
        replayed_count = len(tasks) - len(first)
        what = f"{self.replayed_count} dead letters were answered as replayed, and {replayed_count} are in their topic"
        expect(replayed_count >= self.replayed_count, what)

    def check_replayed(self, tasks: list[bytes], letters: list[bytes]) -> None:
        """Compare dead letters and replays when all are replayed."""
        all_tasks, dead = Counter(tasks), Counter(letters)
        for mark in self.sent[TASKS]:
            expect(all_tasks[mark] > 0, f"{mark!r} was answered as stored, and is not there")
        for mark, count in all_tasks.items():
            expect(
                count == 1 + dead[mark], f"{mark!r} is there {count} times, and was a dead letter {dead[mark]} times"
            )

    def check_delays(self, bodies: list[bytes]) -> None:
        """Compare the delivered messages when no message waits any more."""
        found = Counter(bodies)
        for mark in self.sent[REMINDERS]:
            is_cancelled, count = self.cancels.get(mark, False), found[mark]
            what = f"{mark!r} was answered as {'cancelled' if is_cancelled else 'delayed'}, and came {count} times"
            expect(count <= 1 if is_cancelled is None else count == (not is_cancelled), what)

    def late(self, bodies: list[bytes]) -> set[bytes]:
        """Return which delayed messages have to come, and did not yet."""
        return {mark for mark in self.sent[REMINDERS] - set(bodies) if self.cancels.get(mark, False) is False}

    def check_ends(self, bodies: list[bytes]) -> None:
        """Compare the visible messages of transactions. A message of an open transaction is not seen."""
        found = Counter(bodies)
        for mark, is_committed in self.ends.items():
            count = found[mark]
            what = f"the end of {mark!r} was answered, commit: {is_committed}, and it is seen {count} times"
            expect(count <= 1 if is_committed is None else count == is_committed, what)
