# SPDX-License-Identifier: Apache-2.0
"""A table of cases for both fixtures: the store in memory answers as processes do."""

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
import reput_client
from pytest_reput import Reput
from reput_client import SharePolicy

WAIT_S = 25.0
"""How long a case waits for a message that must come."""
SHORT_S = 0.2
"""How long a case waits for a message that must not come."""


def sent(store: Reput, topic: str, *bodies: bytes, **fields: Any) -> list[reput_client.SendResult]:
    """Send bodies, and wait until queries find them."""
    client = store.client()
    with client.producer() as producer:
        results = [future.result() for future in [producer.send(topic, body, **fields) for body in bodies]]
    client.query.wait_indexed(results[-1])
    return results


def received(consumer: reput_client.ShareConsumer, count: int = 1) -> list[reput_client.Received]:
    """Receive so many messages."""
    found: list[reput_client.Received] = []
    end_s = time.monotonic() + WAIT_S
    while len(found) < count and time.monotonic() < end_s:
        found += consumer.receive(count - len(found), wait_s=5)
    return found


def bodies(messages: Any) -> list[bytes]:
    """Return the bodies of messages, stored or received."""
    return [getattr(one, "message", one).body for one in messages]


def sharing(store: Reput, topic: str, policy: SharePolicy | None = None, **options: Any) -> reput_client.ShareConsumer:
    """Return a consumer of a new group."""
    group = store.name("group")
    store.client().share_groups.set(group, policy or SharePolicy())
    return store.client().share_consumer(topic, group=group, **options)


def append_and_queries(store: Reput, topic: str) -> None:
    """A message is found by key, time and both ids."""
    (result,) = sent(store, topic, b"hello", keys=["k1"])
    query, at_ms = store.client().query, result.store_time_ms
    assert result.durability.name == "LOCAL_DISK"
    assert bodies(query.by_key(topic, "k1")) == bodies(query.by_time(topic, start=at_ms, end=at_ms + 1)) == [b"hello"]
    assert query.by_id(result.unique_id, topic=topic).body == query.by_id(result.offset_message_id).body == b"hello"


def pull_in_order(store: Reput, topic: str) -> None:
    """A pull returns a queue in its order."""
    sent(store, topic, *[b"%d" % number for number in range(50)], queue_id=0)
    pulled = store.client().queues.pull(topic, 0, 0, count=50)
    assert bodies(pulled.messages) == [b"%d" % number for number in range(50)]


def asyncio_client(store: Reput, topic: str) -> None:
    """The asyncio client sends and finds."""

    async def run() -> list[bytes]:
        async with store.aio.connect() as client:
            async with client.producer() as producer:
                result = await (await producer.send(topic, b"hello", keys=["k"]))
            await client.query.wait_indexed(result)
            return [message.body async for message in client.query.by_key(topic, "k")]

    assert asyncio.run(run()) == [b"hello"]


def share_and_settle(store: Reput, topic: str) -> None:
    """A settled message does not come again, a message that was given back does, with its attempt."""
    sent(store, topic, b"a")
    consumer = sharing(store, topic)
    (first,) = received(consumer)
    consumer.nack(first, delay_s=0)
    (again,) = received(consumer)
    assert (first.attempt, again.attempt) == (1, 2)
    consumer.ack(again)
    assert consumer.receive(wait_s=SHORT_S) == []


def dead_letters(store: Reput, topic: str) -> None:
    """A message that fails too often becomes a dead letter."""
    sent(store, topic, b"bad")
    consumer = sharing(store, topic, SharePolicy(attempts_max=1))
    (only,) = received(consumer)
    consumer.nack(only, delay_s=0)
    group, end_s = only_group(store, topic), time.monotonic() + WAIT_S
    while not (letters := list(store.client().dead_letters.list(group))):
        assert time.monotonic() < end_s
    assert [letter.message.body for letter in letters] == [b"bad"]


def only_group(store: Reput, topic: str) -> str:
    """Return the group that shares a topic."""
    groups = store.client().share_groups
    (found,) = [one.name for one in groups.list() if any(queue.topic == topic for queue in groups.get(one.name).queues)]
    return found


