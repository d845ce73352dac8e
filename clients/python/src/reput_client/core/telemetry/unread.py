# SPDX-License-Identifier: Apache-2.0
"""Futures that record whether the program asks for an outcome.

Failed messages whose futures were not asked are counted, and logged when a producer flushes or closes. A program that
waits for an outcome ends the linger of the message's batch.
"""

import threading
from collections.abc import Callable
from typing import Any, TypeAlias

from reput_client.core.telemetry.log import log

AnyFuture: TypeAlias = Any
"""A future of threads or of asyncio, with AskedFuture mixed in."""


class Round:
    """The failed messages since the last log line. Used by several threads."""

    def __init__(self) -> None:
        self.count = 0
        self.first: Exception | None = None
        self._lock = threading.Lock()

    def add(self, error: Exception) -> None:
        """Count a message that failed."""
        with self._lock:
            self.count += 1
            self.first = self.first if self.count > 1 else error

    def take(self, count: int) -> None:
        """Subtract messages whose future was asked."""
        with self._lock:
            self.count -= count


class Unread:
    """The failed messages of a producer whose futures were not asked."""

    def __init__(self) -> None:
        self.round = Round()

    def tell(self) -> None:
        """Log the number of failed messages whose futures were not asked. Each message is logged a single time."""
        told, self.round = self.round, Round()
        if told.count > 0:
            log.warning(
                "%d messages of a producer failed, and their futures have not been asked yet; the first failure: %s",
                told.count,
                told.first,
            )


class AskedFuture:
    """A mix-in for futures of messages: it records whether the program asks for the outcome."""

    _is_asked = False
    _unread: tuple[Round, int] | None = None
    hurry: Callable[[], None] | None = None
    """Ends the linger of the last batch that has a message of this future."""

    def ask(self) -> None:
        """Record that the program asks, before or after the future is done."""
        self._is_asked = True
        if self._unread is not None:
            (round_, count), self._unread = self._unread, None
            round_.take(count)

    def ask_now(self: Any) -> None:
        """Record that the program waits from now on: a batch that still collects messages is sent."""
        self.ask()
        if self.hurry is not None and not self.done():
            hurry, self.hurry = self.hurry, None
            hurry()

    def fail_unread(self, round_: Round, error: Exception) -> None:
        """Count a message that is about to fail, unless the program has asked."""
        if not self._is_asked:
            known, count = self._unread or (round_, 0)
            self._unread = (round_, count + 1 if known is round_ else 1)
            round_.add(error)

    def watch(self: Any, callback: Callable[[Any], None]) -> None:
        """Add a callback without recording that the program asks."""
        super().add_done_callback(callback)  # type: ignore[misc]

    def look(self: Any) -> Any:
        """Return the exception or the result of a done future, without recording that the program asks."""
        return super().exception() or super().result()  # type: ignore[misc]
