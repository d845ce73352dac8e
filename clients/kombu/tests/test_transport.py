# SPDX-License-Identifier: Apache-2.0
"""The transport over a real store in this process."""

import socket
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import kombu
import pytest
from kombu import Consumer, Exchange, Producer, Queue
from kombu.asynchronous import Hub
from kombu_reput import names, receiving
from pytest_reput import MemoryReput

PAGE = Path(__file__).parents[3] / "docs/kombu.md"
LIMIT_S = 60.0
SHORT_S = 0.3

Connect = Callable[..., kombu.Connection]


def take(connection: kombu.Connection, found: list[Any], count: int) -> None:
    """Deliver events until `count` messages were found."""
    end_s = time.monotonic() + LIMIT_S
    while len(found) < count:
        assert time.monotonic() < end_s, f"{len(found)} of {count} messages came"
        try:
            connection.drain_events(timeout=1)
        except TimeoutError:
            continue


def nothing_comes(connection: kombu.Connection) -> None:
    """Assert that no message comes for a while."""
    with pytest.raises(socket.timeout):
        connection.drain_events(timeout=SHORT_S)


def consume(connection: kombu.Connection, *queues: Queue, prefetch: int = 0, **options: Any) -> list[Any]:
    """Consume queues, and return the list that gets the messages."""
    found: list[Any] = []
    consumer = Consumer(
        connection.channel(), queues, on_message=found.append, prefetch_count=prefetch or None, **options
    )
    consumer.consume()
    return found


def topic_of(connection: kombu.Connection, queue: str) -> str:
    """Return the topic of a queue, which is also the name of its group."""
    return names.topic_of(connection.transport.store.settings.prefix, queue)


def publish(connection: kombu.Connection, body: Any, **options: Any) -> None:
    """Publish a message."""
    Producer(connection.channel()).publish(body, **options)


def test_messages_keep_order_content_and_kind(connect: Connect) -> None:
    """Text, bytes and JSON arrive in order with their headers, and are gone after their acknowledgement."""
    queue = Queue("q.ä", durable=True)
    publish(connect(), {"a": [1, "ä"]}, routing_key="q.ä", declare=[queue], headers={"h": 1}, priority=3)
    publish(connect(), b"\x00\xff", routing_key="q.ä", content_type="application/data", content_encoding="binary")
    publish(connect(), "text", routing_key="q.ä", serializer="raw", content_encoding="utf-8", content_type="text/plain")
    connection = connect()
    found = consume(connection, queue, accept=["json", "application/data", "text/plain"])
    take(connection, found, 3)
    assert [one.decode() for one in found] == [{"a": [1, "ä"]}, b"\x00\xff", "text"]
    assert found[0].headers["h"] == 1
    for one in found:
        one.ack()
    connection.close()
    again = connect()
    consume(again, queue)
    nothing_comes(again)
    assert queue(again.channel()).queue_declare(passive=True).message_count == 0


def test_unacknowledged_messages_come_again_at_once(connect: Connect) -> None:
    """Closing a channel and `requeue` give messages back; `reject` makes them dead letters."""
    queue, first = Queue("again"), connect()
    publish(first, 1, routing_key="again", declare=[queue])
    found = consume(first, queue)
    take(first, found, 1)
    found[0].requeue()
    take(first, found, 2)
    assert found[1].delivery_info["redelivered"]
    first.close()
    second = connect()
    found = consume(second, queue)
    take(second, found, 1)
    found[0].reject()
    nothing_comes(second)


def test_a_rejected_message_is_a_dead_letter(connect: Connect, reput: MemoryReput) -> None:
    """A rejected message, and one that is none of Kombu's, can be listed and replayed."""
    queue, connection = Queue("bad"), connect()
    publish(connection, 1, routing_key="bad", declare=[queue])
    group = topic_of(connection, "bad")
    with reput.client().producer() as producer:
        producer.send(group, b"no JSON").result()
    found = consume(connection, queue)
    take(connection, found, 1)
    found[0].reject()
    end_s = time.monotonic() + LIMIT_S
    while len(list(reput.client().dead_letters.list(group))) < 2 and time.monotonic() < end_s:
        time.sleep(0.05)
    assert {letter.message.body[:7] for letter in reput.client().dead_letters.list(group)} == {b"no JSON", b'{"body"'}


