# SPDX-License-Identifier: Apache-2.0
"""The Python client over all shards: keys keep their order while queues change, and a shard that is away is named."""

import asyncio
import os
import signal
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from reput_client import (
    Message,
    NewMessage,
    ProducerOptions,
    Received,
    ReputError,
    SendResult,
    ShardedClient,
    ShardReceived,
    aio,
    connect_shards,
)

from libs.formats.config.topic_share import key_hash
from tests.e2e.test_shard_changes import TOPIC, Shards, shards_at
from tests.support.patience import LIMIT_S

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

KEYS = [f"key-{number}" for number in range(24)]
OPTIONS = ProducerOptions(window_bytes=256 << 10, batch_size_bytes=32 << 10)
PAUSE_S = 0.004
NAMES = "a,b,c"
BODY = b"." * 100


async def change_queues(shards: Shards) -> None:
    """Split, move and merge queues."""
    await asyncio.sleep(0.3)
    await shards.change("split", TOPIC, "0")
    await shards.change("split", TOPIC, "2", "--to", "a", "--to", "b", "--to", "c")
    await shards.change("move", TOPIC, "3", "--to", "c")
    await shards.change("merge", TOPIC, "8", "4", "--to", "a")
    await asyncio.sleep(0.3)


def send_in_threads(door: str, stopping: asyncio.Event) -> list[Any]:
    """Send messages of all keys with the synchronous producer, without waiting for outcomes, and return these."""
    futures = []
    with connect_shards(door, NAMES) as client, client.producer(OPTIONS) as producer:
        number = 0
        while not stopping.is_set():
            futures += [producer.send(TOPIC, f"{key}/{number}/".encode() + BODY, sharding_key=key) for key in KEYS]
            number += 1
            time.sleep(PAUSE_S)
        producer.flush(LIMIT_S)
        print(producer.metrics())
    return [future.result(0) for future in futures]


async def send_on_a_loop(door: str, stopping: asyncio.Event) -> list[Any]:
    """Send messages of all keys with the asyncio producer."""
    futures = []
    async with aio.connect_shards(door, NAMES) as client, client.producer(OPTIONS) as producer:
        number = 0
        while not stopping.is_set():
            for key in KEYS:
                body = f"{key}/{number}/".encode() + BODY
                futures.append(await producer.send(TOPIC, body, sharding_key=key))
            number += 1
            await asyncio.sleep(PAUSE_S)
        await producer.flush()
        print(producer.metrics())
    return [future.result() for future in futures]


async def in_a_thread(door: str, stopping: asyncio.Event) -> list[Any]:
    """Send with the synchronous producer in a thread of its own."""
    return await asyncio.to_thread(send_in_threads, door, stopping)


def stored_in(client: ShardedClient, count: int) -> list[Message]:
    """All messages of the topic, when so many are indexed."""
    end_s = time.monotonic() + LIMIT_S
    while len(found := list(client.query.by_time(TOPIC))) < count:
        assert time.monotonic() < end_s, f"{len(found)} of {count}"
        time.sleep(0.1)
    return found


@pytest.mark.parametrize("send", [in_a_thread, send_on_a_loop])
async def test_keys_keep_their_order_while_queues_change(
    tmp_path: Path, send: Callable[[str, asyncio.Event], Awaitable[list[Any]]]
) -> None:
    """No message is lost or stored twice, and the messages of a key are in order over parents and children."""
    async with shards_at(tmp_path / "store", 3) as shards:
        await shards.rows("create", TOPIC, "--queues", "3")
        stopping = asyncio.Event()
        sending = asyncio.create_task(send(shards.store.door, stopping))
        try:
            await change_queues(shards)
        finally:
            stopping.set()
            results = await sending
        assert len({(result.queue_id, result.queue_offset) for result in results}) == len(results)
        with connect_shards(shards.store.door, NAMES) as client:
            found = await asyncio.to_thread(stored_in, client, len(results))
        assert [message.store_time_ms for message in found] == sorted(message.store_time_ms for message in found)
        check_keys(found, len(results), await shards.topic())


