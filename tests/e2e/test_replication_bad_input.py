# SPDX-License-Identifier: Apache-2.0
"""Refusals of a leader to invalid followers: each has its field, and nothing changes."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from reput.commitlog.v1 import log_service_pb2 as log_pb
from reput.commitlog.v1 import replication_service_pb2 as pb
from reput.commitlog.v1 import replication_service_pb2_grpc as stubs

from tests.support.commitlog import SEGMENT_SIZE
from tests.support.served_commitlog import Client, served
from tests.support.service_process import Refusal

HELLO: dict[str, Any] = {
    "replica_id": "b",
    "store_id": "0" * 32,
    "segment_size_bytes": SEGMENT_SIZE,
    "window_bytes": 1 << 20,
    "protocol_version": 1,
}


def hello(**changes: Any) -> pb.ReplicateRequest:
    """Return a valid hello with these changes."""
    return pb.ReplicateRequest(hello=pb.ReplicaHello(**{**HELLO, **changes}))


def ack(epoch: int, received: int, flushed: int) -> pb.ReplicateRequest:
    """Return an acknowledgement."""
    return pb.ReplicateRequest(
        ack=pb.ReplicaAck(epoch=epoch, received_physical_offset=received, flushed_physical_offset=flushed)
    )


async def refusal(client: Client, *requests: pb.ReplicateRequest) -> Refusal:
    """Return the refusal of a stream with these requests."""

    async def sent() -> AsyncIterator[pb.ReplicateRequest]:
        for request in requests:
            yield request

    call = stubs.ReplicationServiceStub(client.channel).Replicate(sent())
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        async for _ in call:
            pass
    return Refusal(refused.value)


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"protocol_version": 2}, "hello.protocol_version"),
        ({"replica_id": ""}, "hello.replica_id"),
        ({"replica_id": "x" * 256}, "hello.replica_id"),
        ({"store_id": "A" * 32}, "hello.store_id"),
        ({"store_id": "a" * 33}, "hello.store_id"),
        ({"window_bytes": 1}, "hello.window_bytes"),
        ({"window_bytes": 1 << 30}, "hello.window_bytes"),
        ({"segment_size_bytes": 2 * SEGMENT_SIZE}, "hello.segment_size_bytes"),
        ({"max_physical_offset": -1}, "hello.max_physical_offset"),
        ({"max_physical_offset": 5, "flushed_physical_offset": 6}, "hello.flushed_physical_offset"),
        ({"epochs": [log_pb.Epoch(number=2), log_pb.Epoch(number=2)]}, "hello.epochs[1].number"),
        ({"epochs": [log_pb.Epoch(number=1)] * 4_097}, "hello.epochs"),
    ],
)
async def test_hellos(tmp_path: Path, changes: dict[str, Any], field: str) -> None:
    """A follower gets no bytes before all fields of its hello are valid."""
    async with served(tmp_path) as (service, client):
        refused = await refusal(client, hello(**changes))
        assert (refused.code, refused.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "BAD_ARGUMENT")
        assert refused.field == field
        assert service.commit_log.log is not None
        assert service.commit_log.log.replicas.connected == []


async def test_the_wrong_step(tmp_path: Path) -> None:
    """A stream has a single hello, first, and acknowledgements."""
    async with served(tmp_path) as (_, client):
        assert (await refusal(client, ack(1, 0, 0))).field == "step"
        assert (await refusal(client, hello(), hello())).field == "step"


async def test_what_nobody_was_sent(tmp_path: Path) -> None:
    """An acknowledgement beyond the leader's own log or epoch is refused."""
    async with served(tmp_path) as (_, client):
        assert (await refusal(client, hello(), ack(1, 7, 0))).field == "ack.received_physical_offset"
        assert (await refusal(client, hello(), ack(1, 0, 7))).field == "ack.received_physical_offset"
        assert (await refusal(client, hello(), ack(9, 0, 0))).reason == "STALE_EPOCH"


async def test_another_log(tmp_path: Path) -> None:
    """A follower with another history is refused, and the error names the leader's history."""
    async with served(tmp_path) as (service, client):
        refused = await refusal(client, hello(history_id="other"))
        assert (refused.code, refused.reason) == (grpc.StatusCode.FAILED_PRECONDITION, "HISTORY_DIFFERS")
        assert service.commit_log.log is not None
        assert refused.metadata["mine"] == service.commit_log.log.epochs.history_id


async def test_silence(tmp_path: Path) -> None:
    """A follower that sends nothing loses its stream."""
    async with served(tmp_path, replica_silence_ms=1_000) as (_, client):
        call = stubs.ReplicationServiceStub(client.channel).Replicate()
        await call.write(hello())
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            async for _ in call:
                pass
        assert Refusal(refused.value).reason == "STREAM_IDLE"