def test_prefetch_is_a_bound(connect: Connect) -> None:
    """A channel holds no more than its prefetch count, also over two queues; others get the rest."""
    queues, connection = [Queue("p1"), Queue("p2")], connect()
    for number in range(10):
        publish(connection, number, routing_key=f"p{number % 2 + 1}", declare=queues)
    found = consume(connection, *queues, prefetch=2)
    take(connection, found, 2)
    nothing_comes(connection)
    other = connect()
    rest = consume(other, *queues)
    take(other, rest, 8)
    found[0].ack()
    nothing_comes(connection)
    assert len({one.payload for one in [*found, *rest]}) == 10


def test_the_store_holds_a_task_until_its_eta(connect: Connect, reput: MemoryReput) -> None:
    """Nothing arrives before its eta, and prefetch has room meanwhile; a purge takes waiting tasks, too."""
    queue, connection = Queue("eta"), connect(ack_delay_s=0)
    for days in (1, 39):
        headers = {"eta": (reput.now + timedelta(days=days)).isoformat(), "id": f"in-{days}"}
        publish(connection, days, routing_key="eta", declare=[queue], headers=headers)
    publish(connection, 0, routing_key="eta")
    found = consume(connection, queue, prefetch=1)
    take(connection, found, 1)
    found[0].ack()
    reput.advance(hours=23)
    nothing_comes(connection)
    reput.advance(hours=2)
    channel = connection.default_channel
    assert queue(channel).purge() in (1, 2)  # the due task may have arrived


def test_an_eta_after_the_store_s_forty_days(connect: Connect, reput: MemoryReput) -> None:
    """A task whose eta is 90 days ahead is delayed again whenever the store gives it out, and comes once, when due."""
    queue, connection = Queue("far"), connect()
    eta = reput.now + timedelta(days=90)
    publish(connection, 1, routing_key="far", declare=[queue], headers={"eta": eta.isoformat(), "id": "far"})
    found, topic = consume(connection, queue), topic_of(connection, "far")
    for day in (40, 80):
        reput.advance(days=40)
        end_s = time.monotonic() + LIMIT_S
        while not list(reput.client().delayed.list(topic, start=reput.now)):
            assert time.monotonic() < end_s, f"the task does not wait again after {day} days"
            nothing_comes(connection)
    reput.advance(days=9)
    nothing_comes(connection)
    reput.advance(days=1, minutes=1)
    take(connection, found, 1)
    assert found[0].headers["eta"] == eta.isoformat()
    found[0].ack()
    nothing_comes(connection)


def test_the_page_s_test_of_an_application(reput: MemoryReput) -> None:
    """The example of docs/kombu.md passes."""
    example = next(part for part in PAGE.read_text().split("```python\n") if "def test_" in part).partition("```")[0]
    names_of_it: dict[str, Any] = {}
    exec(compile(example, str(PAGE), "exec"), names_of_it)
    names_of_it["test_a_reminder_is_due_after_a_day"](reput)


def test_a_long_task_keeps_its_lease(connect: Connect) -> None:
    """A message that is held for longer than its lease is not delivered again while its channel lives."""
    queue, connection = Queue("long"), connect(lease_s=1)
    publish(connection, 1, routing_key="long", declare=[queue])
    found = consume(connection, queue)
    take(connection, found, 1)
    other = connect(lease_s=1)
    stolen = consume(other, queue)
    for _ in range(8):
        nothing_comes(other)
    assert stolen == []
    found[0].ack()


