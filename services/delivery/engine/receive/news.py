# SPDX-License-Identifier: Apache-2.0
"""News: wakes members of a group that wait for messages, as few as will do, those that wait longest first.

News wakes one member of each filter. A member that was woken receives; one that leaves more behind tells the next one,
and so does one that was woken and does not receive any more. So a message costs the same however many members wait.
Invariants: news that no member waits for ends the next wait at once. Callers: the event loop's thread.
Memory: an entry for each member that waits.
"""

import asyncio
from collections.abc import Collection

from services.delivery.engine.ports.messages import Wanted


class News:
    """Of one group and topic. `stop` it in the end."""

    def __init__(self) -> None:
        self._waiting: dict[Wanted, dict[asyncio.Future[bool], None]] = {}
        """Members by their filters, in the order in which they came."""
        self._quiet: set[Wanted] = set()
        """Filters without news since a member received with them."""
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at_s = 0.0
        """When the alarm rings. uvloop's handles of timers that are due at once do not tell."""

    @property
    def filters(self) -> Collection[Wanted]:
        """The filters of members that wait."""
        return list(self._waiting)

    def tell(self) -> None:
        """Wake one member of each filter: there may be something to receive."""
        self._quiet.clear()
        for waiting in self._waiting.values():
            first = next((one for one in waiting if not one.done()), None)
            if first is not None:
                first.set_result(True)

    def tell_all(self) -> None:
        """Wake all members: something has changed for each of them."""
        self._quiet.clear()
        for waiting in self._waiting.values():
            for one in waiting:
                _end(one, is_told=True)

    def tell_in(self, seconds: float) -> None:
        """Tell after so long, or sooner if that was said before."""
        loop = asyncio.get_running_loop()
        at_s = loop.time() + max(seconds, 0.0)
        if self._alarm is not None:
            if self._alarm_at_s <= at_s:
                return
            self._alarm.cancel()
        self._alarm, self._alarm_at_s = loop.call_at(at_s, self._ring), at_s

    def receives(self, wanted: Wanted) -> None:
        """Take note that a member receives, and so comes across all that is there now."""
        self._quiet.add(wanted)

    async def wait(self, wanted: Wanted, seconds: float) -> bool:
        """Wait for news, at most so long. Returns whether this member was told: then it receives, or tells on."""
        if wanted not in self._quiet:
            return True
        loop = asyncio.get_running_loop()
        told: asyncio.Future[bool] = loop.create_future()
        timer = loop.call_later(seconds, _end, told)
        waiting = self._waiting.setdefault(wanted, {})
        waiting[told] = None
        try:
            return await told
        except asyncio.CancelledError:
            if not told.cancelled() and told.done() and told.result():
                self.tell()
            raise
        finally:
            timer.cancel()
            del waiting[told]
            if not waiting and self._waiting.get(wanted) is waiting:
                del self._waiting[wanted]

    def stop(self) -> None:
        """Wake all, and ring no more."""
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self.tell_all()

    def _ring(self) -> None:
        self._alarm = None
        self.tell()


def _end(told: asyncio.Future[bool], is_told: bool = False) -> None:
    if not told.done():
        told.set_result(is_told)
