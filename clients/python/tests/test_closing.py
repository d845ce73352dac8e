# SPDX-License-Identifier: Apache-2.0
"""How producers end: several at once, and before a service that does not answer."""

import socket
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest
import reput_client
from reput_client import ProducerOptions, aio

from clients.python.tests.support import LIMIT_S, Log, serving

COUNT = 3
LAZY = ProducerOptions(linger_ms=60_000)


@pytest.fixture
def log() -> Log:
    """A log that answers when all producers have sent their message, and so none alone."""
    arrived = threading.Barrier(COUNT)

    def plan(_number: int, _messages: list) -> None:
        arrived.wait(LIMIT_S)

    return Log(plan)


@pytest.fixture
def target(log: Log) -> Iterator[str]:
    with serving(log) as target:
        yield target


def test_a_client_closes_its_producers_at_once(log: Log, target: str) -> None:
    """The producers of a client wait for their outcomes at the same time, so that they share a time-out."""
    with reput_client.connect(commitlog=target, timeout_s=LIMIT_S) as client:
        futures = [client.producer(LAZY).send("t", b"last") for _ in range(COUNT)]
    assert [future.exception(0) for future in futures] == [None] * COUNT
    assert len(log.stored) == COUNT


async def test_so_does_an_asyncio_client(log: Log, target: str) -> None:
    """The same on an event loop."""
    async with aio.connect(commitlog=target, timeout_s=LIMIT_S) as client:
        futures = [await client.producer(LAZY).send("t", b"last") for _ in range(COUNT)]
    assert [future.exception() for future in futures] == [None] * COUNT


def test_a_program_closes_its_producers_at_once(log: Log, target: str) -> None:
    """When a program ends, its open producers send their messages, all at the same time."""
    program = (
        "from reput_client import ProducerOptions, connect\n"
        f"clients = [connect(commitlog={target!r}, timeout_s={LIMIT_S}) for _ in range({COUNT})]\n"
        "producers = [client.producer(ProducerOptions(linger_ms=60_000)) for client in clients]\n"
        "for producer in producers:\n    producer.send('t', b'last')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=LIMIT_S)
    assert (done.stderr, len(log.stored)) == ("", COUNT)


def test_nothing_is_taken_once_closing_has_begun(log: Log, target: str) -> None:
    """The collected messages are sent by then."""
    with reput_client.connect(commitlog=target) as client:
        producers = [client.producer(LAZY) for _ in range(COUNT)]
        futures = [producer.send("t", b"last") for producer in producers]
        for producer in producers:
            producer.begin_close()
        assert all(future.result(LIMIT_S) for future in futures)
        with pytest.raises(reput_client.ReputError, match="closed"):
            producers[0].send("t", b"too late")


@pytest.mark.timeout(15)
def test_a_service_that_accepts_and_says_nothing() -> None:
    """It holds a close no longer than the time-out, and not for the 20 s that gRPC waits for the first word."""
    with socket.create_server(("127.0.0.1", 0)) as mute:
        target = f"127.0.0.1:{mute.getsockname()[1]}"
        with reput_client.connect(commitlog=target, timeout_s=0.2) as client:
            futures = [client.producer().send("t", b"x") for _ in range(COUNT)]
    assert all(isinstance(future.exception(0), reput_client.UnavailableError) for future in futures)
