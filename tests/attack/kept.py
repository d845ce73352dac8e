# SPDX-License-Identifier: Apache-2.0
"""Messages, a topic and a group that hostile requests may not change, and the answers of honest readers about them."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration
from reput.commitlog.v1 import append_service_pb2, log_service_pb2, topic_service_pb2
from reput.delivery.v1 import delivery_service_pb2, group_service_pb2
from reput.indexer.v1 import consumer_offset_service_pb2, query_service_pb2, queue_service_pb2

from tests.attack import store
from tests.attack.hostile import KEPT

QUEUE_COUNT = 4
MESSAGE_COUNT = 400
COUNT_MAX = 4_096


async def put(targets: dict[str, str]) -> dict[str, bytes]:
    """Append, commit, wait for the indexes, receive. Returns the answers of honest readers then."""
    messages = [_message(number) for number in range(MESSAGE_COUNT)]
    offsets = [consumer_offset_service_pb2.ConsumerOffset(topic=KEPT, queue_id=1, queue_offset=7)]
    async with grpc.aio.insecure_channel(targets["commitlog"]) as channel:
        raw = await _call(channel, "AppendService/Append", append_service_pb2.AppendRequest(messages=messages))
        end = append_service_pb2.AppendResponse.FromString(raw).result.end_physical_offset
    await asyncio.to_thread(store.wait_indexed, targets["indexer"], end)
    async with grpc.aio.insecure_channel(targets["indexer"]) as channel:
        request = consumer_offset_service_pb2.CommitConsumerOffsetRequest(group=KEPT, offsets=offsets)
        await _call(channel, "ConsumerOffsetService/CommitConsumerOffset", request)
    async with grpc.aio.insecure_channel(targets["delivery"]) as channel:
        receive = delivery_service_pb2.ReceiveRequest(group=KEPT, topic=KEPT, invisible=HOUR, wait=WAIT)
        raw = await _call(channel, "DeliveryService/Receive", receive)
        received = delivery_service_pb2.ReceiveResponse.FromString(raw).messages
        acks = [delivery_service_pb2.SettleEntry(handle=one.handle, ack={}) for one in received[:5]]
        await _call(channel, "DeliveryService/Settle", delivery_service_pb2.SettleRequest(entries=acks))
    await asyncio.sleep(SETTLED_S)
    return await seen(targets)


HOUR = Duration(seconds=3_600)
WAIT = Duration(seconds=20)
"""How long the first receive of a group may wait for its messages."""
SETTLED_S = 12.0
"""After this time the files that follow an append by the clock are written."""


def _message(number: int) -> append_service_pb2.AppendMessage:
    properties = {"KEYS": f"key-{number % 10}", "UNIQ_KEY": f"unique-{number}", "TAGS": f"tag-{number % 3}"}
    return append_service_pb2.AppendMessage(
        topic=KEPT, queue_id=number % QUEUE_COUNT, body=b"%d" % number, properties=properties
    )


async def seen(targets: dict[str, str]) -> dict[str, bytes]:
    """The answers of honest readers, by name."""
    answers: dict[str, bytes] = {}
    async with grpc.aio.insecure_channel(targets["indexer"]) as channel:
        for queue_id in range(QUEUE_COUNT):
            pull = queue_service_pb2.PullRequest(topic=KEPT, queue_id=queue_id, message_count_max=COUNT_MAX)
            answers[f"queue {queue_id}"] = await _call(channel, "QueueService/Pull", pull)
        for number in range(10):
            by_key = query_service_pb2.QueryByKeyRequest(topic=KEPT, key=f"key-{number}")
            raw = await _call(channel, "QueryService/QueryByKey", by_key)
            found = query_service_pb2.QueryByKeyResponse.FromString(raw).messages
            answers[f"key {number}"] = b"".join(message.SerializeToString() for message in found)
        group = consumer_offset_service_pb2.GetConsumerOffsetRequest(group=KEPT, topic=KEPT, queue_id=1)
        answers["group"] = await _call(channel, "ConsumerOffsetService/GetConsumerOffset", group)
    async with grpc.aio.insecure_channel(targets["delivery"]) as channel:
        group_request = group_service_pb2.GetGroupRequest(group=KEPT)
        raw = await _call(channel, "GroupService/GetGroup", group_request)
        group_found = group_service_pb2.GetGroupResponse.FromString(raw).group
        for queue in group_found.queues:
            queue.ClearField("lag_time")  # it goes on
        group_found.ClearField("filters")  # filters of the last receivers, for as long as they were seen
        answers["deliveries"] = group_found.SerializeToString(deterministic=True)
    async with grpc.aio.insecure_channel(targets["commitlog"]) as channel:
        topic = topic_service_pb2.GetTopicRequest(name=KEPT)
        answers["topic"] = await _call(channel, "TopicService/GetTopic", topic)
        raw = await _call(channel, "LogService/GetStatus", log_service_pb2.GetStatusRequest())
        status = log_service_pb2.GetStatusResponse.FromString(raw)
        answers["begin of the log"] = b"%d" % status.min_physical_offset
    return answers


async def _call(channel: grpc.aio.Channel, method: str, request: Any) -> bytes:
    service = type(request).DESCRIPTOR.full_name.split(".")[1]
    try:
        raw: bytes = await channel.unary_unary(f"/reput.{service}.v1.{method}")(request.SerializeToString(), timeout=30)
    except grpc.aio.AioRpcError as error:
        return repr(error).encode()
    return raw
