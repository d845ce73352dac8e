# SPDX-License-Identifier: Apache-2.0
"""Silent streams of clients take no place from followers, and end after a while without an error for producers."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.commitlog.v1 import log_service_pb2 as log_pb
from reput_client import connect
from reput_client.aio import connect as connect_async

from libs.machine.failpoints import armed
from tests.support.patience import LIMIT_S, eventually
from tests.support.served_commitlog import Client, served
from tests.support.service_process import Refusal

IDLE_MS = 150


async def wait_until(is_so: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(LIMIT_S):
        while True:
            if is_so():
                return
            await asyncio.sleep(0.01)


async def wait_streams(service: Any, count: int) -> None:
    """Wait until the log has this many AppendStreams."""
    await wait_until(lambda: len(service.append.sessions) == count)


@contextlib.asynccontextmanager
async def silent(client: Client, service: Any, count: int) -> AsyncIterator[None]:
    """Open this many AppendStreams that send nothing."""
    calls = [client.append.AppendStream() for _ in range(count)]
    try:
        await wait_streams(service, count)
        yield
    finally:
        for call in calls:
            call.cancel()


async def reason_of(call: Any) -> str:
    """Return the reason with which a stream ended."""
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        async with asyncio.timeout(LIMIT_S):
            await call.read()
    refusal = Refusal(caught.value)
    return f"{refusal.code.name} {refusal.reason}"


async def test_clients_do_not_take_the_place_of_followers(tmp_path: Path) -> None:
    """With every stream of clients taken, an Indexer connects, compares its queues and follows."""
    async with served(tmp_path, stream_count_max=3) as (service, client), silent(client, service, 3):
        assert await reason_of(client.append.AppendStream()) == "RESOURCE_EXHAUSTED WINDOW_FULL"
        records = client.log.StreamRecords(log_pb.StreamRecordsRequest())
        assert await reason_of(records) == "RESOURCE_EXHAUSTED WINDOW_FULL"
        following = client.log.Dispatch(log_pb.DispatchRequest())
        assert (await following.read()).HasField("handshake")
        pages = iter([log_pb.CheckQueueOffsetsRequest(epoch=1, is_complete=True)])
        assert await client.log.CheckQueueOffsets(pages) == log_pb.CheckQueueOffsetsResponse()
        following.cancel()


async def test_services_have_a_bound_too(tmp_path: Path) -> None:
    """A service that opens streams without end is bounded, too, and harms only itself."""
    async with served(tmp_path, service_stream_count_max=1) as (_, client):
        following = client.log.Dispatch(log_pb.DispatchRequest())
        assert (await following.read()).HasField("handshake")
        assert await reason_of(client.log.Dispatch(log_pb.DispatchRequest())) == "RESOURCE_EXHAUSTED WINDOW_FULL"
        following.cancel()


async def test_a_silent_stream_ends(tmp_path: Path) -> None:
    """A silent stream ends with STREAM_IDLE, and its place is free."""
    async with served(tmp_path, stream_count_max=1, append_stream_idle_timeout_ms=IDLE_MS) as (service, client):
        call = client.append.AppendStream()
        assert await reason_of(call) == "UNAVAILABLE STREAM_IDLE"
        await wait_streams(service, 0)
        assert await reason_of(client.append.AppendStream()) == "UNAVAILABLE STREAM_IDLE"


async def test_a_stream_that_waits_for_its_outcome_is_not_idle(tmp_path: Path) -> None:
    """With any slow disk the outcome arrives, and only then the idle time begins."""
    disk_is_slow = threading.Event()
    async with served(tmp_path, append_stream_idle_timeout_ms=IDLE_MS) as (service, client):
        with armed("segment.before_sync", disk_is_slow.wait):
            call = client.append.AppendStream()
            await call.write(append_pb.AppendStreamRequest(messages=[{"topic": "t", "body": b"x"}], durability=2))
            await wait_streams(service, 1)
            (session,) = service.append.sessions
            await wait_until(lambda: service.commit_log.log.pipeline.batch_count == 1)
            await asyncio.sleep(3 * IDLE_MS / 1000)  # a wrong answer would come meanwhile; a slow machine is no fault
            assert not session._is_too_idle
            disk_is_slow.set()
            assert (await call.read()).outcomes[0].HasField("result")
        assert await reason_of(call) == "UNAVAILABLE STREAM_IDLE"


async def test_no_limit(tmp_path: Path) -> None:
    """With an idle time-out of 0 no stream ends, and no task checks."""
    async with served(tmp_path, append_stream_idle_timeout_ms=0) as (service, client), silent(client, service, 1):
        await eventually(lambda: "append stream: idle" not in {task.get_name() for task in asyncio.all_tasks()})


async def test_a_producer_does_not_notice(tmp_path: Path) -> None:
    """A producer's idle stream is ended, its next message uses a new stream, and it is stored once."""
    async with served(tmp_path, append_stream_idle_timeout_ms=IDLE_MS) as (service, _):
        target = f"127.0.0.1:{service.server.port}"

        def send() -> list[int]:
            with connect(commitlog=target) as client, client.producer() as producer:
                offsets = []
                for _ in range(3):
                    offsets.append(producer.send("t", b"x", queue_id=0).result(LIMIT_S).queue_offset)
                    asyncio.run_coroutine_threadsafe(wait_streams(service, 0), loop).result(LIMIT_S)
                return offsets

        loop = asyncio.get_running_loop()
        assert await asyncio.to_thread(send) == [0, 1, 2]
        async with connect_async(commitlog=target) as client, client.producer() as producer:
            for expected in (3, 4):
                assert (await (await producer.send("t", b"x", queue_id=0))).queue_offset == expected
                await wait_streams(service, 0)
