# SPDX-License-Identifier: Apache-2.0
"""Calls to shards at the same time, in threads."""

from collections.abc import Callable, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from threading import Lock
from typing import Generic, TypeAlias, TypeVar

from reput_client.core.errors import ReputError

T = TypeVar("T")
Asked: TypeAlias = Callable[[], T]
"""A call that is ready to be made."""
SHARD_COUNT_MAX = 1000
"""Threads that there may be, and so shards that are asked at the same time. A thread is made when a call needs it."""


def together(calls: Mapping[str, Asked[T]]) -> dict[str, T | ReputError]:
    """Make the calls of all shards at the same time. Returns the result or the error of each."""

    def call(one: Asked[T]) -> T | ReputError:
        try:
            return one()
        except ReputError as error:
            return error

    with ThreadPoolExecutor(len(calls), "reput-shards") as pool:
        return dict(zip(calls, pool.map(call, calls.values()), strict=True))


class Works(Generic[T]):
    """Calls that go on while their results are taken, at most a single call for each shard. Used by several threads."""

    def __init__(self) -> None:
        self._pool = ThreadPoolExecutor(SHARD_COUNT_MAX, "reput-shards")
        self._is_closed = False
        self._futures: dict[str, Future[T]] = {}
        self._lock = Lock()

    @property
    def is_busy(self) -> bool:
        """Whether a call is under way, or not taken yet."""
        return bool(self._futures)

    def start(self, shard: str, call: Asked[T]) -> None:
        """Start the call of a shard, unless its last call is not taken yet, or after a close."""
        with self._lock:
            if shard not in self._futures and not self._is_closed:
                self._futures[shard] = self._pool.submit(call)

    def finished(self, timeout_s: float) -> list[tuple[str, T | ReputError]]:
        """Take the calls that have ended. Waits for the first of the calls under way, at most `timeout_s` seconds."""
        with self._lock:
            futures = list(self._futures.values())
        if not futures:
            return []
        wait(futures, timeout_s, FIRST_COMPLETED)
        found: list[tuple[str, T | ReputError]] = []
        with self._lock:
            done = [(shard, future) for shard, future in self._futures.items() if future.done()]
            for shard, _ in done:
                del self._futures[shard]
        for shard, future in done:
            error = future.exception()
            if error is not None and not isinstance(error, ReputError):
                raise error
            found.append((shard, future.result() if error is None else error))
        return found

    def close(self) -> None:
        """Wait until no call is under way."""
        with self._lock:
            self._is_closed = True
        self._pool.shutdown()
