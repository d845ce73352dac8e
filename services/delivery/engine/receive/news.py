# SPDX-License-Identifier: Apache-2.0
"""News: wakes members of a group that wait for messages: few at a time, the longest wait first.

News wakes a single member of each filter. This member receives. It wakes the next member if it leaves messages behind,
or if it does not receive any more. So a message costs the same for any number of waiting members.
Invariant: news while no member waits ends the next wait at once. Callers: the event loop's thread.
Memory: an entry for each member that waits.
"""

import asyncio
from collections.abc import Collection

from services.delivery.engine.ports.messages import Wanted


class News:
    """The waiting members of a group and topic. `stop` it in the end."""

    def __init__(self) -> None:
        self._waiting: dict[Wanted, dict[asyncio.Future[bool], None]] = {}
        """Members by their filters, in the order in which they came."""
        self._quiet: set[Wanted] = set()
        """Filters without news since a member received with them."""
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at_s = 0.0
        """When the alarm rings. For timers that are due at once, uvloop's handles do not have the time."""

    @property
    def filters(self) -> Collection[Wanted]:
        """The filters of members that wait."""
        return list(self._waiting)

    def tell(self) -> None:
        """Wake a single member of each filter: there may be messages to receive."""
        self._quiet.clear()
        for waiting in self._waiting.values():
            first = next((one for one in waiting if not one.done()), None)
            if first is not None:
                first.set_result(True)

    def tell_all(self) -> None:
        """Wake all members, for a change that concerns each of them."""
        self._quiet.clear()
        for waiting in self._waiting.values():
            for one in waiting:
                _end(one, is_told=True)

    def tell_in(self, seconds: float) -> None:
        """Call `tell` after this time, or earlier if an earlier time is set already."""
        loop = asyncio.get_running_loop()
        at_s = loop.time() + max(seconds, 0.0)
        if self._alarm is not None:
            if self._alarm_at_s <= at_s:
                return
            self._alarm.cancel()
        self._alarm, self._alarm_at_s = loop.call_at(at_s, self._ring), at_s

    def receives(self, wanted: Wanted) -> None:
        """Record that a member with this filter receives, and so sees all messages that are there now."""
        self._quiet.add(wanted)

    async def wait(self, wanted: Wanted, seconds: float) -> bool:
        """Wait at most so long. Returns whether this member was woken: then it receives, or wakes another member."""
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
        """Wake all members, and set no alarm any more."""
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
