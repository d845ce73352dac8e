# SPDX-License-Identifier: Apache-2.0
"""Crew and Ticker: the background work of a share consumer, in threads."""

import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeAlias

from reput_client.core.sharing.holding import Received
from reput_client.core.telemetry.log import log

Handler: TypeAlias = Callable[[Received], object]
"""The callback that processes a message."""


class Flag(threading.Event):
    """A flag that is set a single time, and that can be waited for."""

    def wait_for(self, timeout_s: float) -> None:
        """Wait until it is set, at most `timeout_s` seconds."""
        self.wait(timeout_s)


class Crew:
    """Runs at most `size` works at the same time, in threads. Call `end` when done."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._threads: set[int] = set()
        self._pool = ThreadPoolExecutor(size, "reput-share-consumer", self._enter)
        self._works: set[Future[None]] = set()
        self._room, self._over = threading.Event(), threading.Event()

    def has_room(self, timeout_s: float) -> bool:
        """Return whether fewer than `size` works run. Waits for this, at most `timeout_s` seconds."""
        self._room.clear()
        if len(self._works) >= self._size:
            self._room.wait(timeout_s)
        return len(self._works) < self._size

    def start(self, work: Callable[..., None], *arguments: Any) -> None:
        """Start a work."""
        future = self._pool.submit(work, *arguments)
        self._works.add(future)
        future.add_done_callback(self._ended)

    def end(self) -> None:
        """Wait until no work runs any more."""
        self._pool.shutdown()
        self._over.set()

    def wait_over(self, timeout_s: float) -> None:
        """Wait until `end` has ended, at most `timeout_s` seconds. A work of the crew itself does not wait."""
        if threading.get_ident() not in self._threads and not self._over.wait(timeout_s):
            log.warning("callbacks of a share consumer go on after %s s", timeout_s)

    def _ended(self, work: Future[None]) -> None:
        """Drop a work that has ended. Log a failed work: no other code asks for its result."""
        self._works.discard(work)
        self._room.set()
        if (error := work.exception()) is not None:
            log.error("a work of a share consumer failed", exc_info=error)

    def _enter(self) -> None:
        self._threads.add(threading.get_ident())


class Ticker:
    """Calls a function at an interval until it is closed. The function must not raise."""

    def __init__(self, interval_s: float, tick: Callable[[], None]) -> None:
        self._interval_s, self._tick = interval_s, tick
        self._closed = threading.Event()
        threading.Thread(target=self._run, name="reput-share-consumer-ticker", daemon=True).start()

    def close(self) -> None:
        """End the calls. May be repeated."""
        self._closed.set()

    def _run(self) -> None:
        while not self._closed.wait(self._interval_s):
            self._tick()
