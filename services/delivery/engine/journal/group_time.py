# SPDX-License-Identifier: Apache-2.0
"""GroupTime: the time of deliveries, which is the log's time less what that has jumped ahead while they lasted.

So it means the same to the next process, which reads the jumps in the journal: a clock that is set ahead ends no
delivery early, and one that is set back lets deliveries last a ninth longer until the clock has caught up.
"""

from typing import NamedTuple

from services.delivery.engine.journal.store_time import JUMP_MS, StoreTime
from services.delivery.engine.state.groups import Groups


class FormerTime(NamedTuple):
    """The time of deliveries at the end of this process's last owner."""

    time: StoreTime
    behind_ms: int

    def jump_ms(self, time: StoreTime, behind_ms: int) -> int:
        """Return the largest possible jump of the time of deliveries since then, in milliseconds, 0 without a jump.

        `time` and `behind_ms` are of the new owner. A log that restarts with a wrong clock ends an owner before
        an answer shows the jump. Jumps that another process counted meanwhile are in the journal, so in `behind_ms`.
        """
        counted_ms = behind_ms - self.behind_ms
        if time.now_ms() - counted_ms <= self.time.latest_ms() + JUMP_MS:
            return 0
        return time.latest_ms() - counted_ms - self.time.now_ms()


class GroupTime:
    """Of one owner."""

    def __init__(self, time: StoreTime, groups: Groups) -> None:
        self._time, self._groups = time, groups

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, less what the log's time has jumped."""
        return self._time.now_ms() - self._groups.behind_ms

    def shown_ms(self, time_ms: int) -> int:
        """Return a time of deliveries as milliseconds since the epoch."""
        return time_ms + self._groups.behind_ms
