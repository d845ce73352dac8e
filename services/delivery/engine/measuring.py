# SPDX-License-Identifier: Apache-2.0
"""Measuring: how far groups are, looked at now and then, for whoever watches metrics.

It asks nobody to begin with deliveries: while this process does not deliver, nothing is told. Callers: the event loop's
thread; `lags` from any. Memory: a row for each group and topic, of the first GROUP_COUNT_MAX groups.
"""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass

from libs.machine.loop import SupervisedLoop
from libs.requests.errors import DependencyUnavailable
from services.delivery.engine.owned import Owned, QueueLag
from services.delivery.engine.ownership import Ownership
from services.delivery.errors import GroupNotFound, NotOwner

INTERVAL_MS = 15_000
"""A look costs a call for each topic of a group, and one for each of its queues that has unsettled messages."""
GROUP_COUNT_MAX = 200


@dataclass(frozen=True, slots=True)
class GroupLag:
    """How far a group is in a topic."""

    messages: int
    """Not settled."""
    seconds: float
    """For how long the oldest of them has been stored."""
    bytes: int
    """Of their records."""


class Measuring:
    """`start` it, `stop` it."""

    def __init__(self, ownership: Ownership) -> None:
        self.lags: Mapping[tuple[str, ...], GroupLag] = {}
        """By group and topic, as of the last look."""
        self._ownership = ownership
        self._loop = SupervisedLoop(
            "lags of groups", self.look, interval_ms=INTERVAL_MS, expected_errors=(DependencyUnavailable, NotOwner)
        )

    def start(self) -> None:
        """Begin."""
        self._loop.start()

    async def stop(self) -> None:
        """End."""
        await self._loop.stop()

    async def look(self) -> None:
        """Measure all groups. Raises DependencyUnavailable and NotOwner."""
        lags: dict[tuple[str, ...], GroupLag] = {}
        if self._ownership.is_owner:
            owned: Owned = await self._ownership.owned()
            for group in owned.groups.names()[:GROUP_COUNT_MAX]:
                with contextlib.suppress(GroupNotFound):  # it was deleted meanwhile
                    for queue in await owned.lags(group):
                        key = group, queue.place.topic
                        lags[key] = _with(lags.get(key, GroupLag(0, 0.0, 0)), queue)
        self.lags = lags


def _with(lag: GroupLag, queue: QueueLag) -> GroupLag:
    seconds = max(lag.seconds, (queue.lag_ms or 0) / 1000)
    return GroupLag(lag.messages + queue.unsettled_count, seconds, lag.bytes + queue.lag_bytes)
