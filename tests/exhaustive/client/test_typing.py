# SPDX-License-Identifier: Apache-2.0
"""The types as another program sees them: mypy --strict accepts correct code and reports errors."""

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.patience import LIMIT_S

PROGRAM = """
import asyncio
import reput_client
import pyarrow as pa
from reput_client import Message, NewMessage, ProducerOptions, SendResult, aio, connect, frames

with connect(token=lambda: "t") as client:
    with client.producer(ProducerOptions(compression="zstd")) as producer:
        result: SendResult = producer.send("orders", bytearray(b"x")).result()
        producer.send("orders", "text")  # E: arg-type
        NewMessage("orders", None)  # E: arg-type
        reveal = producer.metrics().latencies.percentile_ms(99) + 0.5
    ProducerOptions(compression="gzip")  # E: arg-type
    with client.consumer(["orders", "bills"], group="g", start="latest") as consumer:
        for message in consumer:
            body: bytes = message.body
            message.body = b""  # E: misc
            message.topic.upper()
            message.nothing  # E: attr-defined
        many: list[Message] = consumer.poll_many(10, timeout_s=1.5)
        consumer.seek(("orders", 0), 7)
        consumer.seek(0, 7)  # E: arg-type
        consumer.seek_to("middle")  # E: arg-type
        consumer.pause("orders", ("bills", 1))
        lag: int = sum(consumer.lag().values())
    client.consumer("orders", start="middle")  # E: arg-type
    client.query.by_key("orders", "k", limit=3)  # E: call-arg
    with frames.read(client, "orders", offsets={0: (5, None)}, decode=frames.Json({"id": pa.int64()})) as orders:
        for batch in orders:
            count: int = batch.num_rows
        name: str = orders.to_arrow()  # E: assignment
        total: int = orders.planned_row_count  # E: assignment
    frames.read("127.0.0.1:7102", ["orders"], progress=lambda step: print(step.row_count), columns=["key"])
    frames.read(client, 7)  # E: arg-type
    frames.read(client, "orders", bodies=True)  # E: call-arg
    written: int = frames.write(client, "orders", orders, properties=["tag"]).message_count
    frames.write("127.0.0.1:7101", "orders", orders)  # E: arg-type


async def main() -> None:
    async with aio.connect() as client, client.producer() as producer:
        future = await producer.send("orders", b"x")
        result: SendResult = await future
        wrong: str = await future  # E: assignment
        async with client.consumer("orders") as consumer:
            one: Message = await consumer.poll()  # E: assignment
            positions = await consumer.positions()
            reput_client.TopicQueue("orders", 0) in positions


asyncio.run(main())
"""


def test_a_program_elsewhere(tmp_path: Path) -> None:
    """Each line with a mistake is reported with its kind, and no other line."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    variables = {name: value for name, value in os.environ.items() if name not in ("MYPYPATH", "PYTHONPATH")}
    command = [sys.executable, "-m", "mypy", "--strict", "--no-pretty", "--cache-dir", ".cache", program.name]
    done = subprocess.run(
        command, cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.stderr == ""
    told = set(re.findall(r"^program\.py:(\d+): error: .*\[(.*)\]$", done.stdout, re.MULTILINE))
    expected = {
        (str(number), match[1])
        for number, line in enumerate(PROGRAM.splitlines(), 1)
        if (match := re.search(r"# E: (.*)$", line))
    }
    assert told == expected, done.stdout
    assert done.stdout.count("error: ") == len(expected), done.stdout
