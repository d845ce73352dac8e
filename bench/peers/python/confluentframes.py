# SPDX-License-Identifier: Apache-2.0
"""A Kafka topic by confluent-kafka: filled with rows, or read whole into a DataFrame, as its users do it.

`confluentframes.py TARGET fill ROWS BYTES` or `confluentframes.py TARGET read ROWS`; prints JSON.
"""

import json
import sys
import time
from pathlib import Path

import pandas as pd
from confluent_kafka import Consumer, Producer, TopicPartition

TOPIC, QUEUE_COUNT = "bench", 4
CONSUME_COUNT = 10_000


def fill(target: str, row_count: int, body_size_bytes: int) -> dict[str, float]:
    """Send rows with a key and a body."""
    producer = Producer({"bootstrap.servers": target, "linger.ms": 5, "queue.buffering.max.messages": 1_000_000})
    body = b"x" * body_size_bytes
    for number in range(row_count):
        while True:
            try:
                producer.produce(TOPIC, body, key=f"order-{number}", partition=number % QUEUE_COUNT)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1_000 == 0:
            producer.poll(0)
    if producer.flush(120) > 0:
        raise RuntimeError("messages without an acknowledgement")
    return {"row_count": row_count}


def read(target: str, row_count: int) -> dict[str, float]:
    """Read the topic once."""
    consumer = Consumer(
        {
            "bootstrap.servers": target,
            "group.id": "frames",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.max.bytes": 64 << 20,
            "max.partition.fetch.bytes": 4 << 20,
            "queued.max.messages.kbytes": 64 << 10,
        }
    )
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(QUEUE_COUNT)])
    rows: list[tuple[object, ...]] = []
    while len(rows) < row_count:
        found = consumer.consume(CONSUME_COUNT, timeout=30)
        if not found:
            raise RuntimeError(f"only {len(rows)} of {row_count} rows came")
        rows += [
            (message.key(), message.value(), message.partition(), message.offset(), message.timestamp()[1])
            for message in found
        ]
    frame = pd.DataFrame(rows, columns=["key", "value", "partition", "offset", "timestamp"])
    frame["timestamp"] = pd.to_datetime(frame["timestamp"], unit="ms", utc=True)
    consumer.close()
    return {"row_count": len(frame)}


def main() -> None:
    """Do what the arguments say. A read is done twice: the first warms up."""
    target, verb, *numbers = sys.argv[1:]
    steps = {"fill": fill, "read": read}
    if verb == "read":
        read(target, *map(int, numbers))
    start_s = time.perf_counter()
    found = steps[verb](target, *map(int, numbers))
    seconds = time.perf_counter() - start_s
    lines = Path("/proc/self/status").read_text().splitlines()
    peak = next(line for line in lines if line.startswith("VmHWM")).split()[1]
    print(json.dumps({**found, "seconds": seconds, "peak_bytes": int(peak) << 10}))


if __name__ == "__main__":
    main()
