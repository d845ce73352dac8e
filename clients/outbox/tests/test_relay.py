# SPDX-License-Identifier: Apache-2.0
"""The relay against a real store and real databases: each committed row is one message, in order by key."""

import threading

from pytest_reput import MemoryReput
from reput_outbox.core.rows import State

from clients.outbox.tests.shop import ORDERS, OUTBOX, Shop, bodies, check_once, until


def test_committed_rows_are_sent_and_others_are_not(reput: MemoryReput, shop: Shop) -> None:
    """A committed order is one message, in order by key; one that was rolled back is none."""
    topic = reput.topic()
    with shop.relay(reput):
        for number in range(60):
            shop.buy(topic, f"buyer{number % 7}", number, fails=number % 5 == 0)
        until(shop.is_sent)
    found = bodies(reput, topic)
    assert len(found) == 48
    check_once(shop.orders(), found)
    assert ORDERS.name == "orders"
    assert shop.count(State.SENT) == 48


def test_the_fields_of_a_message(reput: MemoryReput, shop: Shop) -> None:
    """Key, tag, look-up keys, properties and times arrive as they were given."""
    topic = reput.topic()
    with shop.engine.begin() as connection:
        uid = OUTBOX.add(connection, topic, b"\x00\xff", key="k 1", tag="T", keys=["a", "b"], properties={"p": "ü"})
    with shop.relay(reput):
        until(shop.is_sent)
    (pulled,) = [
        message
        for queue in reput.client().queues.list(topic)
        for message in reput.client().queues.pull(topic, queue.queue_id, 0).messages
    ]
    assert (pulled.body, pulled.tag, pulled.keys, pulled.unique_id) == (b"\x00\xff", "T", ("a", "b"), uid)
    assert pulled.properties["p"] == "ü"
    assert pulled.properties["__SHARDINGKEY"] == "k 1"


def test_two_relays_at_once(reput: MemoryReput, shop: Shop) -> None:
    """One of two relays sends; the other takes over when it stops."""
    topic = reput.topic()
    first, second = shop.relay(reput).start(), shop.relay(reput).start()
    try:
        until(lambda: first.metrics.is_holder or second.metrics.is_holder)
        writers = [
            threading.Thread(target=lambda n=n: [shop.buy(topic, f"b{n}", i) for i in range(30)]) for n in (1, 2)
        ]
        for writer in writers:
            writer.start()
        holder, other = (first, second) if first.metrics.is_holder else (second, first)
        until(lambda: holder.metrics.sent_count)
        holder.stop()
        for writer in writers:
            writer.join()
        until(lambda: other.metrics.is_holder and shop.is_sent())
    finally:
        first.stop()
        second.stop()
    check_once(shop.orders(), bodies(reput, topic))
