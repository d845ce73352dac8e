# SPDX-License-Identifier: Apache-2.0
"""FastStream's command line with the example, TestReputBroker without a store, and the example over a store."""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from faststream.exceptions import FeatureNotSupportedException
from faststream_reput import ReputBroker, TestReputBroker
from pytest_reput import MemoryReput

EXAMPLES = Path(__file__).parents[1] / "examples"
LIMIT_S = 60.0
KILLED = """
import asyncio
from faststream import FastStream
from faststream_reput import ReputBroker
from faststream_reput.annotations import Attempt
from reput_client import SharePolicy

broker = ReputBroker(group="billing")
app = FastStream(broker)

@broker.subscriber("orders", policy=SharePolicy(invisible_s=60, backoffs_s=(1,)))
async def bill(order: str, attempt: Attempt) -> None:
    await broker.publish(str(attempt), "seen")
    await asyncio.sleep(600)
"""


@asynccontextmanager
async def program(app: str, folder: Path, reput: MemoryReput) -> AsyncIterator[asyncio.subprocess.Process]:
    """Run an application with FastStream's command line."""
    command = [sys.executable, "-m", "faststream", "run", app]
    environment = {**os.environ, **reput.environment}
    running = await asyncio.create_subprocess_exec(*command, cwd=folder, env=environment)
    try:
        yield running
    finally:
        with contextlib.suppress(ProcessLookupError):
            running.kill()
        await running.wait()


@pytest.fixture
def orders(monkeypatch: pytest.MonkeyPatch) -> Iterator[object]:
    """Import the example, as a program of its own."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    import orders

    yield orders
    del sys.modules["orders"]


async def test_the_example_bills_and_buries(reput: MemoryReput, orders: object) -> None:
    """An order becomes an invoice that its key finds; a free order is a dead letter after three attempts."""
    broker: ReputBroker = orders.broker  # type: ignore[attr-defined]
    async with TestReputBroker(broker, with_real=True):
        await broker.publish({"number": "O-1", "cents": 5}, "orders")
        await broker.publish({"number": "O-2", "cents": 0}, "orders")
        client = reput.client()
        async with asyncio.timeout(LIMIT_S):
            while not list(client.dead_letters.list("billing")):
                reput.advance(seconds=1)
                await asyncio.sleep(0.05)
        (invoice,) = client.query.by_key("invoices", "O-1")
    assert json.loads(invoice.body) == {"order": "O-1", "cents": 5}
    (letter,) = client.dead_letters.list("billing")
    assert letter.attempt_count == 3


async def test_a_program_runs_and_stops(reput: MemoryReput) -> None:
    """`faststream run` bills an order, and ends with a SIGTERM."""
    async with program("orders:app", EXAMPLES, reput) as running, reput.aio.connect() as client:
        await client.topics.create("invoices")
        await (await client.producer().send("orders", b'{"number": "O-1", "cents": 5}'))
        invoice = await client.consumer("invoices").poll(LIMIT_S)
        assert invoice is not None
        assert invoice.keys == ("O-1",)
        running.terminate()
        assert await asyncio.wait_for(running.wait(), LIMIT_S) == 0


async def test_a_message_of_a_killed_program_comes_again(reput: MemoryReput, tmp_path: Path) -> None:
    """A SIGKILL in the middle of a handler: the next program gets the message as attempt 2, when the lease is over."""
    (tmp_path / "killed.py").write_text(KILLED)
    async with reput.aio.connect() as client:
        await client.topics.create("seen")
        await (await client.producer().send("orders", b"O-1"))
        seen = client.consumer("seen")
        for attempt in (b"1", b"2"):
            async with program("killed:app", tmp_path, reput) as running:
                async with asyncio.timeout(LIMIT_S):
                    while (message := await seen.poll(1)) is None:
                        reput.advance(seconds=20 if attempt == b"2" else 0)
                assert message.body == attempt
                running.kill()


def test_a_program_is_described(tmp_path: Path) -> None:
    """`faststream docs gen` writes the channels of the example, without a store."""
    target = tmp_path / "asyncapi.json"
    command = [sys.executable, "-m", "faststream", "docs", "gen", "orders:app", "--out", str(target)]
    subprocess.run(command, cwd=EXAMPLES, check=True, timeout=LIMIT_S, capture_output=True)
    described = json.loads(target.read_text())
    assert {one["address"] for one in described["channels"].values()} == {"orders", "invoices"}
    assert described["servers"]["development"] == {"host": "127.0.0.1:7101", "pathname": "", "protocol": "reput"}


async def test_without_a_store_each_group_gets_a_message_once() -> None:
    """A member of each group gets it, if the message passes its tags; errors come out of `publish`."""
    broker, got = ReputBroker(), list[str]()

    @broker.subscriber("orders", group="a")
    @broker.subscriber("orders", group="a")
    @broker.subscriber("orders", group="b", tags="eu||us")
    async def handler(body: str) -> None:
        got.append(body)
        if body == "bad":
            raise ValueError(body)

    async with TestReputBroker(broker):
        await broker.publish("x", "orders", tag="eu")
        assert got == ["x", "x"]
        await broker.publish("y", "orders", tag="asia")
        assert got == ["x", "x", "y"]
        with pytest.raises(ValueError, match="bad"):
            await broker.publish("bad", "orders")


async def test_without_a_store_a_condition_is_refused() -> None:
    """A message that a condition may keep away is not handed out as if it passed."""
    broker = ReputBroker(group="a")

    @broker.subscriber("orders", where="cents > 1")
    async def handler(_: str) -> None: ...

    async with TestReputBroker(broker):
        with pytest.raises(FeatureNotSupportedException, match="with_real=True"):
            await broker.publish("x", "orders")
