# SPDX-License-Identifier: Apache-2.0
"""Acks: acknowledgements on their way to the store, which a thread sends, many by a call.

A program that acknowledges does not wait for the log. Without its acknowledgement a message comes again.
"""

import atexit
import logging
import os
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from reput_client import Received, ReputError

from kombu_reput.errors import CONNECTION_ERRORS
from kombu_reput.store import Interrupted, Store

log = logging.getLogger("kombu_reput")

COUNT_MAX = 1000
"""Most acknowledgements that wait; a further one waits for room."""
PAUSE_S_MIN, PAUSE_S_MAX = 0.1, 5.0
PASSING: tuple[type[Exception], ...] = (*CONNECTION_ERRORS, Interrupted)
"""Failures after which acknowledgements are sent again."""


@dataclass(frozen=True, slots=True)
class Held:
    """A message that a channel holds."""

    topic: str
    received: Received


class Acks:
    """Acknowledgements in the order of their program. Callers: any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, Held] = {}
        self._changed = threading.Condition()
        self._is_hurried = threading.Event()
        """Set when nothing more is waited for: the next call goes out at once."""
        self._thread: threading.Thread | None = None
        self._is_over = False
        self._process_id = 0
        """The process of the thread: a fork has the rest of the parent's state."""

    def add(self, held: Held) -> None:
        """Acknowledge a message. Raises Interrupted if the store does not take older ones in the time of a call."""
        with self._changed:
            if len(self._waiting) >= COUNT_MAX:
                self._wait(COUNT_MAX - 1)
            self._waiting[held.received.handle] = held
            if self._thread is None or not self._thread.is_alive():
                self._start()
            if len(self._waiting) == 1:
                self._changed.notify_all()

    def held(self) -> list[Held]:
        """Return the messages whose acknowledgements the store has not answered: their leases last."""
        with self._changed:
            return list(self._waiting.values())

    def close(self) -> None:
        """Return when the store has all acknowledgements, or after the time of a call without them."""
        if self._process_id != os.getpid():
            return
        atexit.unregister(self.close)
        with self._changed:
            try:
                self._wait(0)
            except Interrupted as error:
                log.warning("messages come again when their leases are over: %s", error)
            self._is_over = True
            self._changed.notify_all()

    def _wait(self, count: int) -> None:
        self._is_hurried.set()
        if not self._changed.wait_for(lambda: len(self._waiting) <= count, self._store.settings.timeout_s):
            raise Interrupted(f"the store has not taken {len(self._waiting)} acknowledgements")

    def _start(self) -> None:
        if self._thread is None:
            atexit.register(self.close)
        self._process_id = os.getpid()
        self._thread = threading.Thread(target=self._send_always, name="kombu-reput-acks", daemon=True)
        self._thread.start()

    def _send_always(self) -> None:
        pause_s = 0.0
        while not self._is_over:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_over)
            self._is_hurried.wait(max(pause_s, self._store.settings.ack_delay_s))
            self._is_hurried.clear()
            failure = self._send(self.held())
            if failure is None:
                pause_s = 0.0
                continue
            if not pause_s:
                log.warning("acknowledgements are sent again until the store takes them: %s", failure)
            pause_s = min(max(2 * pause_s, PAUSE_S_MIN), PAUSE_S_MAX)

    def _send(self, some: Sequence[Held]) -> Exception | None:
        """Acknowledge messages by a call for each topic. Returns a failure that passes, and whose messages wait."""
        by_topic: dict[str, list[Received]] = {}
        for held in some:
            by_topic.setdefault(held.topic, []).append(held.received)
        failure: Exception | None = None
        for topic, received in by_topic.items():
            try:
                self._store.settle("ack", topic, *received)
            except PASSING as error:
                failure = error
                continue
            except ReputError as error:
                log.warning("%d messages of %s come again: %s", len(received), topic, error)
            with self._changed:
                for one in received:
                    self._waiting.pop(one.handle, None)
                self._changed.notify_all()
        return failure
