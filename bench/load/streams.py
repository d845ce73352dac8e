# SPDX-License-Identifier: Apache-2.0
"""Load on a CommitLog: pipelined streams of batches, and concurrent unary calls."""

import asyncio
import time
from collections import deque
from typing import Any

import grpc
from reput.commitlog.v1 import append_service_pb2
from reput.common.v1 import message_pb2

from bench.batches import Batch, Source
from bench.load.timing import Loaded

STREAM = "/reput.commitlog.v1.AppendService/AppendStream"
UNARY = "/reput.commitlog.v1.AppendService/Append"
OPTIONS = [("grpc.max_send_message_length", 32 << 20), ("grpc.max_receive_message_length", 32 << 20)]
WINDOW_BYTES = 8 << 20
CALL_TIMEOUT_S = 30


class NotStored(Exception):
    """A batch was refused, or is less durable than was asked for."""


def check(result: append_service_pb2.AppendResult, durability: int) -> None:
    """Raise NotStored for a result below the wanted durability."""
    if result.durability < durability:
        name = message_pb2.Durability.Name(result.durability)
        raise NotStored(f"a batch was acknowledged at {name}")


async def append_stream(
    target: str,
    source: Source,
    seconds: float,
    *,
    durability: int = message_pb2.DURABILITY_MEMORY,
    messages_per_s: float = 0.0,
    message_count_max: int = 0,
) -> Loaded:
    """Keep a window of batches in flight on a stream, and count acknowledged messages.

    It ends after the seconds, or after `message_count_max` messages. `messages_per_s` slows the sender down to a rate.
    """
    in_flight: deque[Batch] = deque()
    first = source()
    window = asyncio.Semaphore(max(2, WINDOW_BYTES // len(first.data)))
    sent_count = message_count = 0
    async with grpc.aio.insecure_channel(target, options=OPTIONS) as channel:
        call: Any = channel.stream_stream(STREAM)()

        async def read() -> None:
            nonlocal message_count
            while (data := await call.read()) is not grpc.aio.EOF:
                for outcome in append_service_pb2.AppendStreamResponse.FromString(data).outcomes:
                    if not outcome.HasField("result"):
                        raise NotStored(outcome.error.message)
                    check(outcome.result, durability)
                    message_count += in_flight.popleft().message_count
                    window.release()

        reader = asyncio.create_task(read())
        start_s = time.perf_counter()
        batch = first
        while not reader.done():
            await window.acquire()
            in_flight.append(batch)
            await call.write(batch.data)
            sent_count += batch.message_count
            if time.perf_counter() - start_s >= seconds or 0 < message_count_max <= sent_count:
                break
            if messages_per_s:
                await asyncio.sleep(start_s + sent_count / messages_per_s - time.perf_counter())
            batch = source()
        await call.done_writing()
        await reader
        duration_s = time.perf_counter() - start_s
    assert message_count == sent_count
    return Loaded(message_count, 0, duration_s)


async def append_streams(
    target: str, source: Source, seconds: float, *, stream_count: int, durability: int, messages_per_s: float = 0.0
) -> Loaded:
    """Run several streams at once over their own connections, in this process."""
    parts = await asyncio.gather(
        *(
            append_stream(target, source, seconds, durability=durability, messages_per_s=messages_per_s / stream_count)
            for _ in range(stream_count)
        )
    )
    return Loaded(sum(part.message_count for part in parts), 0, max(part.duration_s for part in parts))


async def append_unary(target: str, batch: Batch, *, caller_count: int, call_count: int, durability: int) -> Loaded:
    """Append by concurrent callers, each of which waits for its answer."""
    latencies_s: list[float] = []
    async with grpc.aio.insecure_channel(target, options=OPTIONS) as channel:
        method: Any = channel.unary_unary(UNARY)

        async def caller() -> None:
            for _ in range(call_count // caller_count):
                start_s = time.perf_counter()
                answer = await method(batch.data, timeout=CALL_TIMEOUT_S)
                latencies_s.append(time.perf_counter() - start_s)
                check(append_service_pb2.AppendResponse.FromString(answer).result, durability)

        start_s = time.perf_counter()
        await asyncio.gather(*(caller() for _ in range(caller_count)))
        duration_s = time.perf_counter() - start_s
    return Loaded(len(latencies_s) * batch.message_count, 0, duration_s, latencies_s)
