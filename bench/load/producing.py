# SPDX-License-Identifier: Apache-2.0
"""Single messages through the Python client's batching producer, which is how applications send them."""

import asyncio
import itertools
import time
from collections.abc import Callable

from reput_client import Durability, NewMessage, ProducerOptions
from reput_client.aio import AsyncProducer, connect

from bench import batches
from bench.load.timing import Loaded

OUTSTANDING_COUNT = 256
"""Messages of one caller whose result is not known yet; it asks for the oldest one then."""


def maker(body_size_bytes: int) -> Callable[[], NewMessage]:
    """Return a function that makes messages as an application would: a body, a tag, two keys."""
    body, numbers = bytes(body_size_bytes), itertools.count()

    def make() -> NewMessage:
        number = next(numbers)
        return NewMessage(
            batches.TOPIC, body, tag=f"tag{number % 8}", keys=(batches.order_key(number), f"user-{number % 997}")
        )

    return make


def options(durability: int, *, batch_size_bytes: int, linger_ms: float) -> ProducerOptions:
    """Return a producer's options."""
    return ProducerOptions(
        batch_size_bytes=batch_size_bytes, linger_ms=linger_ms, durability=Durability(durability), unique_ids=True
    )


async def append_single(
    target: str, chosen: ProducerOptions, *, body_size_bytes: int, caller_count: int, seconds: float
) -> Loaded:
    """Run callers that share a producer. Each sends one message after the other and looks at every result later."""
    make = maker(body_size_bytes)

    async def caller(producer: AsyncProducer, until_s: float) -> int:
        count = 0
        while time.perf_counter() < until_s:
            futures = [await producer.send_message(make()) for _ in range(OUTSTANDING_COUNT)]
            count += len(futures)
            for future in futures:
                result = await future
                assert result.durability >= chosen.durability
        return count

    async with connect(commitlog=target) as client:
        producer = client.producer(chosen)
        start_s = time.perf_counter()
        counts = await asyncio.gather(*(caller(producer, start_s + seconds) for _ in range(caller_count)))
        duration_s = time.perf_counter() - start_s
    return Loaded(sum(counts), sum(counts) * body_size_bytes, duration_s)


async def latency_single(
    target: str, chosen: ProducerOptions, *, body_size_bytes: int, caller_count: int, call_count: int
) -> Loaded:
    """Run callers that share a producer. Each waits for its message's result before it sends the next one."""
    make = maker(body_size_bytes)
    latencies_s: list[float] = []

    async def caller(producer: AsyncProducer) -> None:
        for _ in range(call_count // caller_count):
            start_s = time.perf_counter()
            result = await (await producer.send_message(make()))
            latencies_s.append(time.perf_counter() - start_s)
            assert result.durability >= chosen.durability

    async with connect(commitlog=target) as client:
        producer = client.producer(chosen)
        start_s = time.perf_counter()
        await asyncio.gather(*(caller(producer) for _ in range(caller_count)))
        duration_s = time.perf_counter() - start_s
    return Loaded(len(latencies_s), len(latencies_s) * body_size_bytes, duration_s, latencies_s)
