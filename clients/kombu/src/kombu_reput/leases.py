# SPDX-License-Identifier: Apache-2.0
"""Leases: the messages that a channel has received and not settled, whose leases a thread extends."""

import logging
import threading
from collections.abc import Iterable

from reput_client import Received, ReputError

from kombu_reput.acks import Acks, Held
from kombu_reput.store import OUTDATED, Interrupted, Store, Verb

log = logging.getLogger("kombu_reput")

EXTENSIONS_PER_LEASE = 3
"""Two extensions in a row may fail before a lease is over."""


class Leases:
    """The messages that a channel holds, by delivery tag. Callers: any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._acks = Acks(store)
        self._held: dict[str, Held] = {}
        self._lock = threading.Lock()
        self._is_over = threading.Event()
        self._thread: threading.Thread | None = None

    def __len__(self) -> int:
        return len(self._held)

    def hold(self, topic: str, received: Received) -> None:
        """Hold a message, and extend its lease from now on. Its delivery tag is its handle."""
        with self._lock:
            self._held[received.handle] = Held(topic, received)
            if self._thread is None and not self._is_over.is_set():
                self._thread = threading.Thread(target=self._extend_always, name="kombu-reput-leases", daemon=True)
                self._thread.start()

    def ack(self, tag: str) -> None:
        """Acknowledge a message and hold it no longer. It is sent soon, or at once without `ack_delay_s`."""
        if not self._store.settings.ack_delay_s or self._is_over.is_set():
            self.settle("ack", [tag])
        elif (held := self._held.get(tag)) is not None:
            self._acks.add(held)  # before it is dropped, so that its lease lasts
            self._drop([held.received])

    @property
    def unanswered(self) -> list[Held]:
        """Messages whose acknowledgements the store has not answered."""
        return self._acks.held()

    def settle(self, verb: Verb, tags: Iterable[str]) -> None:
        """Settle messages and hold them no longer. Raises ReputError."""
        by_topic: dict[str, list[Received]] = {}
        with self._lock:
            for tag in tags:
                held = self._held.get(tag)
                if held is not None:
                    by_topic.setdefault(held.topic, []).append(held.received)
        for topic, received in by_topic.items():
            self._store.settle(verb, topic, *received)
            self._drop(received)

    def tags(self) -> list[str]:
        """Return the delivery tags of all messages that are held."""
        with self._lock:
            return list(self._held)

    def close(self) -> None:
        """Send the acknowledgements, and extend no lease any more."""
        self._acks.close()
        self._is_over.set()

    def _drop(self, received: Iterable[Received]) -> None:
        with self._lock:
            for one in received:
                self._held.pop(one.handle, None)

    def _all(self) -> dict[str, Held]:
        """Return the messages that the store has not settled."""
        with self._lock:
            held = dict(self._held)
        return held | {one.received.handle: one for one in self.unanswered}

    def _extend_always(self) -> None:
        while not self._is_over.wait(self._store.settings.lease_s / EXTENSIONS_PER_LEASE):
            by_topic: dict[str, list[Received]] = {}
            for held in self._all().values():
                by_topic.setdefault(held.topic, []).append(held.received)
            for topic, received in by_topic.items():
                self._extend(topic, received)

    def _extend(self, topic: str, received: list[Received]) -> None:
        try:
            self._store.extend(topic, received)
        except Interrupted:
            return
        except ReputError as error:
            if error.reason != OUTDATED:
                log.warning("messages of %s may come again: %s", topic, error)
            elif len(received) > 1:
                for one in received:
                    self._extend(topic, [one])
            elif received[0].handle in self._all():  # otherwise it was settled meanwhile
                log.warning("a message of %s comes again, or was settled by another worker: %s", topic, error)
                self._drop(received)
