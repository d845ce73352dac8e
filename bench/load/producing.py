# SPDX-License-Identifier: Apache-2.0
"""Single messages through the Python client's batching producer, which is how applications send them."""

import asyncio
import itertools
import time
from collections import deque
from collections.abc import Iterator

from reput_client import Durability, NewMessage, ProducerOptions, SendResult
from reput_client.aio import AsyncProducer, connect

from bench import batches
from bench.load.timing import Loaded

MESSAGE_COUNT = 4_096
"""Messages that are made before the clock, and sent again and again."""


def made(body_size_bytes: int) -> Iterator[NewMessage]:
    """Return messages without end, as an application would make them: a body, a tag, two keys."""
    body = bytes(body_size_bytes)

    def make(number: int) -> NewMessage:
        keys = (batches.order_key(number), f"user-{number % 997}")
        return NewMessage(batches.TOPIC, body, tag=f"tag{number % 8}", keys=keys)

    return itertools.cycle([make(number) for number in range(MESSAGE_COUNT)])


def options(durability: int, *, batch_size_bytes: int, linger_ms: float) -> ProducerOptions:
    """Return a producer's options."""
    return ProducerOptions(
        batch_size_bytes=batch_size_bytes, linger_ms=linger_ms, durability=Durability(durability), unique_ids=True
    )


async def append_single(
    target: str, chosen: ProducerOptions, *, body_size_bytes: int, caller_count: int, seconds: float
) -> Loaded:
    """Run callers that share a producer. Each sends as its window allows, and looks at results as they come."""
    messages = made(body_size_bytes)

    async def caller(producer: AsyncProducer, until_s: float) -> int:
        count = 0
        futures: deque[asyncio.Future[SendResult]] = deque()
        while time.perf_counter() < until_s:
            futures.append(await producer.send_message(next(messages)))
            while futures and futures[0].done():
                count += look(futures.popleft().result())
        return count + sum([look(await future) for future in futures])

    def look(result: SendResult) -> bool:
        assert result.durability >= chosen.durability
        return True

    async with connect(commitlog=target) as client:
        producer = client.producer(chosen)
        start_s = time.perf_counter()
        counts = await asyncio.gather(*(caller(producer, start_s + seconds) for _ in range(caller_count)))
        duration_s = time.perf_counter() - start_s
    return Loaded(sum(counts), sum(counts) * body_size_bytes, duration_s)


async def latency_single(
    target: str, chosen: ProducerOptions, *, body_size_bytes: int, caller_count: int, call_count: int
) -> Loaded:
    """Run callers that share a producer. Each waits for its message's result before it sends the next message."""
    messages = made(body_size_bytes)
    latencies_s: list[float] = []

    async def caller(producer: AsyncProducer) -> None:
        for _ in range(call_count // caller_count):
            start_s = time.perf_counter()
            result = await (await producer.send_message(next(messages)))
            latencies_s.append(time.perf_counter() - start_s)
            assert result.durability >= chosen.durability

    async with connect(commitlog=target) as client:
        producer = client.producer(chosen)
        start_s = time.perf_counter()
        await asyncio.gather(*(caller(producer) for _ in range(caller_count)))
        duration_s = time.perf_counter() - start_s
    return Loaded(len(latencies_s), len(latencies_s) * body_size_bytes, duration_s, latencies_s)
