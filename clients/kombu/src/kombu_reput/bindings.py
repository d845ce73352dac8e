# SPDX-License-Identifier: Apache-2.0
"""Bindings: which queues are bound to an exchange, and which queues belong to a process, as records in the store.

A record is a message of the topic of bindings with the exchange or the queue as its key; the newest record counts. A
record expires as messages do, so processes that use a binding announce it again after some time.
"""

import contextlib
import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

from reput_client import Durability, NewMessage

from kombu_reput import names
from kombu_reput.store import Store

ANNOUNCE_AGAIN_S = 3600.0
OWNED = ""
"""Stands for all queues of processes that are bound to an exchange."""
RECORDS_MAX = 2000
"""Records of an exchange that are read."""
RECENT_S = 1.0
"""How old the bindings for a transient message may be."""


class Binding(NamedTuple):
    """A queue that is bound to an exchange."""

    exchange: str
    kind: str
    """The type of the exchange."""
    routing_key: str
    queue: str


class Bindings:
    """The bindings in the store. Callers: any thread."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._topic = names.bindings_topic(store.settings.prefix)
        self._announced: dict[Binding | str, float] = {}
        self._recent: dict[str, tuple[float, list[Binding]]] = {}
        self._owned: set[str] = set()

    def announce(self, what: Binding | str) -> None:
        """Let all processes know a binding, or that a queue belongs to a process. Returns when they find it."""
        at_s = self._announced.get(what)
        if at_s is not None and time.monotonic() - at_s < ANNOUNCE_AGAIN_S:
            return
        if isinstance(what, Binding):
            self._write_unless_young(names.exchange_tag(what.exchange), {**what._asdict(), "is_bound": True})
        else:
            self._owned.add(what)
            self._write_unless_young(names.queue_tag(what), {"queue": what})
        self._announced[what] = time.monotonic()

    def refresh(self) -> None:
        """Announce again what is not announced for long, as long as this process uses it."""
        for what in list(self._announced):
            self.announce(what)

    def forget(self, what: Binding | str) -> None:
        """Announce a queue or a binding no longer."""
        self._announced.pop(what, None)

    def withdraw(self, binding: Binding) -> None:
        """Let all processes know that a binding is gone."""
        self.forget(binding)
        self._write(names.exchange_tag(binding.exchange), {**binding._asdict(), "is_bound": False})

    def of_exchange(self, exchange: str, *, is_recent_enough: bool = False) -> list[Binding]:
        """Return the bindings of durable queues, and one of OWNED, or those of the last second if that is enough."""
        now_s = time.monotonic()
        known = self._recent.get(exchange)
        if is_recent_enough and known is not None and now_s - known[0] < RECENT_S:
            return known[1]
        last: dict[tuple[str, str], tuple[bool, Binding]] = {}
        for record, _ in self._records(names.exchange_tag(exchange)):
            with contextlib.suppress(TypeError, KeyError):
                binding = Binding(*(str(record[name]) for name in Binding._fields))
                last.setdefault((binding.queue, binding.routing_key), (bool(record["is_bound"]), binding))
        found = [binding for is_bound, binding in last.values() if is_bound and binding.exchange == exchange]
        self._recent[exchange] = (now_s, found)
        return found

    def is_owned(self, queue: str, unless: Callable[[], bool]) -> bool:
        """Return whether a queue belongs to a process. It does not if `unless` holds."""
        if queue not in self._owned:
            if unless() or not any(record.get("queue") == queue for record, _ in self._records(names.queue_tag(queue))):
                return False
            self._owned.add(queue)
        return True

    def _write_unless_young(self, key: str, record: dict[str, Any]) -> None:
        """Write a record unless the store has it, and will have it for long."""
        born_ms = time.time() * 1000 - ANNOUNCE_AGAIN_S * 1000
        what = {name: record.get(name) for name in ("queue", "routing_key")}
        for known, stored_ms in self._records(key):
            if all(known.get(name) == value for name, value in what.items()):
                if known == record and stored_ms > born_ms:
                    return
                break
        self._write(key, record)

    def _write(self, key: str, record: dict[str, Any]) -> None:
        self._store.ensure_topic(self._topic)
        sent = self._store.send(NewMessage(self._topic, json.dumps(record).encode(), keys=key), Durability.DEFAULT)
        self._store.wait_indexed(sent)
        self._recent.clear()

    def _records(self, key: str) -> list[tuple[dict[str, Any], int]]:
        """Return the records with a key and their store times, the newest first."""
        found = []
        for message in self._store.records(self._topic, key, RECORDS_MAX):
            with contextlib.suppress(ValueError):
                record = json.loads(message.body)
                if isinstance(record, dict):
                    found.append((record, message.store_time_ms))
        return found
