# SPDX-License-Identifier: Apache-2.0
"""Messages that the members of a group share, each acknowledged by itself, through the Python client."""

import asyncio
import time

from reput_client import Received
from reput_client.aio import connect

from bench import batches
from bench.load.timing import Loaded

GROUP = "bench"


async def receive_and_acknowledge(delivery: str, *, caller_count: int, warm_up_s: float, seconds: float) -> Loaded:
    """Let so many callbacks of one consumer acknowledge a message each, again and again, until the group has no more.

    The clock stops with the last acknowledgement.
    """
    start_s = time.perf_counter() + warm_up_s
    message_count = size_bytes = 0
    last_s = start_s

    async def handle(received: Received) -> None:
        nonlocal message_count, size_bytes, last_s
        await consumer.ack(received)
        if (now_s := time.perf_counter()) > start_s:
            message_count, size_bytes, last_s = message_count + 1, size_bytes + len(received.message.body), now_s

    async with connect(delivery=delivery) as client:
        consumer = client.share_consumer(batches.TOPIC, group=GROUP)
        running = asyncio.create_task(consumer.run(handle, concurrency=caller_count, acks=False))
        await asyncio.sleep(warm_up_s + seconds)
        await consumer.close()
        await running
    return Loaded(message_count, size_bytes, last_s - start_s)
