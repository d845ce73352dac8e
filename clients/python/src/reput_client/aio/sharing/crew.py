# SPDX-License-Identifier: Apache-2.0
"""AsyncCrew and AsyncTicker: work beside a share consumer's own, as tasks."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

from reput_client.core.sharing.holding import Received
from reput_client.core.telemetry.log import log

Handler: TypeAlias = Callable[[Received], Awaitable[object]]
"""What works a message off."""


class AsyncFlag(asyncio.Event):
    """What is set once, and can be waited for."""

    async def wait_for(self, timeout_s: float) -> None:
        """Wait until it is set, at most so long."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.wait()


class AsyncCrew:
    """At most `size` works at once. `end` it."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._tasks: set[asyncio.Task[None]] = set()
        self._over = asyncio.Event()

    async def has_room(self, timeout_s: float) -> bool:
        """Return whether fewer than all work, after `timeout_s` at the latest."""
        if len(self._tasks) >= self._size:
            await asyncio.wait(self._tasks, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        self._look_at_ended()
        return len(self._tasks) < self._size

    def start(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """Begin a work."""
        self._tasks.add(asyncio.create_task(work(*arguments)))

    async def end(self) -> None:
        """Wait until nobody works any more."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._look_at_ended()
        self._over.set()

    async def wait_over(self, timeout_s: float) -> None:
        """Wait until `end` has ended, at most so long, and not at all where one of the works waits."""
        if asyncio.current_task() not in self._tasks:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._over.wait()
            except TimeoutError:
                log.warning("callbacks of a share consumer go on after %s s", timeout_s)

    def _look_at_ended(self) -> None:
        """Forget works that have ended, and log those that failed: nobody else asks how they ended."""
        ended = {task for task in self._tasks if task.done()}
        self._tasks -= ended
        for task in ended:
            if not task.cancelled() and (error := task.exception()) is not None:
                log.error("a work of a share consumer failed", exc_info=error)


class AsyncTicker:
    """Does something again and again until it is closed. It must not raise."""

    def __init__(self, interval_s: float, tick: Callable[[], Awaitable[None]]) -> None:
        self._interval_s, self._tick = interval_s, tick
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """End it. May be repeated."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self._tick()