def test_a_message_of_a_dead_worker_comes_again(connect: Connect, reput: MemoryReput) -> None:
    """A message whose holder is gone without a word comes again after its lease."""
    queue, connection = Queue("dead"), connect(lease_s=600)
    publish(connection, 1, routing_key="dead", declare=[queue])
    found = consume(connection, queue)
    take(connection, found, 1)
    channel = connection.transport.channels[-1]
    channel.stop_receiving()
    channel.leases.close()  # as a killed process does: no more extensions, nothing given back
    other = connect()
    again = consume(other, queue)
    nothing_comes(other)
    reput.advance(seconds=602)
    take(other, again, 1)
    assert again[0].delivery_info["redelivered"]
    found[0].ack()  # too late: logged, and harmless
    again[0].ack()


def test_higher_priorities_first(connect: Connect) -> None:
    """A queue with `x-max-priority` gives its most urgent messages first; the size counts all."""
    queue, connection = Queue("prio", max_priority=10), connect()
    for priority in (0, 10, 5, 0, 10):
        publish(connection, priority, routing_key="prio", declare=[queue], priority=priority)
    bound = queue(connection.channel())
    end_s = time.monotonic() + LIMIT_S
    while bound.queue_declare(passive=True).message_count < 5 and time.monotonic() < end_s:
        time.sleep(0.02)
    found = consume(connection, queue, prefetch=1)
    for count in range(1, 6):
        take(connection, found, count)
        found[-1].ack()
    assert [one.payload for one in found] == [10, 10, 5, 0, 0]


@pytest.mark.parametrize("kind", ["fanout", "topic", "direct"])
def test_exchanges_reach_queues_of_other_connections(connect: Connect, kind: str) -> None:
    """A publisher that knows no queue reaches durable queues and queues of processes that are bound elsewhere."""
    exchange = Exchange(f"ex-{kind}", type=kind)
    key = {"fanout": "", "topic": "a.*", "direct": "a.b"}[kind]
    first, second, third = connect(), connect(), connect()
    shared = consume(first, Queue(f"shared-{kind}", exchange, routing_key=key))
    own = consume(second, Queue(f"own-{kind}", exchange, routing_key=key, auto_delete=True))
    publish(third, "x", exchange=exchange, routing_key="a.b")
    publish(third, "y", exchange=exchange, routing_key="a.b.c")
    wanted = ["x", "y"] if kind == "fanout" else ["x"]
    take(first, shared, len(wanted))
    take(second, own, len(wanted))
    nothing_comes(first)
    nothing_comes(second)
    assert [one.payload for one in shared] == [one.payload for one in own] == wanted
    first.default_channel.queue_unbind(f"shared-{kind}", exchange.name, key)
    publish(third, "z", exchange=exchange, routing_key="a.b")
    nothing_comes(first)


def test_a_reply_finds_a_queue_that_only_its_reader_declared(connect: Connect) -> None:
    """A result to a queue of another process needs no declaration by its sender, transient or not; no topic is made."""
    reader, sender = connect(), connect()
    found = consume(reader, Queue("reply-1", auto_delete=True), no_ack=True)
    publish(sender, 1, routing_key="reply-1", delivery_mode=1)
    publish(sender, 2, routing_key="reply-1", delivery_mode=2)
    take(reader, found, 2)
    assert sorted(one.payload for one in found) == [1, 2]
    assert not reader.default_channel.store.has_topic(topic_of(reader, "reply-1"))


def test_a_reply_that_comes_before_its_reader_consumes(connect: Connect) -> None:
    """Celery declares the queue of results where it publishes a task, and consumes with another connection later.

    A queue whose consumer was cancelled begins at the end when it is declared again.
    """
    caller, reader, later, sender = connect(), connect(), connect(), connect()
    exchange = Exchange("early-exchange", type="topic")
    queue = Queue("early-reply", exchange, routing_key="early.*", auto_delete=True)
    queue(caller.default_channel).declare()
    publish(sender, 1, routing_key="early-reply")
    publish(sender, 2, exchange=exchange, routing_key="early.a")
    found: list[Any] = []
    consumer = Consumer(reader.channel(), [queue], on_message=found.append, no_ack=True)
    consumer.consume()
    take(reader, found, 2)
    nothing_comes(reader)
    assert sorted(one.payload for one in found) == [1, 2]
    consumer.cancel()
    publish(sender, 3, routing_key="early-reply")
    again = consume(later, queue, no_ack=True)
    publish(sender, 4, routing_key="early-reply")
    take(later, again, 1)
    assert [one.payload for one in again] == [4]