def a_delay(store: Reput, topic: str) -> None:
    """A delayed message comes at its time."""
    consumer = sharing(store, topic)
    begin_s = time.monotonic()
    sent_later = store.client().producer()
    sent_later.send(topic, b"later", delay_s=1).result()
    assert bodies(received(consumer)) == [b"later"]
    assert time.monotonic() - begin_s >= 1


def a_transaction(store: Reput, topic: str) -> None:
    """A message comes when its transaction is committed, and never after a rollback."""
    consumer, transactions, group = sharing(store, topic), store.client().transactions, store.name("producers")
    transactions.begin(topic, b"no", group=group).rollback()
    transaction = transactions.begin(topic, b"yes", group=group)
    assert consumer.receive(wait_s=SHORT_S) == []
    transaction.commit()
    assert bodies(received(consumer)) == [b"yes"]


def tags_and_filters(store: Reput, topic: str) -> None:
    """Consumers get the messages of their tag, or of their condition."""
    sent(store, topic, b"a", tag="A", properties={"size": "1"})
    sent(store, topic, b"b", tag="B", properties={"size": "9"})
    assert bodies(received(sharing(store, topic, tags="A"))) == [b"a"]
    assert bodies(received(sharing(store, topic, where="size > 5"))) == [b"b"]


def seek_and_commit(store: Reput, topic: str) -> None:
    """A consumer of a group with offsets goes back, and goes on where it has committed."""
    sent(store, topic, b"0", b"1", b"2", queue_id=0)
    group = store.name("offsets")
    with store.client().consumer(topic, group=group, start="earliest") as consumer:
        assert bodies(consumer.poll(WAIT_S) for _ in range(3)) == [b"0", b"1", b"2"]
        consumer.seek((topic, 0), 1)
        assert bodies([consumer.poll(WAIT_S)]) == [b"1"]
        consumer.commit()
    with store.client().consumer(topic, group=group) as consumer:
        assert bodies([consumer.poll(WAIT_S)]) == [b"2"]


def administration(store: Reput, topic: str) -> None:
    """Topics, states and retention are administered."""
    client = store.connect(token=store.operator_token)
    assert topic in {one.name for one in client.topics.list()}
    assert client.topics.update(topic, read_queue_count=8, write_queue_count=8).write_queue_count == 8
    assert client.admin.indexer_status().is_complete
    assert len(list(client.admin.segments())) >= 0
    client.admin.janitor_status()
    with pytest.raises(reput_client.AuthenticationError):
        store.client().topics.delete(topic)
    client.topics.delete(topic)
    with pytest.raises(reput_client.NotFoundError):
        client.topics.get(topic)


def a_scan(store: Reput, topic: str) -> None:
    """A topic is read as Arrow."""
    frames = pytest.importorskip("reput_client.frames")
    sent(store, topic, b"a", b"b", queue_id=0)
    assert frames.read(store.client(), topic).to_arrow().column("value").to_pylist() == [b"a", b"b"]


def a_restart(store: Reput, topic: str) -> None:
    """Messages and settlements survive a restart, and the same client goes on."""
    consumer = sharing(store, topic)
    sent(store, topic, b"done", b"open", keys=["k"], queue_id=0)
    consumer.ack(received(consumer)[0])
    store.restart()
    assert sorted(bodies(store.client().query.by_key(topic, "k"))) == [b"done", b"open"]
    assert bodies(received(consumer)) == [b"open"]


def a_crash(store: Reput, topic: str) -> None:
    """A message that was acknowledged with LOCAL_DISK survives a crash."""
    sent(store, topic, b"kept", keys=["k"])
    store.restart(crash=True)
    assert bodies(store.client().query.by_key(topic, "k")) == [b"kept"]


CASES: tuple[Callable[[Reput, str], None], ...] = (
    append_and_queries, pull_in_order, asyncio_client, share_and_settle, dead_letters, a_delay, a_transaction,
    tags_and_filters, seek_and_commit, administration, a_scan, a_restart, a_crash,
)  # fmt: skip


@pytest.mark.parametrize("fixture", ["reput", pytest.param("reput_processes", marks=pytest.mark.e2e)])
def test_each_case(fixture: str, request: pytest.FixtureRequest, subtests: pytest.Subtests) -> None:
    """Each case passes with each fixture."""
    store: Reput = request.getfixturevalue(fixture)
    for case in CASES:
        with subtests.test(case.__name__):
            case(store, store.topic(case.__name__))
