# SPDX-License-Identifier: Apache-2.0
"""GroupTime: the time of deliveries, which is the log's time less what that has jumped ahead while they lasted.

So it means the same to the next process, which reads the jumps in the journal: a clock that is set ahead ends no
delivery early, and one that is set back lets deliveries last a ninth longer until the clock has caught up.
"""

from services.delivery.engine.state.groups import Groups
from services.delivery.engine.times.store_time import StoreTime


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
