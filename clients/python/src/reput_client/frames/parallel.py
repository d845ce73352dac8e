# SPDX-License-Identifier: Apache-2.0
"""Parallel: parts are read in threads, and their batches come out in the order of the parts.

Invariants: the batches of a part keep their order. A thread takes the first part that no thread has, so the part whose
turn it is always has a thread. Batches that wait hold at most `window_bytes` bytes and a batch of the part whose turn
it is: without that batch the read would stand still. No I/O of its own.
"""

import atexit
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Generic, TypeVar

import pyarrow as pa

P = TypeVar("P")


class Stopped(Exception):
    """The consumer has stopped. Ends a thread."""


class Parallel(Generic[P]):
    """A single run over the parts. `read` yields the batches of a part; `cut_off` ends its calls that are waiting."""

    def __init__(
        self,
        parts: Sequence[P],
        read: Callable[[P], Iterator[pa.RecordBatch]],
        *,
        thread_count: int,
        window_bytes: int,
        cut_off: Callable[[], None],
    ) -> None:
        self._parts, self._read, self._cut_off = parts, read, cut_off
        self._window_bytes = window_bytes
        self._changed = threading.Condition()
        self._waiting: dict[int, deque[pa.RecordBatch]] = {}
        self._waiting_bytes = 0
        self._outcomes: dict[int, BaseException | None] = {}
        """The parts that are read to their end, or to an error."""
        self._taken_count = self._turn = 0
        _unclosed.add(self)
        self._is_stopped = threading.Event()
        self._threads = [
            threading.Thread(target=self._work, name=f"reput-frames-{number}", daemon=True)
            for number in range(min(thread_count, len(parts)))
        ]

    def batches(self) -> Iterator[tuple[int, pa.RecordBatch]]:
        """Yield all batches with the number of their part. Raises what `read` raises, after the batches before it."""
        try:
            for thread in self._threads:
                thread.start()
            for turn in range(len(self._parts)):
                while (batch := self._next(turn)) is not None:
                    yield turn, batch
        finally:
            self.close()

    def wait(self, seconds: float) -> None:
        """Wait, in a thread. Raises Stopped when the consumer stops."""
        if self._is_stopped.wait(seconds):
            raise Stopped

    def close(self) -> None:
        """End all threads and calls. May be repeated, also by the collector of garbage in any thread."""
        with self._changed:
            self._is_stopped.set()
            self._changed.notify_all()
        self._cut_off()
        if threading.current_thread() in self._threads:  # which may hold the lock that the others wait for
            return
        for thread in self._threads:
            if thread.ident is not None:
                thread.join()
        self._waiting.clear()

    def _next(self, turn: int) -> pa.RecordBatch | None:
        """Return the next batch of the part whose turn it is, None at its end."""
        with self._changed:
            if self._turn != turn:
                self._turn = turn
                self._changed.notify_all()
            self._changed.wait_for(
                lambda: self._is_stopped.is_set() or self._waiting.get(turn) or turn in self._outcomes
            )
            if self._is_stopped.is_set():
                raise ValueError("the read was closed")
            if self._waiting.get(turn):
                batch = self._waiting[turn].popleft()
                self._waiting_bytes -= batch.nbytes
                self._changed.notify_all()
                return batch
            self._waiting.pop(turn, None)
            error = self._outcomes.pop(turn)
        if error is not None:
            raise error
        return None

    def _work(self) -> None:
        while (number := self._take()) is not None:
            error: BaseException | None = None
            try:
                for batch in self._read(self._parts[number]):
                    self._put(number, batch)
            except BaseException as raised:  # noqa: BLE001 - the consumer raises it
                error = raised
            with self._changed:
                self._outcomes[number] = error
                self._changed.notify_all()
            if error is not None:
                return

    def _take(self) -> int | None:
        """Return the number of the next part, None if there is none, or after an error."""
        with self._changed:
            has_failed = any(error is not None for error in self._outcomes.values())
            if self._is_stopped.is_set() or has_failed or self._taken_count == len(self._parts):
                return None
            self._taken_count += 1
            return self._taken_count - 1

    def _put(self, number: int, batch: pa.RecordBatch) -> None:
        """Let a batch wait for the consumer, as soon as there is room. Raises Stopped."""
        size_bytes = batch.nbytes
        with self._changed:
            waiting = self._waiting.setdefault(number, deque())

            def has_room() -> bool:
                is_next = number == self._turn and not waiting
                return is_next or self._waiting_bytes + size_bytes <= self._window_bytes

            self._changed.wait_for(lambda: self._is_stopped.is_set() or has_room())
            if self._is_stopped.is_set():
                raise Stopped
            waiting.append(batch)
            self._waiting_bytes += size_bytes
            self._changed.notify_all()


_unclosed: "weakref.WeakSet[Parallel[Any]]" = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """Close what a program leaves open: after its end gRPC waits for threads that do not run any more."""
    for run in list(_unclosed):
        run.close()
