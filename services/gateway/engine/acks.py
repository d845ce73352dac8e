# SPDX-License-Identifier: Apache-2.0
"""Acks: what many callers acknowledge, in few calls.

What comes in one turn of the loop goes together; while two calls are under way, the rest gathers for the next one.
Callers: the event loop's thread. Memory: the handles that wait, which is bounded by the calls that brought them.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

CALL_COUNT_MAX = 2
"""A second one is on its way while the answer of the first comes back."""

TOGETHER_SIZE_MAX = 256 << 10
"""Characters of handles that go together: nobody's nonsense makes a call too large that has others' handles, too."""

Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class _Waiting(Generic[Outcome]):
    handles: Sequence[str]
    outcomes: "asyncio.Future[Sequence[Outcome]]"

    @property
    def size(self) -> int:
        return sum(map(len, self.handles))


class Acks(Generic[Outcome]):
    """`settle` returns what became of each of at most `handle_count_max` handles."""

    def __init__(
        self, settle: Callable[[Sequence[str]], Awaitable[Sequence[Outcome]]], *, handle_count_max: int
    ) -> None:
        self._settle, self._handle_count_max = settle, handle_count_max
        self._waiting: deque[_Waiting[Outcome]] = deque()
        self._call_count = 0
        """Of calls that are under way or about to begin. Whoever ends one looks for what waits."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def ack(self, handles: Sequence[str]) -> Sequence[Outcome]:
        """Return what became of each handle. Raises what `settle` raises. Who goes meanwhile takes nothing back."""
        waiting = _Waiting[Outcome](handles, asyncio.get_running_loop().create_future())
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
                outcomes = await self._settle([handle for one in some for handle in one.handles])
            except Exception as error:  # noqa: BLE001 - whatever it is, those who wait have to hear of it
                for one in some:
                    if not one.outcomes.done():  # else its caller has gone
                        one.outcomes.set_exception(error)
                continue
            first = 0
            for one in some:
                if not one.outcomes.done():
                    one.outcomes.set_result(outcomes[first : first + len(one.handles)])
                first += len(one.handles)
        self._call_count -= 1

    def _some(self) -> list[_Waiting[Outcome]]:
        """Take what goes in the next call."""
        some: list[_Waiting[Outcome]] = []
        count = size = 0
        while self._waiting:
            count += len(self._waiting[0].handles)
            size += self._waiting[0].size
            if some and (count > self._handle_count_max or size > TOGETHER_SIZE_MAX):
                break
            some.append(self._waiting.popleft())
        return some
