# SPDX-License-Identifier: Apache-2.0
"""Messages that wait for their time, over real services."""

import asyncio
import contextlib
import random
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp
from reput.commitlog.v1.append_service_pb2 import AppendMessage, AppendRequest
from reput.delivery.v1 import delay_service_pb2 as pb

from tests.support import served_commitlog, served_delivery, served_indexer
from tests.support.patience import LIMIT_S
from tests.support.service_process import Refusal
from tests.support.surroundings import free_port
from tests.timed.load import TOPIC, Load

HOUR_S = 3_600


class Stack:
    """A store with a Delivery."""

    def __init__(
        self, log: served_commitlog.Client, index: served_indexer.Client, client: served_delivery.Client
    ) -> None:
        self.log, self.index, self.client = log, index, client
        self.load = Load(log, index, random.Random(5))


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with (
        served_commitlog.served(tmp_path) as (commitlog, log),
        served_indexer.served(tmp_path, f"127.0.0.1:{commitlog.server.port}") as (indexer, index),
        served_delivery.process(f"127.0.0.1:{commitlog.server.port}", f"127.0.0.1:{indexer.server.port}") as delivery,
        served_delivery.client_of(f"127.0.0.1:{delivery.port}") as client,
    ):
        yield Stack(log, index, client)


async def test_they_come_at_their_time(stack: Stack) -> None:
    """Timed messages are delivered once, not early, and without a request for them."""
    await stack.load.send(300, least_ms=0, most_ms=2_500)
    outcome = await stack.load.until_delivered()
    assert (outcome.early_count, outcome.twice, outcome.missing) == (0, [], [])


async def test_list_and_cancel(stack: Stack) -> None:
    """Waiting messages are listed and cancelled by unique id, and by the id in the answer of the append.

    A cancelled message is not listed and never delivered.
    """
    due = Timestamp(seconds=int(time.time()) + HOUR_S)
    named = {"UNIQ_KEY": "u1", "KEYS": "order-7", "TIMER_DELIVER_MS": str(due.seconds * 1000)}
    messages = [
        AppendMessage(topic=TOPIC, body=b"named", properties=named),
        AppendMessage(topic=TOPIC, body=b"plain", properties={"TIMER_DELAY_SEC": "7200"}),
    ]
    await stack.log.append.Append(AppendRequest(messages=messages))
    async with asyncio.timeout(LIMIT_S):
        listed = await stack.client.delays.ListDelayed(pb.ListDelayedRequest())
        while len(listed.messages) < 2:
            await asyncio.sleep(0.05)
            listed = await stack.client.delays.ListDelayed(pb.ListDelayedRequest())
    assert [one.message.body for one in listed.messages] == [b"named", b"plain"]
    assert (listed.messages[0].topic, listed.messages[0].delivery_time, listed.messages[0].message_id) == (
        TOPIC,
        due,
        "u1",
    )
    by_key = await stack.client.delays.ListDelayed(pb.ListDelayedRequest(key="order-7", topic=TOPIC))
    assert [one.message.body for one in by_key.messages] == [b"named"]
    later = pb.ListDelayedRequest(start_time=Timestamp(seconds=due.seconds + 1))
    assert [one.message.body for one in (await stack.client.delays.ListDelayed(later)).messages] == [b"plain"]
    for message_id in ("u1", listed.messages[1].message_id, "u1"):
        await stack.client.delays.CancelDelayed(pb.CancelDelayedRequest(topic=TOPIC, message_id=message_id))
    assert not (await stack.client.delays.ListDelayed(pb.ListDelayedRequest())).messages
    await stack.load.send(1, least_ms=0, most_ms=0)
    await stack.load.until_delivered()
    for message_id, reason in (("nobody", "DELAYED_NOT_FOUND"), ("", "BAD_ARGUMENT"), ("a b", "BAD_ARGUMENT")):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stack.client.delays.CancelDelayed(pb.CancelDelayedRequest(topic=TOPIC, message_id=message_id))
        assert Refusal(refused.value).reason == reason


async def test_too_late(stack: Stack) -> None:
    """A message that was delivered can't be cancelled, and the reason is DELAYED_TOO_LATE."""
    properties = {"UNIQ_KEY": "soon", "TIMER_DELAY_MS": "20"}
    await stack.log.append.Append(AppendRequest(messages=[AppendMessage(topic=TOPIC, properties=properties)]))
    stack.load.due_ms["soon"] = 0
    await stack.load.until_delivered()
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stack.client.delays.CancelDelayed(pb.CancelDelayedRequest(topic=TOPIC, message_id="soon"))
    assert Refusal(refused.value).reason == "DELAYED_TOO_LATE"


async def test_kills(tmp_path: Path) -> None:
    """Through repeated kills of log, index and Delivery each message is delivered once, and none early.

    No cancelled message is delivered.
    """
    chance = random.Random(3)
    ports = [free_port() for _ in range(3)]
    log_target, index_target, target = (f"127.0.0.1:{port}" for port in ports)
    starts = [
        lambda: served_commitlog.Process.start(tmp_path, "--port", str(ports[0])),
        lambda: served_indexer.Process.start(tmp_path, "--port", str(ports[1]), "--commitlog-target", log_target),
        lambda: served_delivery.Process.start(
            tmp_path, "--port", str(ports[2]), "--commitlog-target", log_target, "--indexer-target", index_target
        ),
    ]
    processes = [await (await start()).wait_serving() for start in starts]
    cancelled: set[str] = set()
    asked: set[str] = set()
    try:
        async with (
            processes[0].client() as log,  # type: ignore[attr-defined]
            processes[1].client() as index,  # type: ignore[attr-defined]
            served_delivery.client_of(target) as client,
        ):
            load = Load(log, index, chance)
            await load.send(1_000, least_ms=0, most_ms=6_000)
            for _ in range(4):
                await asyncio.sleep(chance.uniform(0.05, 0.6))
                for name in chance.sample(sorted(load.due_ms), 5):
                    asked.add(name)
                    with contextlib.suppress(grpc.aio.AioRpcError):
                        request = pb.CancelDelayedRequest(topic=TOPIC, message_id=name)
                        await client.delays.CancelDelayed(request, timeout=5)
                        cancelled.add(name)
                which = chance.choice([0, 1, 2, 2])
                await processes[which].end(signal.SIGKILL)
                processes[which] = await (await starts[which]()).wait_serving()
            outcome = await load.until_delivered(without=asked)
            assert (outcome.early_count, outcome.twice, outcome.missing) == (0, [], [])
            assert not cancelled & (await load.delivered()).keys()
    finally:
        for process in reversed(processes):
            await process.end(signal.SIGKILL)