def check_keys(found: list[Message], count: int, queues: dict[int, dict[str, Any]]) -> None:
    """Each message is there once. A child has a larger number than its parents, so numbers give the order of queues."""
    assert len(found) == count
    by_key: dict[str, list[int]] = {}
    used: dict[str, set[int]] = {}
    for message in sorted(found, key=lambda one: (one.queue_id, one.queue_offset)):
        key, number, _ = message.body.decode().split("/")
        queue = queues[message.queue_id]
        assert queue["first_hash"] <= key_hash(key) <= queue["last_hash"], message
        by_key.setdefault(key, []).append(int(number))
        used.setdefault(key, set()).add(message.queue_id)
    assert {key: numbers for key, numbers in by_key.items() if numbers != list(range(count // len(KEYS)))} == {}
    assert max(map(len, used.values())) >= 3, "some keys were at three queues"
    print(f"{count} messages, the keys were at {sorted(map(len, used.values()))} queues")


@contextmanager
def stopped(*processes: int) -> Iterator[None]:
    """Processes that do not run within the block."""
    for process in processes:
        os.kill(process, signal.SIGSTOP)
    try:
        yield
    finally:
        for process in processes:
            os.kill(process, signal.SIGCONT)


async def test_messages_of_all_shards_are_received(tmp_path: Path) -> None:
    """A group receives each message once, from all shards, and goes on while the Delivery of a shard stands still."""
    async with shards_at(tmp_path / "store", 2) as shards:
        await shards.rows("create", TOPIC, "--queues", "4")
        await receive_on_a_loop(shards)
        await asyncio.to_thread(run_in_threads, shards)


async def receive_on_a_loop(shards: Shards) -> None:
    """Receive, settle and iterate with the asyncio client."""
    async with aio.connect_shards(shards.store.door, "a,b") as client, client.producer() as producer:
        outcomes = await (
            await producer.send_batch([NewMessage(TOPIC, key.encode(), sharding_key=key) for key in KEYS])
        )
        assert all(isinstance(outcome, SendResult) for outcome in outcomes)
        async with client.share_consumer(TOPIC, group="loop") as consumer:
            found: list[Received] = []
            async with asyncio.timeout(LIMIT_S):
                while len(found) < len(KEYS):
                    found += await consumer.receive(10, 2)
            assert sorted(one.message.body.decode() for one in found) == sorted(KEYS)
            assert {one.shard for one in found if isinstance(one, ShardReceived)} == {"a", "b"}
            first, *rest = found
            await consumer.ack(*rest)
            await consumer.nack(first, delay_s=0)
            async with asyncio.timeout(LIMIT_S):
                async for again in consumer:
                    assert (again.message.body, again.attempt) == (first.message.body, 2)
                    await consumer.ack(again)
                    break
            assert await consumer.receive(10, 0) == []
            assert consumer.metrics().message_count == len(KEYS) + 1
            delivery = shards.store.targets["delivery"].split(",")[1].rpartition(":")[2]
            with stopped(shards.store.child("delivery", delivery)):
                results = [await (await producer.send(TOPIC, b"late", sharding_key=key)) for key in KEYS]
                here_count = sum(result.queue_id < 2 for result in results)
                late: list[Received] = []
                async with asyncio.timeout(15):
                    while len(late) < here_count:
                        received = await consumer.receive(10, 2)
                        await consumer.ack(*received)
                        late += received
            assert {one.shard for one in late if isinstance(one, ShardReceived)} == {"a"}


def run_in_threads(shards: Shards) -> None:
    """Receive with callbacks of the synchronous client."""
    bodies: list[bytes] = []
    with connect_shards(shards.store.door, "a,b") as client:
        consumer = client.share_consumer(TOPIC, group="threads", poll_s=0.5)

        def handle(received: Received) -> None:
            bodies.append(received.message.body)
            if len(bodies) == 2 * len(KEYS):
                threading.Thread(target=consumer.close).start()

        consumer.run(handle, concurrency=3)
        assert consumer.receive(1, 0) == []
    assert sorted(bodies) == sorted([*(key.encode() for key in KEYS), *[b"late"] * len(KEYS)])


async def test_a_shard_that_is_away(tmp_path: Path) -> None:
    """Messages without a key go on while a shard dies, and a query names a shard that does not answer."""
    async with shards_at(tmp_path / "store", 2) as shards:
        await shards.rows("create", TOPIC, "--queues", "4")
        await asyncio.to_thread(go_on_without_a_shard, shards)


def go_on_without_a_shard(shards: Shards) -> None:
    """Send and query while the second shard is away."""
    store = shards.store
    log, index = (store.targets[name].split(",")[1].rpartition(":")[2] for name in ("commitlog", "indexer"))
    with connect_shards(store.door, ["a", "b"]) as client:
        producer = client.producer()
        sent = [producer.send(TOPIC, b"early", keys="k").result(LIMIT_S) for _ in range(20)]
        assert {result.queue_id // 2 for result in sent} == {0, 1}
        os.kill(store.child("commitlog", log), signal.SIGKILL)
        futures, times_s = [], []
        for _ in range(100):
            start_s = time.monotonic()
            futures.append(producer.send(TOPIC, b"meanwhile", keys="k"))
            futures[-1].exception(LIMIT_S)
            times_s.append(time.monotonic() - start_s)
        assert sum(took_s < 1 for took_s in times_s) >= 90, times_s
        places = {(one.result().queue_id, one.result().queue_offset) for one in futures}
        assert len(places) == len(futures)
        found = stored_in(client, 120)
        assert len({message.unique_id for message in found}) == 120
    with connect_shards(store.door, ["a", "b"], timeout_s=2) as client, stopped(store.child("indexer", index)):
        with pytest.raises(ReputError, match="shard b: ") as caught:
            list(client.query.by_key(TOPIC, "k"))
        assert caught.value.metadata["shard"] == "b"
        partial = client.query.by_key(TOPIC, "k", allow_incomplete=True)
        here = list(partial)
        assert list(partial.missing) == ["b"]
        assert {message.queue_id for message in here} <= {0, 1}
        assert here
        assert client.query.by_id(here[0].offset_message_id) == here[0]
        with pytest.raises(ReputError, match="shard b: "):
            client.query.by_id("no-such-id", topic=TOPIC)
    with connect_shards(store.door, ["a", "b"]) as client:
        everywhere = list(client.query.by_key(TOPIC, "k"))
        times_ms = [message.store_time_ms for message in everywhere]
        assert (len(everywhere) >= 120, times_ms) == (True, sorted(times_ms, reverse=True))
        at_b = next(message for message in everywhere if message.queue_id > 1)
        assert client.query.by_id(at_b.offset_message_id) == at_b
        assert at_b.unique_id is not None
        assert client.query.by_id(at_b.unique_id, topic=TOPIC) == at_b
