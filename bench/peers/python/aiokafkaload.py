# SPDX-License-Identifier: Apache-2.0
"""Kafka by aiokafka, the client for asyncio: single messages, batches by the client."""

import asyncio
import itertools
import time
from collections import deque

import load
import uvloop
from aiokafka import AIOKafkaProducer

LOOK_COUNT = 4_096
"""Messages on their way before the acknowledgements of the oldest are looked at."""


async def main() -> None:
    """Send as the client's batches allow, and look at each acknowledgement."""
    given = load.parse()
    body = b"x" * given.body
    partitions = itertools.cycle(range(load.QUEUE_COUNT))
    producer = AIOKafkaProducer(
        bootstrap_servers=given.target, acks="all", enable_idempotence=True, linger_ms=5, max_batch_size=given.batch
    )

    async def send_until(until_s: float) -> int:
        count = 0
        sent: deque[asyncio.Future[object]] = deque()
        while time.perf_counter() < until_s:
            sent.append(await producer.send(load.TOPIC, body, partition=next(partitions)))
            if len(sent) > LOOK_COUNT:
                await sent.popleft()
                count += 1
        await producer.flush()
        for future in sent:
            await future
        return count + len(sent)

    await producer.start()
    try:
        await load.measure(given, send_until)
    finally:
        await producer.stop()


if __name__ == "__main__":
    uvloop.run(main())
