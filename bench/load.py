# SPDX-License-Identifier: Apache-2.0
"""Load on a CommitLog: a pipelined stream of prebuilt batches, and concurrent unary calls."""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import grpc
from reput.commitlog.v1 import append_service_pb2

from bench.batches import Batch

STREAM = "/reput.commitlog.v1.AppendService/AppendStream"
UNARY = "/reput.commitlog.v1.AppendService/Append"
OPTIONS = [("grpc.max_send_message_length", 32 << 20), ("grpc.max_receive_message_length", 32 << 20)]
WINDOW_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Appended:
    """What a load did."""

    message_count: int
    size_bytes: int
    duration_s: float

    @property
    def messages_per_s(self) -> float:
        """Acknowledged messages per second."""
        return self.message_count / self.duration_s


async def append_stream(target: str, batches: Sequence[Batch], seconds: float) -> Appended:
    """Keep a window of batches in flight on one stream; count what is acknowledged."""
    window = asyncio.Semaphore(max(2, WINDOW_BYTES // len(batches[0].data)))
    acknowledged = 0
    async with grpc.aio.insecure_channel(target, options=OPTIONS) as channel:
        call: Any = channel.stream_stream(STREAM)()

        async def read() -> None:
            nonlocal acknowledged
            while (data := await call.read()) is not grpc.aio.EOF:
                outcomes = append_service_pb2.AppendStreamResponse.FromString(data).outcomes
                assert all(outcome.HasField("result") for outcome in outcomes), outcomes[0].error.message
                acknowledged += len(outcomes)
                for _ in outcomes:
                    window.release()

        reader = asyncio.create_task(read())
        start_s = time.perf_counter()
        sent = 0
        while time.perf_counter() - start_s < seconds:
            await window.acquire()
            await call.write(batches[sent % len(batches)].data)
            sent += 1
        await call.done_writing()
        await reader
        duration_s = time.perf_counter() - start_s
    assert acknowledged == sent
    message_count = sum(batches[index % len(batches)].message_count for index in range(sent))
    size_bytes = sum(len(batches[index % len(batches)].data) for index in range(sent))
    return Appended(message_count, size_bytes, duration_s)


async def append_unary(target: str, batch: Batch, *, caller_count: int, call_count: int) -> list[float]:
    """Latencies in seconds of unary appends by concurrent callers."""
    async with grpc.aio.insecure_channel(target, options=OPTIONS) as channel:
        method: Any = channel.unary_unary(UNARY)

        async def caller() -> list[float]:
            latencies = []
            for _ in range(call_count // caller_count):
                start_s = time.perf_counter()
                await method(batch.data, timeout=30)
                latencies.append(time.perf_counter() - start_s)
            return latencies

        results = await asyncio.gather(*(caller() for _ in range(caller_count)))
    return [latency for result in results for latency in result]
