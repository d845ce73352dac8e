# SPDX-License-Identifier: Apache-2.0
"""Calls to shards at the same time, as tasks."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeAlias, TypeVar

from reput_client.core.errors import ReputError

T = TypeVar("T")
Asked: TypeAlias = Callable[[], Awaitable[T]]
"""A call that is ready to be made."""


async def together(calls: Mapping[str, Asked[T]]) -> dict[str, T | ReputError]:
    """Make the calls of all shards at the same time. Returns the result or the error of each."""

    async def call(one: Asked[T]) -> T | ReputError:
        try:
            return await one()
        except ReputError as error:
            return error

    return dict(zip(calls, await asyncio.gather(*map(call, calls.values())), strict=True))


class AsyncWorks(Generic[T]):
    """Calls that go on while their results are taken, at most a single call for each shard."""

    def __init__(self) -> None:
        self._is_closed = False
        self._tasks: dict[str, asyncio.Task[T]] = {}

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way, or not taken yet."""
        return bool(self._tasks)

    def start(self, shard: str, call: Asked[T]) -> None:
        """Start the call of a shard, unless its last call is not taken yet, or after a close."""
        if shard not in self._tasks and not self._is_closed:
            self._tasks[shard] = asyncio.create_task(_run(call), name=f"shard {shard}")

    async def finished(self, timeout_s: float) -> list[tuple[str, T | ReputError]]:
        """Take the calls that have ended. Waits for the first of the calls under way, at most `timeout_s` seconds."""
        if not self._tasks:
            return []
        await asyncio.wait(self._tasks.values(), timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        found: list[tuple[str, T | ReputError]] = []
        for shard, task in list(self._tasks.items()):
            if task.done():
                del self._tasks[shard]
                error = task.exception()
                if error is not None and not isinstance(error, ReputError):
                    raise error
                found.append((shard, task.result() if error is None else error))
        return found

    async def close(self) -> None:
        """Wait until no call is under way."""
        self._is_closed = True
        if self._tasks:
            await asyncio.wait(self._tasks.values())


async def _run(call: Asked[T]) -> T:
    return await call()
