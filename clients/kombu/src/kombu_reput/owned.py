# SPDX-License-Identifier: Apache-2.0
"""OwnedQueue: a queue that belongs to this process, such as that of remote control, of events or of results.

It is no topic of its own: its messages are in the topic of broadcasts, with the tag of the queue or of an exchange that
it is bound to. It begins at the end of the topic when the process declares or binds it first; nothing remains of it.
A program may declare it with a connection and consume from it with another: Celery declares the queue of results where
it publishes tasks. So the process keeps the begin of each queue until its consumer is cancelled.
"""

import logging
import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from reput_client import Message

from kombu_reput import names, wire
from kombu_reput.store import Store

log = logging.getLogger("kombu_reput")

BEGINS_MAX = 10_000
"""Queues and tags whose begin the process keeps. The oldest is forgotten first, and begins at the end again."""

_begins: OrderedDict[tuple[object, ...], int] = OrderedDict()
"""The queue offset from which on no consumer of this process has read, by store, queue and tag."""


class OwnedQueue:
    """The position of a queue in the topic of broadcasts, for each of its tags.

    `is_for` tells whether a message with this exchange and routing key is for the queue. Callers: any thread; `pull` a
    single thread at a time.
    """

    def __init__(self, queue: str, store: Store, is_for: Callable[[str, str], bool]) -> None:
        self.queue = queue
        self._store, self._is_for = store, is_for
        self._topic = names.broadcast_topic(store.settings.prefix)
        self._lock = threading.Lock()
        self._positions: dict[str, int] = {}
        self.backlog: deque[dict[str, Any]] = deque()
        """Messages that were pulled and not asked for yet, for a program that takes single messages."""
        self.follow(names.queue_tag(queue))

    def follow(self, tag: str) -> None:
        """Get the messages with a tag from now on."""
        if tag in self._positions:
            return
        self._store.ensure_topic(self._topic)
        end = self._store.end_of(self._topic)
        begin = min(_begins.setdefault(self._key(tag), end), end)  # a store that was made anew has a smaller end
        if len(_begins) > BEGINS_MAX:
            _begins.popitem(last=False)
        with self._lock:
            self._positions.setdefault(tag, begin)

    def forget(self) -> None:
        """Let the queue begin at the end of the topic when it is declared again: it has no consumer any more."""
        with self._lock:
            tags = list(self._positions)
        for tag in tags:
            _begins.pop(self._key(tag), None)

    def _key(self, tag: str) -> tuple[object, ...]:
        return (*self._store.settings.place, self.queue, tag)

    def pull(self, wait_s: float) -> tuple[list[dict[str, Any]], bool]:
        """Return the next messages of Kombu, and whether the position moved."""
        with self._lock:
            begins = dict(self._positions)
        queue_offset = min(begins.values())
        answer = self._store.pull(self._topic, queue_offset, sorted(begins), wait_s)
        found = [raw for message in answer.messages if (raw := self._raw_of(message, begins)) is not None]
        with self._lock:
            for tag in begins:
                self._positions[tag] = position = max(self._positions[tag], answer.next_queue_offset)
                if (key := self._key(tag)) in _begins:
                    _begins[key] = position
        return found, answer.next_queue_offset != queue_offset

    def _raw_of(self, message: Message, begins: dict[str, int]) -> dict[str, Any] | None:
        begin = begins.get(message.tag or "")
        if begin is None or message.queue_offset < begin:
            return None
        try:
            raw = wire.decoded(message.body)
        except ValueError as error:
            log.error("a message of %s is left out: %s", self._topic, error)
            return None
        info = raw["properties"]["delivery_info"]
        exchange, routing_key = str(info.get("exchange") or ""), str(info.get("routing_key") or "")
        if wire.is_expired(raw, message.store_time_ms, round(time.time() * 1000)):
            return None
        is_wanted = self._is_for(exchange, routing_key) if exchange else routing_key == self.queue
        return raw if is_wanted else None
