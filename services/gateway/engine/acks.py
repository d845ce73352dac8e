# SPDX-License-Identifier: Apache-2.0
"""Acks: combines the acknowledgements of many callers into few calls.

Acknowledgements of a turn of the event loop share a call. While two calls are under way, further acknowledgements wait
and share the next call.
Callers: the event loop's thread. Memory: the waiting handles, which is bounded by the requests that contain them.
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

Outcome = TypeVar("Outcome")


@dataclass(frozen=True)
class _Waiting(Generic[Outcome]):
    handles: Sequence[str]
    outcomes: "asyncio.Future[Sequence[Outcome]]"

    @property
    def size(self) -> int:
        return sum(map(len, self.handles))


class Acks(Generic[Outcome]):
    """The combiner of acknowledgements. `settle` returns an outcome for each of at most `handle_count_max` handles."""

    def __init__(
        self, settle: Callable[[Sequence[str]], Awaitable[Sequence[Outcome]]], *, handle_count_max: int
    ) -> None:
        self._settle, self._handle_count_max = settle, handle_count_max
        self._waiting: deque[_Waiting[Outcome]] = deque()
        self._call_count = 0
        """Calls that are under way or about to begin. When a call ends, its task sends the waiting acknowledgements."""
        self._tasks: set[asyncio.Task[None]] = set()

    async def ack(self, handles: Sequence[str]) -> Sequence[Outcome]:
        """Return the outcome of each handle. Raises the errors of `settle`.

        The handles of a cancelled caller are still sent.
        """
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
            except Exception as error:  # noqa: BLE001 - the waiting callers must get any error
                for one in some:
                    if not one.outcomes.done():  # else its caller was cancelled
                        one.outcomes.set_exception(error)
                continue
            first = 0
            for one in some:
                if not one.outcomes.done():
                    one.outcomes.set_result(outcomes[first : first + len(one.handles)])
                first += len(one.handles)
        self._call_count -= 1

    def _some(self) -> list[_Waiting[Outcome]]:
        """Take the waiting acknowledgements for the next call."""
        some: list[_Waiting[Outcome]] = []
        count = size = 0
        while self._waiting:
            count += len(self._waiting[0].handles)
            size += self._waiting[0].size
            if some and (count > self._handle_count_max or size > TOGETHER_SIZE_MAX):
                break
            some.append(self._waiting.popleft())
        return some
