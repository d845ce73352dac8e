# SPDX-License-Identifier: Apache-2.0
"""The messages that honest producers put into the store before a row begins."""

from __future__ import annotations

import time

import grpc
from reput.commitlog.v1 import append_service_pb2, append_service_pb2_grpc, topic_service_pb2, topic_service_pb2_grpc
from reput.indexer.v1 import index_service_pb2, index_service_pb2_grpc

MIB = 1 << 20
LARGE, COLLISIONS, HONEST = "large", "collisions", "honest"
LARGE_COUNT, LARGE_BYTES = 96, 128 << 10
COLLISION_COUNT = 200_000
BATCH_COUNT = 1_000
INDEX_TIMEOUT_S = 60.0
LIVE = index_service_pb2.REPUT_STATE_LIVE


def colliding_key(number: int) -> str:
    """The text of this number; all of them have the same hash in Java."""
    return "".join("BB" if number >> bit & 1 else "Aa" for bit in range(COLLISION_COUNT.bit_length()))


def fill_large(commitlog: str) -> int:
    """Append twelve megabytes of large messages to a queue. Returns the end of the log then."""
    body = bytes(LARGE_BYTES)
    batch = [append_service_pb2.AppendMessage(topic=LARGE, queue_id=0, body=body)] * 32
    return _append(commitlog, LARGE, [batch] * (LARGE_COUNT // len(batch)))


def fill_collisions(commitlog: str) -> int:
    """Append messages whose unique ids have the same hash. Returns the end of the log then."""
    batches = [
        [
            append_service_pb2.AppendMessage(
                topic=COLLISIONS, queue_id=0, body=b"x", properties={"UNIQ_KEY": colliding_key(number)}
            )
            for number in range(start, start + BATCH_COUNT)
        ]
        for start in range(0, COLLISION_COUNT, BATCH_COUNT)
    ]
    return _append(commitlog, COLLISIONS, batches)


def wait_indexed(indexer: str, physical_offset: int) -> None:
    """Wait until the indexes have everything below this offset."""
    end_s = time.monotonic() + INDEX_TIMEOUT_S
    with grpc.insecure_channel(indexer) as channel:
        stub = index_service_pb2_grpc.IndexServiceStub(channel)
        while (
            stub.GetStatus(index_service_pb2.GetStatusRequest(), timeout=10).indexed_physical_offset < physical_offset
        ):
            assert time.monotonic() < end_s, "the indexes do not follow"
            time.sleep(0.05)


def wait_live(indexer: str, *, timeout_s: float) -> None:
    """Wait until the Indexer follows the log."""
    end_s = time.monotonic() + timeout_s
    with grpc.insecure_channel(indexer) as channel:
        stub = index_service_pb2_grpc.IndexServiceStub(channel)
        while (status := stub.GetStatus(index_service_pb2.GetStatusRequest(), timeout=10)).state != LIVE:
            assert time.monotonic() < end_s, f"the Indexer does not follow the log: {status.last_error}"
            time.sleep(0.05)


def _append(commitlog: str, topic: str, batches: list[list[append_service_pb2.AppendMessage]]) -> int:
    end = 0
    with grpc.insecure_channel(commitlog) as channel:
        create = topic_service_pb2.CreateTopicRequest(name=topic, read_queue_count=1, write_queue_count=1)
        topic_service_pb2_grpc.TopicServiceStub(channel).CreateTopic(create, timeout=30)
        requests = (append_service_pb2.AppendStreamRequest(messages=batch, durability=1) for batch in batches)
        for response in append_service_pb2_grpc.AppendServiceStub(channel).AppendStream(requests, timeout=60):
            for outcome in response.outcomes:
                assert outcome.HasField("result"), outcome.error
                end = outcome.result.end_physical_offset
    return end
