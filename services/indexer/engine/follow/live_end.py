# SPDX-License-Identifier: Apache-2.0
"""LiveEnd: whether the Indexer hears its log, which sends a step about every second.

While the log is silent, its new records are unknown here. Calls that wait for new records are refused after a while, so
that clients with several addresses continue at another Indexer. Indexed records are still answered.
Invariants: a step of the log ends the silence at once; calls that wait when the log falls silent are woken once, and
check again.
Callers: the event loop's thread; `silent_ms` and `is_away`: any thread.
"""

import asyncio
import logging
from collections.abc import Callable

from libs.machine.clock import Clock
from libs.machine.loop import SupervisedLoop
from libs.requests.errors import DependencyUnavailable
from services.indexer.engine.follow.long_poll import LongPolls

_log = logging.getLogger(__name__)


class LiveEnd:
    """The watch over the log. `loop` runs it. `why` returns the known reason. A `silence_ms` of 0 refuses no call."""

    def __init__(self, clock: Clock, polls: LongPolls, *, silence_ms: int, why: Callable[[], str]) -> None:
        self._clock, self._polls, self._why = clock, polls, why
        self._silence_ms = silence_ms
        self._heard_at_s = clock.monotonic_s()
        self._is_told = False
        self.loop = SupervisedLoop("live end", self._watch)

    def start(self) -> None:
        """Begin to watch. The log was not heard yet. Its silence begins now."""
        self._heard_at_s = self._clock.monotonic_s()
        if self._silence_ms:
            self.loop.start()

    def hear(self) -> None:
        """Record that a step of the log arrived, or was entered."""
        self._heard_at_s = self._clock.monotonic_s()
        if self._is_told:
            self._is_told = False
            _log.info("the log is heard again: readers may wait for what is new")

    @property
    def silent_ms(self) -> int:
        """Milliseconds since the log was last heard."""
        return max(0, round((self._clock.monotonic_s() - self._heard_at_s) * 1000))

    @property
    def is_away(self) -> bool:
        """Whether calls that wait for new records are refused."""
        return 0 < self._silence_ms <= self.silent_ms

    def check(self) -> None:
        """Raise DependencyUnavailable if calls should not wait here for new records."""
        if self.is_away:
            raise DependencyUnavailable("commitlog", self._text())

    def _text(self) -> str:
        why = self._why()
        return f"the Indexer has heard nothing of it for {self.silent_ms // 1000} s{': ' if why else ''}{why}"

    async def _watch(self) -> None:
        """Wait until the silence may be too long, and end all waits if it is."""
        left_ms = self._silence_ms - self.silent_ms
        await asyncio.sleep((left_ms if left_ms > 0 else self._silence_ms) / 1000)
        if self.is_away and not self._is_told:
            self._is_told = True
            _log.warning("readers that wait for what is new are refused: %s", self._text())
            self._polls.look_again()
