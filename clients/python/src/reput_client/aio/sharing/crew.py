# SPDX-License-Identifier: Apache-2.0
"""AsyncCrew and AsyncTicker: the background work of a share consumer, as tasks."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeAlias

from reput_client.core.sharing.holding import Received
from reput_client.core.telemetry.log import log

Handler: TypeAlias = Callable[[Received], Awaitable[object]]
"""The callback that processes a message."""


class AsyncFlag(asyncio.Event):
    """A flag that is set a single time, and that can be waited for."""

    async def wait_for(self, timeout_s: float) -> None:
        """Wait until it is set, at most `timeout_s` seconds."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self.wait()


class AsyncCrew:
    """Runs at most `size` works at the same time, as tasks. Call `end` when done."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._tasks: set[asyncio.Task[None]] = set()
        self._room, self._over = asyncio.Event(), asyncio.Event()

    async def has_room(self, timeout_s: float) -> bool:
        """Return whether fewer than `size` works run. Waits for this, at most `timeout_s` seconds."""
        if len(self._tasks) >= self._size:
            self._room.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(timeout_s):
                    await self._room.wait()
        return len(self._tasks) < self._size

    def start(self, work: Callable[..., Coroutine[Any, Any, None]], *arguments: Any) -> None:
        """Start a work."""
        task = asyncio.create_task(work(*arguments))
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    async def end(self) -> None:
        """Wait until no work runs any more."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        self._over.set()

    async def wait_over(self, timeout_s: float) -> None:
        """Wait until `end` has ended, at most `timeout_s` seconds. A work of the crew itself does not wait."""
        if asyncio.current_task() not in self._tasks:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._over.wait()
            except TimeoutError:
                log.warning("callbacks of a share consumer go on after %s s", timeout_s)

    def _ended(self, task: asyncio.Task[None]) -> None:
        """Drop a work that has ended. Log a failed work: no other code asks for its result."""
        self._tasks.discard(task)
        self._room.set()
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a work of a share consumer failed", exc_info=error)


class AsyncTicker:
    """Calls a function at an interval until it is closed. The function must not raise."""

    def __init__(self, interval_s: float, tick: Callable[[], Awaitable[None]]) -> None:
        self._interval_s, self._tick = interval_s, tick
        self._task = asyncio.create_task(self._run())

    async def close(self) -> None:
        """End the calls. May be repeated."""
        self._task.cancel()
        await asyncio.wait([self._task])

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self._tick()
