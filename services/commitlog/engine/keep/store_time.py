# SPDX-License-Identifier: Apache-2.0
"""StoreTimeWatch: how far store time is ahead of the clock, after a clock that ran ahead was set right.

Store times never go back within the log, so all messages get the time of the last one until the clock has caught up:
queries by time find them there, and segments expire so much later. Nothing mends that; the log says it.
"""

import logging

from libs.machine.clock import Clock
from services.commitlog.engine.write.state import LogState

_log = logging.getLogger(__name__)


class StoreTimeWatch:
    """Tells once when store time is further ahead than is allowed, and once when it is not any more."""

    def __init__(self, clock: Clock, state: LogState, *, ahead_ms_max: int) -> None:
        self._clock = clock
        self._state = state
        self._ahead_ms_max = ahead_ms_max
        self._is_told = False

    @property
    def ahead_ms(self) -> int:
        """Milliseconds by which the last record's store time is ahead of the clock, 0 if it is not."""
        return max(0, self._state.last_store_time_ms - self._clock.now_ms())

    def look(self) -> None:
        """Log a line when store time has begun to be too far ahead, or has ended to be."""
        ahead_ms = self.ahead_ms
        if ahead_ms > self._ahead_ms_max and not self._is_told:
            _log.warning(
                "store time is %.1f s ahead of the clock: all messages get one store time, %d ms after the epoch, "
                "until the clock has caught up",
                ahead_ms / 1000,
                self._state.last_store_time_ms,
            )
        elif ahead_ms <= self._ahead_ms_max and self._is_told:
            _log.warning("store time follows the clock again")
        self._is_told = ahead_ms > self._ahead_ms_max
