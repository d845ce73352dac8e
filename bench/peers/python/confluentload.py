# SPDX-License-Identifier: Apache-2.0
"""Kafka by confluent-kafka, the client on librdkafka: single messages, batches by the library's threads."""

import asyncio
import itertools
import time

import load
from confluent_kafka import KafkaError, Message, Producer

IN_FLIGHT_COUNT_MAX = 100_000
REPORT_STRIDE = 256
"""Messages between two looks at delivery reports."""


async def main() -> None:
    """Send as the queue of the client allows, and count the delivery reports."""
    given = load.parse()
    producer = Producer(
        {
            "bootstrap.servers": given.target,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 5,
            "batch.size": given.batch,
            "queue.buffering.max.messages": IN_FLIGHT_COUNT_MAX,
        }
    )
    body = b"x" * given.body
    partitions = itertools.cycle(range(load.QUEUE_COUNT))
    acknowledged = 0

    def report(error: KafkaError | None, message: Message) -> None:
        del message
        nonlocal acknowledged
        if error is not None:
            raise RuntimeError(str(error))
        acknowledged += 1

    async def send_until(until_s: float) -> int:
        before, count = acknowledged, 0
        while time.perf_counter() < until_s:
            try:
                producer.produce(load.TOPIC, body, partition=next(partitions), on_delivery=report)
            except BufferError:
                producer.poll(0.01)
            else:
                count += 1
                if count % REPORT_STRIDE == 0:
                    producer.poll(0)
        if producer.flush() > 0:
            raise RuntimeError("messages without an acknowledgement")
        return acknowledged - before

    await load.measure(given, send_until)


if __name__ == "__main__":
    asyncio.run(main())
