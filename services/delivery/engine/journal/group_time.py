# SPDX-License-Identifier: Apache-2.0
"""GroupTime: the time of deliveries, which is the log's time less its jumps ahead.

It is the same time for the next process, which reads the jumps in the journal. A clock that is set ahead ends no
delivery early. A clock that is set back lets deliveries last a ninth longer until the clock has caught up.
"""

from typing import NamedTuple

from services.delivery.engine.journal.store_time import JUMP_MS, StoreTime
from services.delivery.engine.state.groups import Groups


class FormerTime(NamedTuple):
    """The time of deliveries at the end of this process's last ownership."""

    time: StoreTime
    behind_ms: int

    def jump_ms(self, time: StoreTime, behind_ms: int) -> int:
        """Return the largest possible jump of the time of deliveries since then, in milliseconds, 0 without a jump.

        `time` and `behind_ms` are of the new ownership. A log that restarts with a wrong clock ends an ownership before
        an answer shows the jump. Jumps that another process recorded meanwhile are in the journal, so in `behind_ms`.
        """
        counted_ms = behind_ms - self.behind_ms
        if time.now_ms() - counted_ms <= self.time.latest_ms() + JUMP_MS:
            return 0
        return time.latest_ms() - counted_ms - self.time.now_ms()


class GroupTime:
    """The time of deliveries of an ownership."""

    def __init__(self, time: StoreTime, groups: Groups) -> None:
        self._time, self._groups = time, groups

    def now_ms(self) -> int:
        """Return milliseconds since the epoch, less the jumps of the log's time."""
        return self._time.now_ms() - self._groups.behind_ms

    def shown_ms(self, time_ms: int) -> int:
        """Return a time of deliveries as milliseconds since the epoch."""
        return time_ms + self._groups.behind_ms