def test_single_messages_sizes_and_purges(connect: Connect) -> None:
    """`get` returns a message or None, a purge the number of messages that it took."""
    queue, connection = Queue("single"), connect()
    bound = queue(connection.channel())
    bound.declare()
    assert bound.get() is None
    for number in range(3):
        publish(connection, number, routing_key="single")
    message = None
    end_s = time.monotonic() + LIMIT_S
    while message is None and time.monotonic() < end_s:
        message = bound.get()
    assert message is not None
    assert message.payload == 0
    assert bound.purge() == 2
    assert bound.get() is None
    message.ack()
    bound.delete()


def test_an_outage_ends_no_connection(connect: Connect, reput: MemoryReput) -> None:
    """While the store is away, a consumer waits; afterwards what it holds can be acknowledged, and messages come."""
    queue, connection = Queue("outage"), connect()
    publish(connection, 1, routing_key="outage", declare=[queue])
    found = consume(connection, queue)
    take(connection, found, 1)
    reput.restart(crash=True)
    found[0].ack()
    publish(connection, 2, routing_key="outage")
    take(connection, found, 2)
    assert [one.payload for one in found] == [1, 2]


def test_errors_say_what_helps(connect: Connect, reput: MemoryReput) -> None:
    """A store that is away is a connection error; a message that is too large is a channel error, and stays one."""
    connection = connect(timeout_s=1)
    publish(connection, 1, routing_key="errors", declare=[Queue("errors")])
    with pytest.raises(connection.channel_errors, match="MESSAGE_TOO_LARGE"):
        publish(connection, "x" * (2 << 20), routing_key="errors")
    reput.stop()
    with pytest.raises(connection.recoverable_connection_errors):
        publish(connection, 2, routing_key="errors")
    lost = kombu.Connection("reput://", connect_timeout=0.5)
    with pytest.raises(kombu.exceptions.OperationalError):
        lost.ensure_connection(max_retries=1, interval_start=0)
    reput.start()


def test_an_idle_consumer_makes_few_calls(connect: Connect, monkeypatch: pytest.MonkeyPatch) -> None:
    """No busy loop: an idle queue costs a call in a second."""
    calls: list[float] = []
    real = receiving.SharedReceiving.receive

    def counted(self: receiving.SharedReceiving, count: int) -> None:
        calls.append(time.monotonic())
        real(self, count)

    monkeypatch.setattr(receiving.SharedReceiving, "receive", counted)
    connection = connect()
    consume(connection, Queue("idle"))
    with pytest.raises(socket.timeout):
        connection.drain_events(timeout=3)
    assert len(calls) <= 5


def test_an_event_loop_delivers_what_arrives(connect: Connect) -> None:
    """Kombu's event loop, with which Celery's worker runs, is woken by messages."""
    queue, connection, hub = Queue("loop"), connect(), Hub()
    found = consume(connection, queue)
    connection.transport.register_with_event_loop(connection.connection, hub)
    for number in range(3):
        publish(connection, number, routing_key="loop", declare=[queue])
    end_s = time.monotonic() + LIMIT_S
    while len(found) < 3 and time.monotonic() < end_s:
        hub.run_once()
    assert [one.payload for one in found] == [0, 1, 2]
    connection.close()
    hub.close()


def test_an_expired_message_is_not_delivered(connect: Connect) -> None:
    """A message with an `expiration` is gone after it."""
    queue, connection = Queue("expires"), connect()
    publish(connection, 1, routing_key="expires", declare=[queue], expiration=0.001)
    publish(connection, 2, routing_key="expires", expiration=3600)
    time.sleep(SHORT_S)
    found = consume(connection, queue)
    take(connection, found, 1)
    nothing_comes(connection)
    assert [one.payload for one in found] == [2]
