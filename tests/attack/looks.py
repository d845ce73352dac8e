# SPDX-License-Identifier: Apache-2.0
"""Looks: honest callers at work beside a greedy client. Each look belongs to a row of the attack.

A look ends by itself. It adds to the counts of the row, and returns the broken bounds as sentences.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import grpc
from google.protobuf.duration_pb2 import Duration
from grpc_health.v1 import health_pb2, health_pb2_grpc
from reput.commitlog.v1 import append_service_pb2, append_service_pb2_grpc, topic_service_pb2, topic_service_pb2_grpc
from reput.delivery.v1 import delivery_service_pb2, delivery_service_pb2_grpc
from reput.indexer.v1 import queue_service_pb2, queue_service_pb2_grpc

from tests.attack import store
from tests.attack.caller import AGAIN_S, Counts
from tests.attack.canary import CALL_TIMEOUT_S, PACE_S, quantile
from tests.attack.sharing import IDLE
from tests.attack.stack import Stack

SEEN, SEEN_GROUP = "seen", "seers"
LOOK_S = 8.0
SEEN_MS_MAX = 3_000.0
"""How soon 99 of 100 messages of others are seen: twice the time of a batch of new queues on two cores."""
SEEN_COUNT_MIN = 10
GET_IN_S = 10.0
WAIT = Duration(seconds=20)
THREAD_COUNT_MAX = 200
LOCAL_POOL = [("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0)]

Look = Callable[[Stack, Counts], Awaitable[list[str]]]


async def indexer_returns(stack: Stack, _: Counts) -> list[str]:
    """Whether an Indexer that starts now gets its stream."""
    await asyncio.sleep(3)
    indexer = stack.services["indexer"]
    await asyncio.to_thread(indexer.kill)
    try:
        await asyncio.to_thread(store.wait_live, indexer.target, timeout_s=5)
    except AssertionError as error:
        return [str(error)]
    return []


async def metrics_answer(stack: Stack, _: Counts) -> list[str]:
    """Whether threads stay few and an honest scraper is served."""
    await asyncio.sleep(3)
    service = stack.services["commitlog"]
    broken = []
    if (count := service.thread_count()) > THREAD_COUNT_MAX:
        broken.append(f"threads: {count}, at most {THREAD_COUNT_MAX}")
    try:
        await asyncio.to_thread(service.metrics)
    except OSError as error:
        broken.append(f"metrics: {error}")
    return broken


async def readers_see_soon(stack: Stack, counts: Counts) -> list[str]:
    """Whether a reader of a queue that has messages gets the next message soon."""
    async with _channel(stack, "commitlog") as log, _channel(stack, "indexer") as index:
        await _begin(log, stack, SEEN)
        queues = queue_service_pb2_grpc.QueueServiceStub(index)

        async def read(number: int) -> None:
            pull = queue_service_pb2.PullRequest(topic=SEEN, queue_id=0, queue_offset=number, wait=WAIT)
            while not (await queues.Pull(pull, timeout=CALL_TIMEOUT_S)).messages:
                pass

        return await _seen(log, read, counts)


async def members_receive_soon(stack: Stack, counts: Counts) -> list[str]:
    """Whether the only member of another group gets its messages soon, while idle members each get a few."""
    async with _channel(stack, "commitlog") as log, _channel(stack, "delivery") as delivery:
        await _begin(log, stack, SEEN)
        stub = delivery_service_pb2_grpc.DeliveryServiceStub(delivery)
        receive = delivery_service_pb2.ReceiveRequest(group=SEEN_GROUP, topic=SEEN, message_count_max=1, wait=WAIT)

        async def read(number: int) -> None:
            if number:  # the first message was there before
                await _append(log, IDLE)
            while not (found := (await stub.Receive(receive, timeout=CALL_TIMEOUT_S)).messages):
                pass
            entries = [delivery_service_pb2.SettleEntry(handle=one.handle, ack={}) for one in found]
            await stub.Settle(delivery_service_pb2.SettleRequest(entries=entries), timeout=CALL_TIMEOUT_S)

        await read(0)
        return await _seen(log, read, counts)


async def newcomers_get_in(stack: Stack, counts: Counts) -> list[str]:
    """Whether new callers and scrapers are served by services that have few files left, when they ask again."""
    counts |= {"newcomers": 0, "asked_again": 0}
    end_s = time.monotonic() + LOOK_S
    while time.monotonic() < end_s:
        for name in ("commitlog", "indexer"):
            if told := await _kept_out(stack, name, counts):
                return [f"a newcomer at the {name} was kept out for {GET_IN_S:.0f} s: {told}"]
            counts["newcomers"] += 1
        await asyncio.sleep(PACE_S)
    return []


async def _kept_out(stack: Stack, name: str, counts: Counts) -> str:
    """Call as a new caller, again after each failure for a while. Returns why that did not help, or nothing."""
    end_s = time.monotonic() + GET_IN_S
    while True:
        try:
            async with _channel(stack, name) as channel:
                await health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=GET_IN_S)
            await asyncio.to_thread(stack.services[name].metrics)
        except (grpc.aio.AioRpcError, OSError) as error:
            if time.monotonic() > end_s:
                return str(error.details() if isinstance(error, grpc.aio.AioRpcError) else error)
            counts["asked_again"] += 1
            await asyncio.sleep(AGAIN_S)
        else:
            return ""


def _channel(stack: Stack, name: str) -> grpc.aio.Channel:
    return grpc.aio.insecure_channel(stack.targets[name], LOCAL_POOL)


async def _append(log: grpc.aio.Channel, topic: str) -> int:
    """Append a message; where the log ends then."""
    messages = [append_service_pb2.AppendMessage(topic=topic, queue_id=0, body=b"x")]
    request = append_service_pb2.AppendRequest(messages=messages, durability=1)
    response = await append_service_pb2_grpc.AppendServiceStub(log).Append(request, timeout=CALL_TIMEOUT_S)
    end: int = response.result.end_physical_offset
    return end


async def _begin(log: grpc.aio.Channel, stack: Stack, topic: str) -> None:
    """Make a topic of a single queue and its first message, before the client takes the budget for new queues."""
    create = topic_service_pb2.CreateTopicRequest(name=topic, read_queue_count=1, write_queue_count=1)
    await topic_service_pb2_grpc.TopicServiceStub(log).CreateTopic(create, timeout=CALL_TIMEOUT_S)
    await asyncio.to_thread(store.wait_indexed, stack.targets["indexer"], await _append(log, topic))


async def _seen(log: grpc.aio.Channel, read: Callable[[int], Awaitable[None]], counts: Counts) -> list[str]:
    """Send and read messages in turn. `read` gets the number of each, from 1 on."""
    times_ms: list[float] = []
    end_s = time.monotonic() + LOOK_S
    while time.monotonic() < end_s or len(times_ms) < SEEN_COUNT_MIN:
        start_s = time.monotonic()
        try:
            await _append(log, SEEN)
            await read(len(times_ms) + 1)
        except grpc.aio.AioRpcError as error:
            return [f"a message that should be seen: {error.code().name}: {error.details()}"]
        times_ms.append((time.monotonic() - start_s) * 1_000)
        await asyncio.sleep(PACE_S)
    p99_ms = quantile(times_ms, 0.99)
    counts |= {"seen": len(times_ms), "seen_p99_ms": round(p99_ms)}
    return [f"seen after: p99 {p99_ms:,.0f} ms, at most {SEEN_MS_MAX:,.0f}"] if p99_ms > SEEN_MS_MAX else []


LOOKS: dict[str, Look] = {
    "idle_append_streams": indexer_returns,
    "metrics_connections": metrics_answer,
    "new_queues": readers_see_soon,
    "idle_members": members_receive_soon,
    "few_files": newcomers_get_in,
}
"""The looks, by the name of the row."""
