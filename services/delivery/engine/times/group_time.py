# SPDX-License-Identifier: Apache-2.0
"""GroupTime: the time of deliveries, which is the log's time less what that has jumped ahead while they lasted.

So it means the same to the next process, which reads the jumps in the journal: a clock that is set ahead ends no
delivery early, and one that is set back lets deliveries last a ninth longer until the clock has caught up.
"""

from typing import NamedTuple

from services.delivery.engine.state.groups import Groups
from services.delivery.engine.times.store_time import JUMP_MS, StoreTime


class FormerTime(NamedTuple):
    """The time of deliveries as the last ownership of this process knew it."""

    time: StoreTime
    behind_ms: int

    def jump_ms(self, time: StoreTime, behind_ms: int) -> int:
        """Return how far the time of deliveries has jumped at most since, by what the journal and the log say now.

        A log that starts again by a wrong clock ends the ownership before it tells the time. What another process has
        counted meanwhile is in the journal.
        """
        counted_ms = behind_ms - self.behind_ms
        if time.now_ms() - counted_ms <= self.time.latest_ms() + JUMP_MS:
            return 0
        return time.latest_ms() - counted_ms - self.time.now_ms()


class GroupTime:
    """Of one ownership."""

    def __init__(self, time: StoreTime, groups: Groups) -> None:
        self._time, self._groups = time, groups

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, less what the log's time has jumped."""
        return self._time.now_ms() - self._groups.behind_ms

    def shown_ms(self, time_ms: int) -> int:
        """Return a time of deliveries as milliseconds since the epoch."""
        return time_ms + self._groups.behind_ms
