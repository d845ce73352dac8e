# SPDX-License-Identifier: Apache-2.0
"""Receiving: the threads that bring messages of a queue into this process, as many as the channel has room for.

A thread waits at the store, so an idle queue costs a call in a second. It outlasts outages: a message that is held, or
that runs, stays this worker's as long as its lease can be extended in time.
"""

import logging
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from reput_client import NotFoundError, Received

from kombu_reput import wire
from kombu_reput.arrivals import Arrivals
from kombu_reput.errors import CONNECTION_ERRORS
from kombu_reput.owned import OwnedQueue
from kombu_reput.store import Interrupted, Store

log = logging.getLogger("kombu_reput")

WAIT_S = 1.0
"""How long a call waits for a message. The close of a channel takes as long."""
LEVEL_WAIT_S = 0.2
"""The same for a queue with priorities: so late is a message of another level noticed in an idle queue."""
COUNT_MAX = 100
"""Most messages of a call."""
PAUSE_S_MIN, PAUSE_S_MAX = 0.1, 5.0
PASSING: tuple[type[Exception], ...] = (*CONNECTION_ERRORS, NotFoundError)
"""Failures after which a thread tries again; a topic that was deleted is created again."""


class Receiving(threading.Thread):
    """A thread that receives until `stop`. `receive` receives once, and waits at most `WAIT_S`."""

    def __init__(self, queue: str, arrivals: Arrivals, refresh: Callable[[], None], room: Callable[[], int]) -> None:
        super().__init__(name=f"kombu-reput-{queue}", daemon=True)
        self.queue = queue
        self._arrivals, self._refresh, self._room = arrivals, refresh, room
        self._is_over = threading.Event()

    @property
    def is_over(self) -> bool:
        """Whether the thread is to end."""
        return self._is_over.is_set()

    def stop(self) -> None:
        """Let the thread end after its present call."""
        self._is_over.set()
        self._arrivals.wake()

    def receive(self, count: int) -> None:
        """Receive up to `count` messages."""
        raise NotImplementedError

    def run(self) -> None:
        """Receive while there is room. A failure that does not pass is raised by `drain_events`."""
        failed_count = 0
        while not self.is_over:
            if not self._arrivals.wait_for(lambda: self.is_over or self._room() > 0, WAIT_S) or self.is_over:
                continue
            try:
                self._refresh()
                self.receive(min(max(self._room(), 1), COUNT_MAX))
            except Interrupted:
                self._is_over.wait(PAUSE_S_MIN)
            except PASSING as error:
                failed_count += 1
                if failed_count == 1:
                    log.warning("receiving from %s fails, and is tried again until it works: %s", self.queue, error)
                self._is_over.wait(min(PAUSE_S_MIN * 2**failed_count, PAUSE_S_MAX))
            except Exception as error:  # noqa: BLE001 - the program must get any error
                self._arrivals.fail(error)
                return
            else:
                if failed_count:
                    log.warning("receiving from %s works again after %d failed calls", self.queue, failed_count)
                failed_count = 0


class SharedReceiving(Receiving):
    """Receives from the topics of a queue that all its consumers share, the highest priority first."""

    def __init__(
        self,
        queue: str,
        store: Store,
        arrivals: Arrivals,
        *,
        refresh: Callable[[], None],
        topics: Sequence[str],
        room: Callable[[], int],
        take: Callable[[str, Received, dict[str, Any]], bool],
    ) -> None:
        super().__init__(queue, arrivals, refresh, room)
        self._store, self._topics, self._take = store, topics, take
        self._last = topics[-1]
        """The topic of the last message: an idle thread waits there."""
        self._known: set[str] = set()
        """Topics of former receives: the store reads ahead only from then on."""

    def receive(self, count: int) -> None:
        """See `Receiving.receive`."""
        for topic in self._topics:
            self._store.ensure_topic(topic, self._store.settings.queue_count)
        if len(self._topics) == 1:
            self._enter(self._last, self._store.receive(self._last, count, WAIT_S))
            return
        for topic in self._topics:
            received = self._store.receive(topic, count, 0.0 if topic in self._known else LEVEL_WAIT_S)
            self._known.add(topic)
            if received:
                self._last = topic
                self._enter(topic, received)
                return
        self._enter(self._last, self._store.receive(self._last, 1, LEVEL_WAIT_S))

    def _enter(self, topic: str, received: Sequence[Received]) -> None:
        """Give messages to the channel, and messages beyond its room back to the store."""
        for one in received:
            raw = opened(self._store, topic, one)
            if raw is not None and (self.is_over or not self._take(topic, one, raw)):
                self._store.settle("release", topic, one)


class OwnedReceiving(Receiving):
    """Receives messages of a queue that belongs to this process."""

    def __init__(
        self,
        owned: OwnedQueue,
        arrivals: Arrivals,
        *,
        refresh: Callable[[], None],
        room: Callable[[], int],
        take: Callable[[dict[str, Any]], None],
    ) -> None:
        super().__init__(owned.queue, arrivals, refresh, room)
        self._owned, self._take = owned, take

    def receive(self, count: int) -> None:  # noqa: ARG002 - the store limits the answer
        """See `Receiving.receive`."""
        began_s = time.monotonic()
        raws, has_moved = self._owned.pull(WAIT_S)
        for raw in raws:
            self._take(raw)
        if not has_moved and time.monotonic() - began_s < WAIT_S / 2:  # the topic has no queue yet
            self._is_over.wait(WAIT_S / 4)


def opened(store: Store, topic: str, received: Received) -> dict[str, Any] | None:
    """Return the message of Kombu in a received message.

    A message of another kind becomes a dead letter. An expired message is gone, and a message that came long before its
    eta is delayed again. The store's clock may be ahead of this process's, so the later of both counts.
    """
    stored_ms = received.message.store_time_ms
    now_ms = max(stored_ms, round(time.time() * 1000))
    try:
        raw = wire.decoded(received.message.body)
    except ValueError as error:
        log.error("a message of %s becomes a dead letter: %s", topic, error)
        store.settle("bury", topic, received)
        return None
    if wire.is_expired(raw, stored_ms, now_ms):
        store.settle("ack", topic, received)
        return None
    if wire.is_early(raw, now_ms):
        store.send(wire.new_message(topic, raw, now_ms), store.settings.level)
        store.settle("ack", topic, received)
        return None
    properties = raw["properties"]
    properties["delivery_tag"] = received.handle
    if received.attempt > 1:
        raw["redelivered"] = properties["delivery_info"]["redelivered"] = True
    return raw
