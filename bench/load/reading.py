# SPDX-License-Identifier: Apache-2.0
"""Reading back through the Python client: pulls of whole queues, and lookups by key."""

import asyncio
import random
import time

from reput_client import Client, connect
from reput_client.aio import AsyncClient
from reput_client.aio import connect as connect_async

from bench import batches
from bench.load.timing import Loaded

PULL_MESSAGE_COUNT = 4_096
PULL_SIZE_BYTES = 2 << 20
INDEX_TIMEOUT_S = 600
INDEX_POLL_S = 0.005
SEED = 20


async def pull_all(indexer: str, seconds: float) -> Loaded:
    """Run a reader for each queue, from the beginning. A reader that comes to the end begins again."""
    until_s = time.perf_counter() + seconds

    async def reader(client: AsyncClient, queue_id: int) -> tuple[int, int]:
        message_count = size_bytes = position = 0
        while time.perf_counter() < until_s:
            result = await client.queues.pull(
                batches.TOPIC, queue_id, position, count=PULL_MESSAGE_COUNT, size_bytes=PULL_SIZE_BYTES
            )
            message_count += len(result.messages)
            size_bytes += sum([len(message.body) for message in result.messages])
            position = result.next_queue_offset if result.messages else 0
        return message_count, size_bytes

    async with connect_async(indexer=indexer) as client:
        start_s = time.perf_counter()
        parts = await asyncio.gather(*(reader(client, queue_id) for queue_id in range(batches.QUEUE_COUNT)))
        duration_s = time.perf_counter() - start_s
    return Loaded(sum(part[0] for part in parts), sum(part[1] for part in parts), duration_s)


def look_up(indexer: str, *, call_count: int, message_count: int) -> Loaded:
    """Look up keys by chance. Each lookup must find its message and nothing else."""
    chance = random.Random(SEED)
    keys = [batches.order_key(chance.randrange(message_count)) for _ in range(call_count)]
    latencies_s = []
    size_bytes = 0
    with connect(indexer=indexer) as client:
        client.queues.range(batches.TOPIC, 0)  # opens the connection
        start_s = time.perf_counter()
        for key in keys:
            call_start_s = time.perf_counter()
            found = list(client.query.by_key(batches.TOPIC, key))
            latencies_s.append(time.perf_counter() - call_start_s)
            assert len(found) == 1, f"{len(found)} messages with the key {key}"
            size_bytes += len(found[0].body)
        duration_s = time.perf_counter() - start_s
    return Loaded(call_count, size_bytes, duration_s, latencies_s)


def stored_count(indexer: str) -> int:
    """Return how many messages the benchmark's topic has."""
    with connect(indexer=indexer) as client:
        return sum(queue.max_queue_offset for queue in client.queues.list(batches.TOPIC))


def wait_indexed(client: Client) -> None:
    """Return when the Indexer has all that the CommitLog has."""
    end = client.admin.commitlog_status().max_physical_offset
    deadline_s = time.monotonic() + INDEX_TIMEOUT_S
    while client.admin.indexer_status().indexed_physical_offset < end:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"the Indexer did not reach {end} within {INDEX_TIMEOUT_S} s")
        time.sleep(INDEX_POLL_S)
