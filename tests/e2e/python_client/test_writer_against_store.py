# SPDX-License-Identifier: Apache-2.0
"""Writers against a real CommitLog: a batch whose answer is lost on its way, or whose log is killed, is stored once."""

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import grpc
import pytest
import reput_client
from reput.commitlog.v1 import log_service_pb2, log_service_pb2_grpc
from reput_client import NewMessage, RetryPolicy, Written, aio

from clients.python.tests.support import LIMIT_S
from tests.support.fixed_service import FixedService

pytestmark = [pytest.mark.e2e, pytest.mark.crash]
PATIENT = RetryPolicy(retries=10_000, delay_max_s=0.2)
BATCHES = [[NewMessage("t", b"%d-%d" % (number, place), queue_id=0) for place in range(20)] for number in range(300)]
BODIES = [message.body for batch in BATCHES for message in batch]


@pytest.fixture
def log(tmp_path: Path) -> Iterator[FixedService]:
    """A CommitLog that can be killed."""
    service = FixedService("commitlog", tmp_path / "log", "--segment-size-bytes", str(1 << 20)).start()
    yield service
    service.stop()


class Relay:
    """Carries bytes between clients and a server. While it `loses_answers`, it carries only requests."""

    def __init__(self, target: str) -> None:
        self.loses_answers = False
        self._server_address = ("127.0.0.1", int(target.rpartition(":")[2]))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.target = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._ends: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Break all connections."""
        while self._ends:
            with contextlib.suppress(OSError):
                self._ends.pop().shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """End all connections."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self.cut()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._server_address)
                self._ends += [client, server]
                threading.Thread(target=self._carry, args=(client, server, False), daemon=True).start()
                threading.Thread(target=self._carry, args=(server, client, True), daemon=True).start()

    def _carry(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with contextlib.suppress(OSError), source:
            while data := source.recv(1 << 16):
                if not (is_answer and self.loses_answers):
                    target.sendall(data)


@pytest.fixture
def relay(log: FixedService) -> Iterator[Relay]:
    relay = Relay(log.target)
    yield relay
    relay.close()


def stored(log: FixedService) -> list[bytes]:
    """The bodies of all records, as the log itself has them."""
    with grpc.insecure_channel(log.target, [("grpc.enable_http_proxy", 0)]) as channel:
        steps = log_service_pb2_grpc.LogServiceStub(channel).StreamRecords(log_service_pb2.StreamRecordsRequest())
        return [message.body for step in steps for message in step.messages]


def wait_for(condition: Callable[[], bool]) -> None:
    """Wait until a condition holds."""
    end_s = time.monotonic() + LIMIT_S
    while not condition():
        assert time.monotonic() < end_s
        time.sleep(0.02)


def lose_an_answer(log: FixedService, relay: Relay, stored_count: int) -> None:
    """Break the connection once this many messages are stored, without an answer to the writer."""
    wait_for(lambda: len(stored(log)) == stored_count)
    relay.cut()
    relay.loses_answers = False


def write(log: FixedService, relay: Relay) -> Written:
    with reput_client.connect(commitlog=relay.target, retry=PATIENT) as client, client.writer("w") as writer:
        writer.append(BATCHES[0])
        writer.flush()
        relay.loses_answers = True
        writer.append(BATCHES[1])
        lose_an_answer(log, relay, 40)
        writer.append(BATCHES[2])
        return writer.flush()


def write_async(log: FixedService, relay: Relay) -> Written:
    async def run() -> Written:
        async with aio.connect(commitlog=relay.target, retry=PATIENT) as client, client.writer("w") as writer:
            await writer.append(BATCHES[0])
            await writer.flush()
            relay.loses_answers = True
            await writer.append(BATCHES[1])
            await asyncio.to_thread(lose_an_answer, log, relay, 40)
            await writer.append(BATCHES[2])
            return await writer.flush()

    return asyncio.run(run())


@pytest.mark.parametrize("write", [write, write_async])
def test_a_lost_answer(log: FixedService, relay: Relay, write: Callable[[FixedService, Relay], Written]) -> None:
    """A batch with a lost answer is sent again, the log recognizes it, and the batches behind it follow."""
    written = write(log, relay)
    assert (written.message_count, written.repeated_message_count) == (60, 20)
    assert stored(log) == BODIES[:60]


def test_kills(log: FixedService) -> None:
    """Each batch is there once after three kills of the log.

    A second writer that begins from the start repeats all batches.
    """
    is_done = threading.Event()

    def kill() -> None:
        for count in (1_000, 3_000, 5_000):
            with contextlib.suppress(grpc.RpcError):
                wait_for(lambda count=count: is_done.is_set() or len(stored(log)) >= count)
            log.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    with reput_client.connect(commitlog=log.target, timeout_s=LIMIT_S, retry=PATIENT) as client:
        with client.writer("w", window_bytes=20_000) as writer:
            for batch in BATCHES:
                writer.append(batch)
        is_done.set()
        killer.join(LIMIT_S)
        with client.writer("w") as again:
            for batch in BATCHES:
                again.append(batch)
            assert again.flush().repeated_message_count == len(BODIES)
    assert log.kill_count == 3
    assert stored(log) == BODIES


def test_sends_under_an_id(log: FixedService, relay: Relay) -> None:
    """A message that is sent under an id is stored once, and each answer has its place.

    This is true after a lost answer, from another client, and after a kill.
    """
    with reput_client.connect(commitlog=relay.target, retry=PATIENT) as client:
        client.send_once("order-1", NewMessage("t", b"one", queue_id=3))
        relay.loses_answers = True
        loser = threading.Thread(target=lose_an_answer, args=(log, relay, 2))
        loser.start()
        first = client.send_once("order-2", NewMessage("t", b"two", queue_id=3, unique_id="u2"))
        loser.join(LIMIT_S)
    log.kill()
    with reput_client.connect(commitlog=log.target, timeout_s=LIMIT_S, retry=PATIENT) as client:
        again = client.send_once("order-2", NewMessage("other", b"whatever"))
        assert client.send_once("order-3", NewMessage("t", b"three", queue_id=3)).queue_offset == 2
    assert again == first
    assert (first.queue_id, first.queue_offset, first.unique_id) == (3, 1, "u2")
    assert stored(log) == [b"one", b"two", b"three"]


def test_an_async_send_under_an_id(log: FixedService) -> None:
    """Many sends at once under the same id store a single message."""

    async def run() -> set[tuple[int, int]]:
        async with aio.connect(commitlog=log.target) as client:
            sends = [client.send_once("order", NewMessage("t", b"%d" % number)) for number in range(8)]
            return {(sent.queue_id, sent.queue_offset) for sent in await asyncio.gather(*sends)}

    assert len(asyncio.run(run())) == 1
    assert len(stored(log)) == 1
