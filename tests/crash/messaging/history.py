# SPDX-License-Identifier: Apache-2.0
"""History: messages sent, delivered and settled while processes died or clocks were set. Values alone, times in ms.

A message's body is its name, which no other message has, so a message that is stored twice is a name at two places. A
time is None if the event has not happened, or was never answered. Times are the harness's, independent of the clocks of
services. Callers: a single event loop.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Literal, NamedTuple

Kind = Literal["plain", "keyed", "delayed", "transaction"]
Verb = Literal["", "ack", "nack"]


class Place(NamedTuple):
    """Where a message is stored."""

    topic: str
    queue_id: int
    queue_offset: int


@dataclass(slots=True)
class Sent:
    """A message, and the answers to its producer."""

    name: str
    topic: str
    kind: Kind
    began_ms: float
    is_native: bool = True
    """Sent by the client of this project, not by RocketMQ's own through the gateway."""
    key: str = ""
    deliver_ms: int = 0
    is_after_delay: bool = False
    """Whether `deliver_ms` is the end of a delay, and not a time of the clock."""
    delay_level: int = 0
    """Its delay level, if the delay has a level."""
    answered_ms: float | None = None
    given_up_ms: float | None = None
    """The time at which its producer was told that it is unknown whether it is stored, and left it."""
    place: Place | None = None
    """As the answer says it, if the message is seen there."""
    end: Literal["", "commit", "rollback"] = ""
    """Of a transaction: the end that its producer asked for."""
    end_began_ms: float | None = None
    ended_ms: float | None = None

    @property
    def may_be_seen(self) -> bool:
        """Whether any member may receive it at all."""
        return self.kind != "transaction" or self.end == "commit"

    @property
    def must_be_seen(self) -> bool:
        """Whether each group has to receive it."""
        has_ended = self.kind != "transaction" or self.ended_ms is not None
        return self.answered_ms is not None and has_ended and self.may_be_seen

    @property
    def until_ms(self) -> float:
        """The time until which a process may have tried to store it."""
        return self.answered_ms or self.given_up_ms or float("inf")


@dataclass(slots=True)
class Delivery:
    """A message as a member of a group received it, by a call that began and ended at these times.

    The message is its receiver's for `invisible_ms` from some moment of that call on.
    """

    group: str
    place: Place
    name: str
    attempt: int
    began_ms: float
    arrived_ms: float
    invisible_ms: float
    verb: Verb = ""
    delay_ms: float = 0
    """The delay of a nack."""
    settle_began_ms: float | None = None
    settled_ms: float | None = None
    """When it was answered that it is as the verb says."""


@dataclass(frozen=True, slots=True)
class Death:
    """A process that was killed, and served again."""

    service: str
    killed_ms: float
    back_ms: float


@dataclass(frozen=True, slots=True)
class ClockStep:
    """The wall clock of a service is ahead of the true clock by so much from this time on; behind it, if negative."""

    service: str
    at_ms: float
    ahead_ms: float


@dataclass(frozen=True, slots=True)
class Group:
    """Whose members share the messages of a topic."""

    topic: str
    is_ordered: bool = False
    is_native: bool = True


@dataclass(slots=True)
class History:
    """All of it."""

    groups: dict[str, Group] = field(default_factory=dict)
    sent: dict[str, Sent] = field(default_factory=dict)
    deliveries: list[Delivery] = field(default_factory=list)
    deaths: list[Death] = field(default_factory=list)
    clock_steps: list[ClockStep] = field(default_factory=list)
    """In the order of their times."""
    attempts_last: bool = True
    """Whether the number of an attempt shows which attempt was later: a failover may forget the last deliveries."""

    def died_within(self, start_ms: float, end_ms: float) -> list[str]:
        """Return which services were away at any moment from start to end, sorted."""
        return sorted({one.service for one in self.deaths_within(start_ms, end_ms)})

    def deaths_within(self, start_ms: float, end_ms: float) -> list[Death]:
        """Return the deaths that any moment from start to end belongs to."""
        return [one for one in self.deaths if one.killed_ms <= end_ms and one.back_ms >= start_ms]

    def early_ms(self, sent: Sent, until_ms: float) -> float:
        """Return how much too early a message may come by the log's clock, the only clock that counts.

        A time of the clock is reached as early as the clock is ahead; a delay ends earlier by the time that the clock
        was set ahead while the message waited.
        """
        if sent.is_after_delay:
            return self.set_ahead_ms(sent.began_ms, until_ms)
        return max(0.0, *(ahead_ms for at_ms, ahead_ms in self._aheads() if at_ms <= until_ms))

    def set_ahead_ms(self, start_ms: float, end_ms: float) -> float:
        """Return by how much the log's clock was set ahead within a time; steps back count nothing."""
        steps = ((at_ms, ahead - former) for (_, former), (at_ms, ahead) in pairwise(self._aheads()))
        return sum(max(0.0, step_ms) for at_ms, step_ms in steps if start_ms <= at_ms <= end_ms)

    def _aheads(self) -> list[tuple[float, float]]:
        steps = [(one.at_ms, one.ahead_ms) for one in self.clock_steps if one.service == "commitlog"]
        return [(0.0, 0.0), *steps]

    def of_group(self, group: str) -> Iterator[Delivery]:
        """Yield the deliveries of a group as they arrived."""
        return (one for one in self.deliveries if one.group == group)
