# SPDX-License-Identifier: Apache-2.0
"""Acks: combines the acknowledgements of many callers, and their changes of invisible times, into few calls.

Those of a turn of the event loop share a call. While two calls are under way, further ones wait and share the next
call.
Callers: the event loop's thread. Memory: the waiting entries, which is bounded by the requests that contain them.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

CALL_COUNT_MAX = 2
"""The second call is sent while the answer of the first is on its way back."""

TOGETHER_SIZE_MAX = 256 << 10
"""Characters of the handles of a shared call. So a caller's oversized handles can't make others' call too large."""

Entry = TypeVar("Entry")
Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class _Waiting(Generic[Entry, Outcome]):
    entries: Sequence[Entry]
    size: int
    outcomes: "asyncio.Future[Sequence[Outcome]]"


class Acks(Generic[Entry, Outcome]):
    """The combiner of entries that settle. `settle` returns an outcome for each of at most `entry_count_max` entries.

    `size_of` returns the characters of an entry's handle.
    """

    def __init__(
        self,
        settle: Callable[[Sequence[Entry]], Awaitable[Sequence[Outcome]]],
        *,
        entry_count_max: int,
        size_of: Callable[[Entry], int],
    ) -> None:
        self._settle, self._entry_count_max, self._size_of = settle, entry_count_max, size_of
        self._waiting: deque[_Waiting[Entry, Outcome]] = deque()
        self._call_count = 0
        """Calls that are under way or about to begin. When a call ends, its task sends the waiting entries."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def settle(self, entries: Sequence[Entry]) -> Sequence[Outcome]:
        """Return the outcome of each entry. Raises the errors of the call.

        The entries of a cancelled caller are still sent.
        """
        size = sum(map(self._size_of, entries))
        waiting = _Waiting[Entry, Outcome](entries, size, asyncio.get_running_loop().create_future())
        self._waiting.append(waiting)
        if len(self._waiting) == 1 and self._call_count < CALL_COUNT_MAX:
            self._call_count += 1
            task = asyncio.create_task(self._settle_all(), name="acks")
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        return await waiting.outcomes

    async def _settle_all(self) -> None:
        while some := self._some():
            try:
                outcomes = await self._settle([entry for one in some for entry in one.entries])
            except Exception as error:  # noqa: BLE001 - the waiting callers must get any error
                for one in some:
                    if not one.outcomes.done():  # else its caller was cancelled
                        one.outcomes.set_exception(error)
                continue
            first = 0
            for one in some:
                if not one.outcomes.done():
                    one.outcomes.set_result(outcomes[first : first + len(one.entries)])
                first += len(one.entries)
        self._call_count -= 1

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
