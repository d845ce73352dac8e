# SPDX-License-Identifier: Apache-2.0
"""Trouble: logs work that fails repeatedly, until it succeeds.

Invariants: the first failure in a row is logged, then at most a line per minute, and a line when the work succeeds
again, at the level of the line before it. Before the first success, failures of `START_S` are part of a start, and
logged at INFO. All others are warnings.
An unexpected error is a warning with its traceback, at most once a minute besides the other lines.
Callers: a single thread; the times are times of the running event loop unless `now_s` is given.
"""

import asyncio
import logging
from collections.abc import Callable, Hashable

START_S = 30.0
"""Time for which failures are part of a start, before the first success."""

AGAIN_S = 60.0
"""Minimum time between two lines."""

_log = logging.getLogger(__name__)


class Trouble:
    """The failures of some work, which may have several parts, such as the readers of many queues.

    A line covers the failures of all parts. `name` is the name of the work in the line about its success.
    """

    def __init__(self, name: str, *, now_s: Callable[[], float] | None = None) -> None:
        self.name = name
        self._now_s = now_s
        self._failing: set[Hashable] = set()
        self._went_well = False
        self._count = 0
        self._began_s = 0.0
        self._told_s: float | None = None
        self._told_level = logging.INFO
        self._traced_s: float | None = None

    def failed(self, what: str, error: BaseException, *, is_expected: bool = True, part: Hashable = None) -> None:
        """Count a failure of a part, and log it when a line is due. The line is `what` and the text of the error."""
        now_s = self._now()
        if not self._failing:
            self._count, self._began_s, self._told_s, self._traced_s = 0, now_s, None, None
        self._failing.add(part)
        self._count += 1
        is_start = not self._went_well and now_s - self._began_s <= START_S
        level = logging.INFO if is_start and is_expected else logging.WARNING
        if not self._is_due(now_s, level, is_expected=is_expected):
            return
        self._told_s, self._told_level = now_s, level
        text = str(error) or type(error).__name__
        if self._count > 1:
            text += f" ({self._count} failures in {now_s - self._began_s:.0f} s)"
        _log.log(level, "%s: %s", what, text, exc_info=None if is_expected else error)

    def ended(self, *, part: Hashable = None) -> None:
        """Record the success of a part. When no part fails any more, the trouble has ended, and a line is logged."""
        self._went_well = True
        if self._failing:
            self._failing.discard(part)
            if not self._failing:
                now_s = self._now()
                count = f"{self._count} failure" + "s" * (self._count != 1)
                lasted_s = now_s - self._began_s
                _log.log(self._told_level, "%s works again after %s in %.0f s", self.name, count, lasted_s)

    def leave(self, part: Hashable) -> None:
        """Forget a stopped part: it has not succeeded, and does not fail any more."""
        self._failing.discard(part)

    def _is_due(self, now_s: float, level: int, *, is_expected: bool) -> bool:
        if not is_expected and (self._traced_s is None or now_s - self._traced_s >= AGAIN_S):
            self._traced_s = now_s
            return True
        if self._told_s is None or now_s - self._told_s >= AGAIN_S:
            return True
        return level > self._told_level  # the start is over

    def _now(self) -> float:
        return asyncio.get_running_loop().time() if self._now_s is None else self._now_s()
