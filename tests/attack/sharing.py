# SPDX-License-Identifier: Apache-2.0
"""The greedy clients of Delivery and of the gateway; `greedy.py` runs them."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from reput.commitlog.v1 import append_service_pb2, topic_service_pb2
from reput.delivery.v1 import delivery_service_pb2, group_service_pb2

from services.gateway.rpc.messaging_servicer import SERVED_AS
from services.gateway.rpc.wire import messaging_pb2 as wire
from tests.attack import http2
from tests.attack.caller import Caller, Counts, Targets, hold
from tests.attack.stack import GREEDY_CALLS_PER_S, GREEDY_TOKEN
from tests.attack.store import LARGE

IDLE, MEMBER_COUNT = "idle", 2_000
GREEDY_TOPIC, GREEDY_TASK_COUNT, POLITE_TASK_COUNT = "greedy", 512, 20
APPEND = "/reput.commitlog.v1.AppendService/Append"
CREATE_TOPIC = "/reput.commitlog.v1.TopicService/CreateTopic"
RECEIVE = "/reput.delivery.v1.DeliveryService/Receive"
SET_GROUP = "/reput.delivery.v1.GroupService/SetGroup"
RECEIVE_MESSAGE = f"/{SERVED_AS}/ReceiveMessage"
HEARTBEAT = f"/{SERVED_AS}/Heartbeat"
TELEMETRY = f"/{SERVED_AS}/Telemetry"


def receives_that_do_not_read(targets: Targets, seconds: float) -> Counts:
    """Receives large messages for many groups in turn, and takes nothing of them."""
    connection = http2.Connection(targets["delivery"], window_bytes=0)
    count = 300
    for number in range(count):
        request = delivery_service_pb2.ReceiveRequest(group=f"g{number}", topic=LARGE, message_count_max=1_000)
        connection.call(RECEIVE, request.SerializeToString())
    time.sleep(seconds)
    return {"receives": count}


def groups_read_ahead(targets: Targets, seconds: float) -> Counts:
    """Receives a message for each of as many groups as there may be. Delivery reads ahead for each."""
    caller = Caller(targets["delivery"], seconds)
    while caller.has_time:
        group = f"ahead-{sum(caller.counts.values())}"
        caller.call(RECEIVE, delivery_service_pb2.ReceiveRequest(group=group, topic=LARGE, message_count_max=1))
    return caller.counts


def junk_groups(targets: Targets, seconds: float) -> Counts:
    """Gives unneeded groups a policy with everything that a policy may have."""
    caller = Caller(targets["delivery"], seconds)
    backoffs = [Duration(seconds=number) for number in range(1, 17)]
    policy = group_service_pb2.GroupPolicy(backoffs=backoffs, attempts_max=16)
    while caller.has_time:
        name = f"junk-{sum(caller.counts.values())}-{'x' * 60}"
        caller.call(SET_GROUP, group_service_pb2.SetGroupRequest(group=name, policy=policy))
    return caller.counts


def idle_members(targets: Targets, seconds: float) -> Counts:
    """Waits for messages as thousands of members of the same group, whose topic has hardly any messages."""
    Caller(targets["commitlog"], seconds).call(CREATE_TOPIC, topic_service_pb2.CreateTopicRequest(name=IDLE))
    request = delivery_service_pb2.ReceiveRequest(
        group=IDLE, topic=IDLE, message_count_max=1, wait=Duration(seconds=30)
    )
    raw = request.SerializeToString()
    return asyncio.run(hold(targets["delivery"], seconds, MEMBER_COUNT, lambda one: one.unary_unary(RECEIVE)(raw)))


def clients_do_not_read(targets: Targets, seconds: float) -> Counts:
    """Receives large messages as clients of RocketMQ do, and takes nothing of them."""
    connections = [
        http2.Connection(targets["gateway"], window_bytes=0, **{"x-mq-client-id": f"c{number}"}) for number in range(4)
    ]
    count = 300
    for number in range(count):
        request = wire.ReceiveMessageRequest(
            group=wire.Resource(name=f"c{number}"),
            message_queue=wire.MessageQueue(topic=wire.Resource(name=LARGE)),
            batch_size=32,
            invisible_duration=Duration(seconds=3_600),
        )
        connections[number % 4].call(RECEIVE_MESSAGE, request.SerializeToString())
    time.sleep(seconds)
    return {"receives": count}


def junk_clients(targets: Targets, seconds: float) -> Counts:
    """Heartbeats of unknown clients, with long names."""
    caller = Caller(targets["gateway"], seconds)
    raw = wire.HeartbeatRequest(client_type=wire.CLIENT_TYPE_PRODUCER)
    while caller.has_time:
        caller.call(HEARTBEAT, raw, ("x-mq-client-id", f"{sum(caller.counts.values())}{'x' * 1_000}"))
    return caller.counts


def client_streams(targets: Targets, seconds: float) -> Counts:
    """Opens the streams of thousands of clients, says nothing, and opens ended streams again."""
    names = itertools.count()

    def begin(channel: grpc.aio.Channel) -> Any:
        return channel.stream_stream(TELEMETRY)(metadata=(("x-mq-client-id", f"c{next(names)}"),))

    return asyncio.run(hold(targets["gateway"], seconds, 8_000, begin, again_s=seconds))


def quota(targets: Targets, seconds: float) -> Counts:
    """Appends as a subject with a quota, as fast as it can, and obeys no retry time."""
    return asyncio.run(_append_as_subject(targets["commitlog"], seconds, task_count=GREEDY_TASK_COUNT))


def quota_kept(targets: Targets, seconds: float) -> Counts:
    """Appends as the same subject, with as many calls as its quota has, and no more."""
    counts = asyncio.run(
        _append_as_subject(
            targets["commitlog"], seconds, task_count=POLITE_TASK_COUNT, pause_s=POLITE_TASK_COUNT / GREEDY_CALLS_PER_S
        )
    )
    return {"polite": counts["ok"]}


async def _append_as_subject(target: str, seconds: float, *, task_count: int = 1, pause_s: float = 0.0) -> Counts:
    """Append in tasks, again at once or after a pause. `over` is the number of answered calls beyond the quota."""
    messages = [append_service_pb2.AppendMessage(topic=GREEDY_TOPIC, body=bytes(1_000))]
    request = append_service_pb2.AppendRequest(messages=messages).SerializeToString()
    metadata = (("authorization", f"Bearer {GREEDY_TOKEN}"),)
    counts = {"ok": 0, "refused": 0}
    start_s = time.monotonic()

    async def append(channel: grpc.aio.Channel, at: int) -> None:
        for number in itertools.count():
            due_s = start_s + (number + at / task_count) * pause_s
            await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            if time.monotonic() - start_s >= seconds:
                break
            try:
                await channel.unary_unary(APPEND)(request, metadata=metadata, timeout=60)
                counts["ok"] += 1
            except grpc.aio.AioRpcError as error:
                name = "refused" if error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED else "failed"
                counts[name] = counts.get(name, 0) + 1

    async with grpc.aio.insecure_channel(target) as channel:
        await asyncio.gather(*(append(channel, at) for at in range(task_count)))
    limit = round(GREEDY_CALLS_PER_S * (time.monotonic() - start_s + 1)) + 1
    return counts | {"over": max(0, counts["ok"] - limit), "unreached": int(not counts["refused"])}
