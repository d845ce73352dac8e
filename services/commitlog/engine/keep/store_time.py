# SPDX-License-Identifier: Apache-2.0
"""StoreTimeWatch: reports by how much store time is ahead of the clock, after a fast clock was corrected.

Store times never decrease within the log, so they continue from the newest store time until the clock has caught up.
Meanwhile queries by time find messages at these times, and segments expire later by this difference. Nothing corrects
that; a log line reports it.
"""

import logging

from libs.log.log_clock import CATCH_UP_RATE, LogClock
from services.commitlog.engine.write.state import LogState

_log = logging.getLogger(__name__)


class StoreTimeWatch:
    """The watch of store time. It logs once when store time is too far ahead, and once when it no longer is."""

    def __init__(self, time: LogClock, state: LogState, *, ahead_ms_max: int) -> None:
        self._time = time
        self._state = state
        self._ahead_ms_max = ahead_ms_max
        self._is_told = False

    @property
    def ahead_ms(self) -> int:
        """Milliseconds by which the log's time is ahead of the clock, 0 if it is not."""
        return self._time.ahead_ms()

    def look(self) -> None:
        """Log a line when store time becomes too far ahead, and when it no longer is."""
        self._time.saw(self._state.last_store_time_ms)  # also in a follower
        self._time.look()
        ahead_ms = self.ahead_ms
        if ahead_ms > self._ahead_ms_max and not self._is_told:
            _log.warning(
                "the clock was set back, or was wrong before: the log's time is %.1f s ahead of it, and goes at %g of "
                "its speed until the clock has caught up, in about %.1f hours",
                ahead_ms / 1000,
                CATCH_UP_RATE,
                ahead_ms / 3_600_000 / (1 - CATCH_UP_RATE),
            )
        elif ahead_ms <= self._ahead_ms_max and self._is_told:
            _log.warning("store time follows the clock again")
        self._is_told = ahead_ms > self._ahead_ms_max
