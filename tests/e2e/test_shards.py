# SPDX-License-Identifier: Apache-2.0
"""`reput up --shards 2`: topics on two stores behind a gateway, which go on while a shard is away."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from reput.commitlog.v1 import topic_service_pb2, topic_service_pb2_grpc

from services.gateway.rpc.wire import messaging_pb2 as wire
from tests.support import reput_up
from tests.support.patience import LIMIT_S
from tests.support.served_gateway import PLACE, Caller, named

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

QUEUE_COUNT, KEY_COUNT, COUNT = 8, 20, 200


@pytest.fixture
async def shards(tmp_path: Path) -> AsyncIterator[tuple[reput_up.Store, Caller]]:
    """Two shards with the topic `orders`, and a client of their gateway."""
    file = str(tmp_path / "store" / "shards.toml")
    with reput_up.store(tmp_path / "store", *reput_up.WITH_GATEWAY, "--shards", "2") as store:
        made = store.json("shards", "create", "orders", "--queues", str(QUEUE_COUNT), "--shards-file", file)
        assert [(row["queue_id"], row["shard"]) for row in made] == [(number, "ab"[number // 4]) for number in range(8)]
        async with grpc.aio.insecure_channel(store.door) as channel:
            yield store, Caller(channel)


async def received(client: Caller, count: int) -> list[wire.Message]:
    """Receive and acknowledge so many messages."""
    found: list[wire.Message] = []
    async with asyncio.timeout(LIMIT_S):
        while len(found) < count:
            messages = await client.receive("orders", wait_s=2)
            found += messages
            if messages:
                handles = [message.system_properties.receipt_handle for message in messages]
                acked = await client.ack("orders", *handles)
                assert acked.status.code == wire.CODE_OK
    return found


async def test_messages_of_all_shards(shards: tuple[reput_up.Store, Caller], tmp_path: Path) -> None:
    """Each key stays at a queue, places are unique over the shards, and a group receives all messages once."""
    store, client = shards
    for number in range(COUNT):
        message = client.message("orders", f"{number}".encode(), message_group=f"key-{number % KEY_COUNT}")
        assert (await client.send("orders", message)).status.code == wire.CODE_OK
    found = await received(client, COUNT)
    assert sorted(int(message.body) for message in found) == list(range(COUNT))
    places = {(one.system_properties.queue_id, one.system_properties.queue_offset) for one in found}
    assert len(places) == COUNT
    by_key: dict[str, list[tuple[int, int]]] = {}
    for one in found:
        by_key.setdefault(one.system_properties.message_group, []).append(
            (one.system_properties.queue_id, int(one.body))
        )
    assert len(by_key) == KEY_COUNT
    assert all(len({queue_id for queue_id, _ in one}) == 1 for one in by_key.values())
    assert {queue_id for one in by_key.values() for queue_id, _ in one} & set(range(4, 8)), "some are at the second"
    assert await client.receive("orders", wait_s=1) == []

    route = await client.call("QueryRoute", wire.QueryRouteRequest(topic=named("orders"), endpoints=PLACE))
    brokers = {(queue.id, queue.broker.name) for queue in route.message_queues}
    assert brokers == {(number, "ab"[number // 4]) for number in range(QUEUE_COUNT)}
    file = str(tmp_path / "store" / "shards.toml")
    rows = store.json("shards", "list", "--shards-file", file)
    assert sum(row["messages"] for row in rows if row["shard"] in "ab") >= COUNT
    assert all(row["topics"] for row in rows)
    shown = store.json("shards", "topic", "orders", "--shards-file", file)
    assert sum(row["messages"] for row in shown) == COUNT


async def test_native_calls_name_their_shard(shards: tuple[reput_up.Store, Caller]) -> None:
    """A call of a service's own API goes to the shard that its metadata name, and is refused without one."""
    _, client = shards
    topics = topic_service_pb2_grpc.TopicServiceStub(client.channel)
    request = topic_service_pb2.GetTopicRequest(name="orders")
    for name, ids in (("a", [0, 1, 2, 3]), ("b", [4, 5, 6, 7])):
        answer = await topics.GetTopic(request, metadata=(("reput-shard", name),), timeout=LIMIT_S)
        assert [queue.queue_id for queue in answer.topic.share.queues] == ids
    for metadata in ((), (("reput-shard", "c"),)):
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await topics.GetTopic(request, metadata=metadata, timeout=LIMIT_S)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert "one of the shards a, b" in str(caught.value.details())


async def test_commands_name_their_shard(shards: tuple[reput_up.Store, Caller]) -> None:
    """A command goes through the gateway to the shard of --shard, and is refused without it."""
    store, _ = shards
    for name, first in (("a", 0), ("b", 4)):
        result = await asyncio.to_thread(
            reput_up.run_here, "--store", store.door, "--shard", name, "topics", "get", "orders", "--json"
        )
        (row,) = result.rows
        assert row["share"][1][0][0] == first
    refused = await asyncio.to_thread(reput_up.run_here, "--store", store.door, "topics", "get", "orders")
    assert "one of the shards a, b" in refused.errors


async def test_a_shard_that_dies(shards: tuple[reput_up.Store, Caller]) -> None:
    """While a shard is away, messages without a key go to the other. After its return all acknowledged are received."""
    store, client = shards
    for _ in range(10):
        assert (await client.send("orders")).status.code == wire.CODE_OK
    first, second = store.targets["commitlog"].split(",")
    os.kill(store.child("commitlog", second.rpartition(":")[2]), signal.SIGKILL)
    codes = [(await client.send("orders")).status.code for _ in range(100)]
    stored_count = codes.count(wire.CODE_OK)
    assert stored_count >= 90, codes
    assert first != second
    found = await received(client, 10 + stored_count)
    assert len({one.system_properties.message_id for one in found}) == 10 + stored_count

    keyed = [client.message("orders", message_group=f"key-{number}") for number in range(KEY_COUNT)]
    async with asyncio.timeout(LIMIT_S):
        while {(await client.send("orders", one)).status.code for one in keyed} != {wire.CODE_OK}:  # noqa: ASYNC110 - no event
            await asyncio.sleep(0.2)
