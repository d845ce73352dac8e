# SPDX-License-Identifier: Apache-2.0
"""SharedCalls: combines the entries of many callers, such as acknowledgements and sent messages, into few calls.

The entries of a turn of the event loop share a call. While two calls are under way, further entries wait and share the
next call.
Callers: the event loop's thread. Memory: the waiting entries, which is bounded by the requests that contain them.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from msgspec import Struct

CALL_COUNT_MAX = 2
"""The second call is sent while the answer of the first is on its way back."""

TOGETHER_SIZE_MAX = 256 << 10
"""Size of the entries of a shared call. So a caller's oversized entries can't make others' call too large."""

Entry = TypeVar("Entry")
Outcome = TypeVar("Outcome")


class _Waiting(Struct, Generic[Entry, Outcome]):
    entries: Sequence[Entry]
    size: int
    outcomes: "asyncio.Future[Sequence[Outcome]]"


class SharedCalls(Generic[Entry, Outcome]):
    """The combiner of entries. `call` returns an outcome for each of at most `entry_count_max` entries.

    `size_of` returns the size of an entry. `may_be_split` returns whether a failed call had no effect and may have
    failed because of some of its entries: then the entries of each caller are sent in a call of their own.
    """

    def __init__(
        self,
        call: Callable[[Sequence[Entry]], Awaitable[Sequence[Outcome]]],
        *,
        entry_count_max: int,
        size_of: Callable[[Entry], int],
        may_be_split: Callable[[Exception], bool] = lambda _: False,
    ) -> None:
        self._call, self._entry_count_max, self._size_of = call, entry_count_max, size_of
        self._may_be_split = may_be_split
        self._waiting: deque[_Waiting[Entry, Outcome]] = deque()
        self._call_count = 0
        """Calls that are under way or about to begin. When a call ends, its task sends the waiting entries."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def outcomes(self, entries: Sequence[Entry]) -> Sequence[Outcome]:
        """Return the outcome of each entry. Raises the errors of the call.

        The entries of a cancelled caller are still sent.
        """
        future = asyncio.get_running_loop().create_future()
        waiting: _Waiting[Entry, Outcome] = _Waiting(entries, sum(map(self._size_of, entries)), future)
        self._waiting.append(waiting)
        if len(self._waiting) == 1 and self._call_count < CALL_COUNT_MAX:
            self._call_count += 1
            task = asyncio.create_task(self._send_all(), name="shared calls")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await waiting.outcomes

    async def _send_all(self) -> None:
        while some := self._some():
            await self._send(some)
        self._call_count -= 1

    async def _send(self, some: list[_Waiting[Entry, Outcome]]) -> None:
        """Send the entries of some callers in a single call, and answer the callers."""
        try:
            outcomes = await self._call([entry for one in some for entry in one.entries])
        except Exception as error:  # noqa: BLE001 - the waiting callers must get any error
            if len(some) > 1 and self._may_be_split(error):
                await asyncio.gather(*(self._send([one]) for one in some))
                return
            for one in some:
                if not one.outcomes.done():  # else its caller was cancelled
                    one.outcomes.set_exception(error)
            return
        first = 0
        for one in some:
            if not one.outcomes.done():
                one.outcomes.set_result(outcomes[first : first + len(one.entries)])
            first += len(one.entries)

    def _some(self) -> list[_Waiting[Entry, Outcome]]:
        """Take the waiting entries for the next call."""
        some: list[_Waiting[Entry, Outcome]] = []
        count = size = 0
        while self._waiting:
            count += len(self._waiting[0].entries)
            size += self._waiting[0].size
            if some and (count > self._entry_count_max or size > TOGETHER_SIZE_MAX):
                break
            some.append(self._waiting.popleft())
        return some
