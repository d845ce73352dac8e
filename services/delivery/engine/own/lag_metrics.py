# SPDX-License-Identifier: Apache-2.0
"""LagMetrics: measures the lags of groups at an interval, for metrics.

It starts no ownership: while this process does not deliver, there are no lags. Callers: the event loop's thread;
`lags` from any thread. Memory: a row for each group and topic, of the first GROUP_COUNT_MAX groups.
"""

import contextlib
from collections.abc import Mapping

from msgspec import Struct

from libs.machine.loop import SupervisedLoop
from libs.requests.errors import DependencyUnavailable
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.own.journal_owner import JournalOwner
from services.delivery.engine.own.lags import QueueLag
from services.delivery.engine.own.standstill_log import StandstillLog
from services.delivery.errors import GroupNotFound, NotOwner

INTERVAL_MS = 15_000
"""A look costs up to two calls for each topic of a group, and a call for all of its queues."""
GROUP_COUNT_MAX = 200


class GroupLag(Struct, frozen=True):
    """The lag of a group in a topic."""

    messages: int = 0
    """Messages that the group has not settled."""
    seconds: float = 0
    """Time since the oldest message that the group has not settled was stored."""
    bytes: int = 0
    """Bytes of the records that the group has not settled."""
    in_flight_messages: int = 0
    """Unsettled messages that receivers have."""
    waiting_messages: int = 0
    """Unsettled messages that were given back, or whose receivers' time is over."""
    held_messages: int = 0
    """Unsettled messages that wait for a message with the same key, or for a member whose filter they pass."""


class GroupStandstill(Struct, frozen=True):
    """How many queues of a group and topic stand still for a reason."""

    queues: int = 0
    """Queues of the group in which nothing was settled since the look before, for this reason."""


class LagMetrics:
    """Measures the lags and standstills of groups. `start` it; `stop` it in the end."""

    def __init__(self, owner: JournalOwner) -> None:
        self.lags: Mapping[tuple[str, ...], GroupLag] = {}
        """By group and topic, as of the last look."""
        self.standstills: Mapping[tuple[str, ...], GroupStandstill] = {}
        """By group, topic and reason, as of the last look."""
        self._telling = StandstillLog()
        self._owner = owner
        self._loop = SupervisedLoop(
            "lags of groups", self.look, interval_ms=INTERVAL_MS, expected_errors=(DependencyUnavailable, NotOwner)
        )

    def start(self) -> None:
        """Begin to measure at the interval."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop measuring."""
        await self._loop.stop()

    async def look(self) -> None:
        """Measure all groups. Raises DependencyUnavailable and NotOwner."""
        lags: dict[tuple[str, ...], GroupLag] = {}
        queues: list[QueueLag] = []
        if self._owner.is_owner:
            engine: GroupEngine = await self._owner.engine()
            for group in engine.groups.names()[:GROUP_COUNT_MAX]:
                with contextlib.suppress(GroupNotFound):  # it was deleted meanwhile
                    for queue in await engine.lags.of(group):
                        key = group, queue.place.topic
                        lags[key] = _with(lags.get(key, GroupLag()), queue)
                        queues += [queue] if queue.standstills else []
        self.lags = lags
        self.standstills = {key: GroupStandstill(count) for key, count in self._telling.look(queues).items()}


def _with(lag: GroupLag, queue: QueueLag) -> GroupLag:
    return GroupLag(
        messages=lag.messages + queue.unsettled_count,
        seconds=max(lag.seconds, (queue.lag_ms or 0) / 1000),
        bytes=lag.bytes + queue.lag_bytes,
        in_flight_messages=lag.in_flight_messages + queue.flight_count,
        waiting_messages=lag.waiting_messages + queue.waiting_count,
        held_messages=lag.held_messages + queue.held_count,
    )
