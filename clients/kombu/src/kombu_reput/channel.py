# SPDX-License-Identifier: Apache-2.0
"""Channel: Kombu's channel over the store: queues, bindings, publishing, consuming, and prefetch."""

import base64
import logging
import threading
import time
from collections.abc import Callable
from queue import Empty
from typing import Any

from kombu.transport import virtual
from kombu.transport.base import to_rabbitmq_queue_arguments
from reput_client import Received, ReputError

from kombu_reput import names, wire
from kombu_reput.arrivals import Arrival
from kombu_reput.bindings import OWNED, Binding
from kombu_reput.leases import Leases
from kombu_reput.owned import OwnedQueue
from kombu_reput.receiving import WAIT_S, OwnedReceiving, Receiving, SharedReceiving, opened
from kombu_reput.settings import LEVELS_MAX
from kombu_reput.store import Interrupted

log = logging.getLogger("kombu_reput")

UNLIMITED_COUNT = 100
"""Messages that wait in this process for a channel without a prefetch count."""
GET_WAIT_S = 0.1
"""How long a `get` of a single message waits for it."""


class QoS(virtual.QoS):  # type: ignore[misc]
    """The unacknowledged messages of a channel; the store has them, too, with their leases."""

    restore_at_shutdown = False

    def ack(self, delivery_tag: str) -> None:
        """Acknowledge a message."""
        self.channel.leases.ack(delivery_tag)
        self._end(delivery_tag)

    def reject(self, delivery_tag: str, requeue: bool = False) -> None:
        """Give a message back at once, or make it a dead letter."""
        if requeue and delivery_tag in self._delivered:
            self.channel.put_back(self._delivered[delivery_tag])
        self.channel.leases.settle("nack" if requeue else "bury", [delivery_tag])
        self._end(delivery_tag)

    def restore_unacked(self) -> list[Any]:
        """Give all messages back at once."""
        tags = self.channel.leases.tags()
        self.channel.leases.settle("nack", tags)
        for tag in tags:
            self._end(tag)
        return []

    def _end(self, delivery_tag: str) -> None:
        super().ack(delivery_tag)
        self.channel.connection_arrivals.wake()


