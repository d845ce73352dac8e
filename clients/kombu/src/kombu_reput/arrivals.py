# SPDX-License-Identifier: Apache-2.0
"""Arrivals: messages that wait in this process for the program's next `drain_events`, or for its event loop."""

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Arrival:
    """A message for a consumer of a channel."""

    channel: Any
    consumer_tag: str
    queue: str
    raw: dict[str, Any]


class Arrivals:
    """The messages that wait, and the failure of a thread that receives. Callers: any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._waiting: deque[Arrival] = deque()
        self._failure: Exception | None = None
        self._bell: tuple[int, int] | None = None
        """Both ends of a pipe that has a byte when something is to be taken."""

    def fileno(self) -> int:
        """Return the descriptor that an event loop waits for."""
        with self._changed:
            if self._bell is None:
                self._bell = os.pipe()
                for end in self._bell:
                    os.set_blocking(end, False)
                self._ring()
            return self._bell[0]

    def silence(self) -> None:
        """Take the bytes out of the pipe."""
        with contextlib.suppress(BlockingIOError, OSError):
            while self._bell is not None and os.read(self._bell[0], 4096):
                pass

    def close(self) -> None:
        """Close the pipe."""
        with self._changed:
            bell, self._bell = self._bell, None
        for end in bell or ():
            os.close(end)

    def put(self, arrival: Arrival, *, is_first: bool = False) -> None:
        """Add a message."""
        with self._changed:
            if is_first:
                self._waiting.appendleft(arrival)
            else:
                self._waiting.append(arrival)
            self._ring()
            self._changed.notify_all()

    def fail(self, failure: Exception) -> None:
        """Let the next `take` raise a failure."""
        with self._changed:
            self._failure = failure
            self._ring()
            self._changed.notify_all()

    def take(self, timeout_s: float | None) -> Arrival | None:
        """Return the next message, None after the time. Raises the failure of a thread."""
        end_s = None if timeout_s is None else time.monotonic() + timeout_s
        with self._changed:
            while not self._waiting:
                failure, self._failure = self._failure, None
                if failure is not None:
                    raise failure
                if end_s is not None and time.monotonic() >= end_s:
                    return None
                self._changed.wait(None if end_s is None else end_s - time.monotonic())
            arrival = self._waiting.popleft()
            self._changed.notify_all()
            return arrival

    def _ring(self) -> None:
        if self._bell is not None:
            with contextlib.suppress(BlockingIOError):  # the pipe is full, which rings, too
                os.write(self._bell[1], b"!")

    def remove(self, channel: object, consumer_tag: str) -> list[Arrival]:
        """Take the messages of a consumer out, and return them."""
        with self._changed:
            found = [one for one in self._waiting if one.channel is channel and one.consumer_tag == consumer_tag]
            self._waiting = deque(one for one in self._waiting if one not in found)
            self._changed.notify_all()
        return found

    def count(self, channel: object) -> int:
        """Return the number of messages of a channel that wait."""
        return sum(one.channel is channel for one in list(self._waiting))

    def wake(self) -> None:
        """Let threads that wait for room look again."""
        with self._changed:
            self._changed.notify_all()

    def wait_for(self, condition: Callable[[], bool], timeout_s: float) -> bool:
        """Wait until a condition holds, which changes with `wake`."""
        with self._changed:
            return self._changed.wait_for(condition, timeout_s)
