# SPDX-License-Identifier: Apache-2.0
"""Moved: a group as of the sample in which it moved last. While it rests, only the age of its lag grows."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from msgspec.structs import replace
from reput_client import ConsumerOffset

from services.console.ask.samples.asked import Answer
from services.console.pages.groups import GroupQueue, lag_of

State = tuple[Answer | None, list[ConsumerOffset] | None]
"""The answer about a group that shares messages, and its stored offsets."""
Sums = tuple[int, int]
"""The sum of the offsets of all queues of a topic, and the sum of their ends."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A group as of the sample in which it moved last. Times are in seconds of the monotonic clock."""

    state: State
    queues: tuple[GroupQueue, ...]
    """With the bytes and seconds of their lag, except those that are not measured yet."""
    taken_s: float
    unmeasured: tuple[GroupQueue, ...]
    """The queues as they were before they were measured, in the same order."""
    lag: tuple[float, float, float] = field(init=False)
    """Messages, bytes and seconds at `taken_s`. A value that is not known is NaN."""
    sums: Mapping[str, Sums] = field(init=False)
    """By topic."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "lag", _lag(self.queues))
        object.__setattr__(self, "sums", _sums(self.queues))

    @property
    def missing_count(self) -> int:
        """The number of queues that are not measured yet."""
        return sum(queue.lag_bytes is None for queue in self.queues)

    def lag_at(self, now_s: float) -> tuple[float, float, float]:
        """Return the lag as a sample. Without messages it has no age."""
        messages, size_bytes, seconds = self.lag
        return messages, size_bytes, seconds + (now_s - self.taken_s if messages else 0.0)

    def measured(self, queues: Iterable[GroupQueue], now_s: float) -> tuple[GroupQueue, ...]:
        """Return queues with their lag, where neither the end nor the offset has moved since it was measured."""
        known = dict(zip(self.unmeasured, aged(self.queues, now_s - self.taken_s), strict=True))
        return tuple(known.get(queue, queue) if queue.lag_bytes is None else queue for queue in queues)


def aged(queues: Iterable[GroupQueue], seconds: float) -> tuple[GroupQueue, ...]:
    """Return queues whose oldest messages have waited so much longer."""
    return tuple(
        queue if queue.lag_s is None else replace(queue, lag_s=max(queue.lag_s + seconds, 0.0)) for queue in queues
    )


def sums_of(groups: Mapping[str, Moved]) -> dict[tuple[str, str], Sums]:
    """Return the sums of all groups by group and topic."""
    return {(name, topic): sums for name, group in groups.items() for topic, sums in group.sums.items()}


def _sums(queues: Iterable[GroupQueue]) -> dict[str, Sums]:
    sums: dict[str, Sums] = {}
    for queue in queues:
        position, end = sums.get(queue.topic, (0, 0))
        sums[queue.topic] = (position + queue.queue_offset, end + queue.end_queue_offset)
    return sums


def _lag(queues: tuple[GroupQueue, ...]) -> tuple[float, float, float]:
    lag = lag_of(queues)
    seconds = lag.seconds if lag.seconds is not None else 0.0 if not lag.messages else math.nan
    return lag.messages, math.nan if lag.bytes is None else lag.bytes, seconds