class Channel(virtual.Channel):  # type: ignore[misc]
    """A channel. See the README for what is promised."""

    QoS = QoS
    do_restore = False
    supports_fanout = True
    body_encoding = None
    from_transport_options = ("body_encoding",)
    max_priority = 255

    def __init__(self, connection: Any, **kwargs: Any) -> None:
        super().__init__(connection, **kwargs)
        self.store, self.bindings = connection.store, connection.bindings
        self.connection_arrivals = connection.arrivals
        self.leases = Leases(self.store)
        self._receiving: dict[str, Receiving] = {}
        self._callbacks: dict[str, Callable[[dict[str, Any]], None]] = {}
        self._taking = threading.Lock()

    # Queues.

    def queue_declare(self, queue: str | None = None, passive: bool = False, **kwargs: Any) -> Any:
        """Declare a queue. A passive declaration changes nothing."""
        if not passive:
            self.connection.priorities.pop(queue, None)
        return super().queue_declare(queue, passive=passive, **kwargs)

    def _new_queue(self, queue: str, **kwargs: Any) -> None:
        if kwargs.get("passive"):
            return
        if kwargs.get("auto_delete") or kwargs.get("exclusive"):
            self._own(queue)
            return
        priority_max, levels = wire.levels_of(kwargs.get("arguments"), LEVELS_MAX)
        if levels > 1:
            self.connection.priorities[queue] = (priority_max, levels)
        for topic in self._topics(queue):
            self.store.ensure_topic(topic, self.store.settings.queue_count)

    def prepare_queue_arguments(self, arguments: dict[str, Any] | None, **options: Any) -> Any:
        """Return the arguments of a queue: `max_priority` is the name of Kombu for `x-max-priority`."""
        return to_rabbitmq_queue_arguments(arguments or {}, **options)

    def _own(self, queue: str) -> OwnedQueue:
        owned: OwnedQueue | None = self.connection.owned.get(queue)
        if owned is None:
            owned = OwnedQueue(queue, self.store, lambda *message: self._is_for(queue, *message))
            self.connection.owned[queue] = owned
            self.bindings.announce(queue)
        return owned

    def _has_queue(self, queue: str, **_: Any) -> bool:
        return queue in self.connection.owned or bool(self.store.has_topic(self._topics(queue)[-1]))

    def _topics(self, queue: str) -> list[str]:
        """Return the topics of a queue, that of the highest priority first."""
        _, levels = self.connection.priorities.get(queue, (0, 1))
        return [names.topic_of(self.store.settings.prefix, queue, level) for level in reversed(range(levels))]

    def _size(self, queue: str) -> int:
        if queue in self.connection.owned:
            return len(self.connection.owned[queue].backlog)
        return sum(self.store.size(topic) for topic in self._topics(queue) if self.store.has_topic(topic))

    def _purge(self, queue: str) -> int:
        if queue in self.connection.owned:
            backlog = self.connection.owned[queue].backlog
            count = len(backlog)
            backlog.clear()
            return count
        return sum(self.store.purge(topic) for topic in self._topics(queue) if self.store.has_topic(topic))

    def queue_delete(self, queue: str, *, if_empty: bool = False, **_: Any) -> None:
        """Delete a queue: its bindings and its messages. Its topic stays, for an operator to delete."""
        if if_empty and self._size(queue):
            return
        for binding in list(self.state.queue_bindings(queue)):
            self.queue_unbind(queue, binding.exchange, binding.routing_key, binding.arguments)
        self.state.queue_bindings_delete(queue)
        self._purge(queue)
        if (owned := self.connection.owned.pop(queue, None)) is not None:
            owned.forget()
        self.bindings.forget(queue)

    # Bindings.

    def queue_bind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Bind a queue to an exchange, for all processes."""
        exchange = exchange or "amq.direct"
        super().queue_bind(queue, exchange, routing_key, arguments, **kwargs)
        if queue in self.connection.owned:
            self.connection.owned[queue].follow(names.exchange_tag(exchange))
            self.bindings.announce(Binding(exchange, self.typeof(exchange).type, "", OWNED))
        else:
            self.bindings.announce(Binding(exchange, self.typeof(exchange).type, routing_key or "", queue))

    def queue_unbind(
        self,
        queue: str,
        exchange: str | None = None,
        routing_key: str = "",
        arguments: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> None:
        """Take a binding back, for all processes."""
        exchange = exchange or "amq.direct"
        super().queue_unbind(queue, exchange, routing_key, arguments, **kwargs)
        if queue not in self.connection.owned:
            self.bindings.withdraw(Binding(exchange, self.typeof(exchange).type, routing_key or "", queue))

    def _queue_bind(self, exchange: str, routing_key: str, pattern: str, queue: str) -> None:
        """Kombu's hook for fanout: `queue_bind` does it all."""

    def exchange_delete(self, exchange: str, **_: Any) -> None:
        """Delete an exchange and its bindings, not the queues."""
        for routing_key, _, queue in list(self.state.exchanges.get(exchange, {}).get("table", [])):
            self.queue_unbind(queue, exchange, routing_key)
        self.state.exchanges.pop(exchange, None)

    def get_table(self, exchange: str, *, is_recent_enough: bool = False) -> list[Any]:
        """Return the bindings of an exchange: those of this connection, and those of durable queues in the store."""
        found = self.bindings.of_exchange(exchange, is_recent_enough=is_recent_enough)
        if found and exchange not in self.state.exchanges:
            self.exchange_declare(exchange, found[0].kind)
        table = list(self.state.exchanges.get(exchange, {}).get("table", []))
        kind = self.typeof(exchange)
        metas = [kind.prepare_bind(one.queue, exchange, one.routing_key, None) for one in found]
        return table + [meta for meta in metas if meta not in table]

    def _is_for(self, queue: str, exchange: str, routing_key: str) -> bool:
        table = [meta for meta in list(self.state.exchanges.get(exchange, {}).get("table", [])) if meta[2] == queue]
        return bool(table) and queue in self.typeof(exchange).lookup(table, exchange, routing_key, None)

    # Publishing.

    def encode_body(self, body: Any, encoding: str | None = None) -> tuple[Any, str | None]:
        """Return a body as text of JSON, bytes in base64."""
        if isinstance(body, bytes | bytearray | memoryview):
            return base64.b64encode(body).decode(), "base64"
        return body, encoding

    def basic_publish(self, message: dict[str, Any], exchange: str, routing_key: str, **kwargs: Any) -> None:
        """Publish a message. Returns when the store has it as durably as asked for."""
        self._inplace_augment_message(message, exchange, routing_key)
        if not exchange:
            self._put(routing_key, message, **kwargs)
            return
        is_transient = wire.is_transient(message)
        table = self.get_table(exchange, is_recent_enough=is_transient)
        kind = self.typeof(exchange)
        bound = [meta for meta in table if meta[2] != OWNED]
        found = (
            {meta[2] for meta in bound}
            if kind.type == "fanout"
            else set(kind.lookup(bound, exchange, routing_key, None))
        )
        for queue in sorted(found - self.connection.owned.keys()):
            self._put(queue, message, **kwargs)
        if any(meta[2] == OWNED for meta in table) or found & self.connection.owned.keys():
            self._broadcast(names.exchange_tag(exchange), message)

    def _put(self, queue: str, message: dict[str, Any], **_: Any) -> None:
        priority_max, levels = self.connection.priorities.get(queue, (0, 1))
        level = wire.level_of(message, priority_max, levels)
        topic = names.topic_of(self.store.settings.prefix, queue, level)
        if queue in self.connection.owned or self.bindings.is_owned(queue, unless=lambda: self.store.has_topic(topic)):
            self._broadcast(names.queue_tag(queue), message)
            return
        self.store.ensure_topic(topic, self.store.settings.queue_count)
        self._send(topic, message)

    def _broadcast(self, tag: str, message: dict[str, Any]) -> None:
        topic = names.broadcast_topic(self.store.settings.prefix)
        self.store.ensure_topic(topic)
        self._send(topic, message, tag)

    def _send(self, topic: str, message: dict[str, Any], tag: str | None = None) -> None:
        durability = wire.durability(message, self.store.settings.level)
        self.store.send(wire.new_message(topic, message, round(time.time() * 1000), tag), durability)

    # Consuming.

    def basic_consume(
        self, queue: str, no_ack: bool, callback: Callable[[Any], Any], consumer_tag: str, **kwargs: Any
    ) -> None:
        """Consume from a queue until the consumer is cancelled."""
        super().basic_consume(queue, no_ack, callback, consumer_tag, **kwargs)
        self._callbacks[consumer_tag] = self.connection.callback_of(queue)
        owned = self.connection.owned.get(queue)

        def put(raw: dict[str, Any]) -> None:
            self.connection_arrivals.put(Arrival(self, consumer_tag, queue, raw))

        def take(topic: str, received: Received, raw: dict[str, Any]) -> bool:
            return self._take(topic, received, raw, put, is_acked=no_ack)

        receiving: Receiving
        if owned is not None:
            receiving = OwnedReceiving(
                owned, self.connection_arrivals, refresh=self.bindings.refresh, room=self._waiting_room, take=put
            )
        else:
            receiving = SharedReceiving(
                queue,
                self.store,
                self.connection_arrivals,
                refresh=self.bindings.refresh,
                topics=self._topics(queue),
                room=self._waiting_room if no_ack else self.room,
                take=take,
            )
        self._receiving[consumer_tag] = receiving
        receiving.start()

    def basic_cancel(self, consumer_tag: str) -> None:
        """Cancel a consumer. Its messages that the program has not seen go back to the store."""
        receiving = self._receiving.pop(consumer_tag, None)
        if receiving is not None:
            receiving.stop()
            if (owned := self.connection.owned.get(receiving.queue)) is not None:
                owned.forget()
        self._callbacks.pop(consumer_tag, None)
        arrivals = self.connection_arrivals.remove(self, consumer_tag)
        self.leases.settle("release", [one.raw["properties"]["delivery_tag"] for one in arrivals])
        super().basic_cancel(consumer_tag)

    def basic_get(self, queue: str, no_ack: bool = False, **_: Any) -> Any:
        """Return a single message, None without one."""
        try:
            message = self.Message(self._get(queue), channel=self)
        except Empty:
            return None
        if no_ack:
            self.leases.ack(message.delivery_tag)
        else:
            self.qos.append(message, message.delivery_tag)
        return message

    def _get(self, queue: str, **_: Any) -> dict[str, Any]:
        owned = self.connection.owned.get(queue)
        if owned is not None:
            if not owned.backlog:
                owned.backlog.extend(owned.pull(GET_WAIT_S)[0])
            if owned.backlog:
                return dict(owned.backlog.popleft())
            raise Empty
        for topic in self._topics(queue):
            self.store.ensure_topic(topic, self.store.settings.queue_count)
            for received in self.store.receive(topic, 1, GET_WAIT_S):
                raw = opened(self.store, topic, received)
                if raw is not None:
                    self.leases.hold(topic, received)
                    return raw
        raise Empty

    def basic_qos(self, prefetch_size: int = 0, prefetch_count: int = 0, apply_global: bool = False) -> None:
        """Set how many unacknowledged messages the channel may have. 0 is no limit."""
        super().basic_qos(prefetch_size, prefetch_count, apply_global)
        self.connection_arrivals.wake()

    def room(self) -> int:
        """Return how many messages the channel may still hold."""
        count = int(self.qos.prefetch_count)
        return count - len(self.leases) if count else self._waiting_room()

    def _waiting_room(self) -> int:
        return UNLIMITED_COUNT - int(self.connection_arrivals.count(self))

    def _take(
        self,
        topic: str,
        received: Received,
        raw: dict[str, Any],
        put: Callable[[dict[str, Any]], None],
        *,
        is_acked: bool,
    ) -> bool:
        """Let a message wait for the program. Returns False without room for it."""
        with self._taking:
            if not is_acked and self.room() <= 0:
                return False
            self.leases.hold(topic, received)
        if is_acked:
            self.leases.ack(received.handle)
        put(raw)
        return True

    def deliver(self, arrival: Arrival) -> None:
        """Call the consumer of a message, or give the message back without one."""
        callback = self._callbacks.get(arrival.consumer_tag)
        if callback is None:
            self.leases.settle("release", [arrival.raw["properties"]["delivery_tag"]])
        else:
            callback(arrival.raw)

    def put_back(self, message: Any) -> None:
        """Let a message of a queue that belongs to this process come again."""
        if message.delivery_tag in self.leases.tags():
            return
        info = message.delivery_info or {}
        raw = message.serializable()
        for consumer_tag, receiving in list(self._receiving.items()):
            if receiving.queue in self.connection.owned and (
                self._is_for(receiving.queue, info.get("exchange") or "", info.get("routing_key") or "")
                or info.get("routing_key") == receiving.queue
            ):
                self.connection_arrivals.put(Arrival(self, consumer_tag, receiving.queue, raw), is_first=True)
                return

    def drain_events(self, timeout: float | None = None, **_: Any) -> None:
        """Deliver the next message of the connection."""
        self.connection.drain_events(self.connection, timeout=timeout)

    def stop_receiving(self) -> None:
        """Let the threads end after their present calls."""
        for receiving in self._receiving.values():
            receiving.stop()

    def close(self) -> None:
        """Close the channel. Messages that are not acknowledged go back to the store at once."""
        if not self.closed:
            threads = list(self._receiving.values())
            self.stop_receiving()
            for thread in threads:
                if thread.is_alive():
                    thread.join(2 * WAIT_S)
            try:
                self.leases.settle("release", self.leases.tags())
            except (ReputError, Interrupted) as error:
                log.warning("messages come again when their leases are over: %s", error)
            self.leases.close()
        super().close()
