# SPDX-License-Identifier: Apache-2.0
"""History: messages of keys that were sent, delivered and settled while their topic changed. Values alone.

Times are milliseconds of the harness's own clock. A time is None if the event has not happened, or was never answered.
"""

from dataclasses import dataclass, field
from typing import NamedTuple


class Place(NamedTuple):
    """Where a message is stored."""

    queue_id: int
    queue_offset: int


@dataclass(slots=True)
class Sent:
    """A message of a key. `number` is its place in the order of the key."""

    key: str
    number: int
    began_ms: float
    answered_ms: float | None = None
    tries: int = 0

    @property
    def name(self) -> str:
        """Its body."""
        return f"{self.key}:{self.number}"


@dataclass(slots=True)
class Delivery:
    """A message as a member received it, by a call that began and ended at these times."""

    name: str
    place: Place
    attempt: int
    began_ms: float
    arrived_ms: float
    settle_began_ms: float | None = None
    settled_ms: float | None = None


@dataclass(slots=True)
class History:
    """All of it."""

    sent: dict[str, Sent] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    changes: list[str] = field(default_factory=list)
    """Commands that changed the topic, and how each ended."""
    states: list[dict[int, str]] = field(default_factory=list)
    """The states of the queues, each time that a command was asked for them."""
    taken: list[str] = field(default_factory=list)
    """Messages that a sealed queue took, in words."""
    refused_count: int = 0
    """How many messages for sealed queues were refused, or met a log that was away."""
    kills: list[tuple[str, float, float]] = field(default_factory=list)
    """Processes that were killed, when, and when they served again."""

    def pause_ms(self) -> float:
        """Return the longest time that a message needed, tries that failed included."""
        return max((one.answered_ms - one.began_ms for one in self.sent.values() if one.answered_ms), default=0.0)
