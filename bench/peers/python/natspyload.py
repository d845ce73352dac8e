# SPDX-License-Identifier: Apache-2.0
"""NATS JetStream by nats-py, its client for asyncio: each message has an acknowledgement, and many are on their way."""

import asyncio
import itertools
import time
from collections import deque

import load
import nats
import uvloop

PENDING_COUNT_MAX = 4_000
"""Most messages on their way, as the load generator in Go has it."""


async def main() -> None:
    """Publish with a window, and look at each acknowledgement."""
    given = load.parse()
    body = b"x" * given.body
    subjects = itertools.cycle([f"{load.TOPIC}.q{number}" for number in range(load.QUEUE_COUNT)])
    window = max(1, min(PENDING_COUNT_MAX, given.batch // given.body))
    connection = await nats.connect(f"nats://{given.target}", allow_reconnect=False)
    js = connection.jetstream(publish_async_max_pending=PENDING_COUNT_MAX)
    await js.add_stream(name=load.TOPIC, subjects=[f"{load.TOPIC}.*"], storage="file")

    async def send_until(until_s: float) -> int:
        count = 0
        sent: deque[asyncio.Future[object]] = deque()
        while time.perf_counter() < until_s:
            sent.append(await js.publish_async(next(subjects), body))
            if len(sent) >= window:
                await sent.popleft()
                count += 1
        for future in sent:
            await future
        return count + len(sent)

    await load.measure(given, send_until)
    await connection.close()


if __name__ == "__main__":
    uvloop.run(main())
