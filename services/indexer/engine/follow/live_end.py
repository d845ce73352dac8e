# SPDX-License-Identifier: Apache-2.0
"""LiveEnd: whether the Indexer hears its log, which says something every second or so.

While it does not, what is new in the log is not known here: who waits for it is refused after a while, so that clients
with several addresses go on at another Indexer. What is indexed is answered as ever.
Invariants: a word of the log counts at once; who waits when the log falls silent is woken once, and looks again.
Callers: the event loop's thread, but for `silent_ms` and `is_away`, from any.
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
    """`loop` watches it. `why` tells what is known of the reason; a `silence_ms` of 0 refuses nobody."""

    def __init__(self, clock: Clock, polls: LongPolls, *, silence_ms: int, why: Callable[[], str]) -> None:
        self._clock, self._polls, self._why = clock, polls, why
        self._silence_ms = silence_ms
        self._heard_at_s = clock.monotonic_s()
        self._is_told = False
        self.loop = SupervisedLoop("live end", self._watch)

    def start(self) -> None:
        """Begin to watch. The log was not heard yet, and has all of the time from now on."""
        self._heard_at_s = self._clock.monotonic_s()
        if self._silence_ms:
            self.loop.start()

    def hear(self) -> None:
        """Note that the log has said something, or that something of it was entered."""
        self._heard_at_s = self._clock.monotonic_s()
        if self._is_told:
            self._is_told = False
            _log.info("the log is heard again: readers may wait for what is new")

    @property
    def silent_ms(self) -> int:
        """For how long nothing was heard."""
        return max(0, round((self._clock.monotonic_s() - self._heard_at_s) * 1000))

    @property
    def is_away(self) -> bool:
        """Whether who waits for what is new is refused."""
        return 0 < self._silence_ms <= self.silent_ms

    def check(self) -> None:
        """Raise DependencyUnavailable if nobody should wait here for what is new."""
        if self.is_away:
            raise DependencyUnavailable("commitlog", self._text())

    def _text(self) -> str:
        why = self._why()
        return f"the Indexer has heard nothing of it for {self.silent_ms // 1000} s{': ' if why else ''}{why}"

    async def _watch(self) -> None:
        """Wait until the silence may be too long, and end the waits of all if it is."""
        left_ms = self._silence_ms - self.silent_ms
        await asyncio.sleep((left_ms if left_ms > 0 else self._silence_ms) / 1000)
        if self.is_away and not self._is_told:
            self._is_told = True
            _log.warning("readers that wait for what is new are refused: %s", self._text())
            self._polls.look_again()
