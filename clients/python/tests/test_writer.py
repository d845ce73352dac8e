# SPDX-License-Identifier: Apache-2.0
"""Both writers against a log that breaks streams and refuses batches: each batch is stored once, in order."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
import reput_client
from reput_client import NewMessage, RetryPolicy, Written, aio

from clients.python.tests.support import LIMIT_S, Log, serving, status

QUICK = RetryPolicy(retries=3, delay_min_s=0.001, delay_max_s=0.001)
BATCHES = [[NewMessage("t", f"{number}-{place}".encode()) for place in range(3)] for number in range(40)]
BODIES = [message.body for batch in BATCHES for message in batch]


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def target(log: Log) -> Iterator[str]:
    with serving(log) as target:
        yield target


def write(target: str, batches: list[list[NewMessage]], timeout_s: float | None = None, **options: Any) -> Written:
    with (
        reput_client.connect(commitlog=target, timeout_s=timeout_s, retry=QUICK) as client,
        client.writer("w", **options) as writer,
    ):
        for batch in batches:
            writer.append(batch)
        return writer.flush()


def write_async(
    target: str, batches: list[list[NewMessage]], timeout_s: float | None = None, **options: Any
) -> Written:
    async def run() -> Written:
        async with (
            aio.connect(commitlog=target, timeout_s=timeout_s, retry=QUICK) as client,
            client.writer("w", **options) as writer,
        ):
            for batch in batches:
                await writer.append(batch)
            return await writer.flush()

    return asyncio.run(asyncio.wait_for(run(), LIMIT_S))


WRITES = pytest.mark.parametrize("write", [write, write_async])
Write = Callable[..., Written]


def stored(log: Log) -> list[bytes]:
    return [message.body for message in log.stored]


@WRITES
@pytest.mark.parametrize("window_bytes", [1, 100, 8 << 20])
def test_batches_in_order(log: Log, target: str, write: Write, window_bytes: int) -> None:
    """Over a single stream, numbered from 0, with windows of any size."""
    written = write(target, BATCHES, window_bytes=window_bytes)
    assert stored(log) == BODIES
    assert sorted(log.by_writer) == [("w", number) for number in range(40)]
    assert (written.message_count, written.repeated_message_count, log.stream_count) == (120, 0, 1)


@WRITES
@pytest.mark.parametrize("how", [ConnectionError, ConnectionResetError])
@pytest.mark.parametrize("number", [0, 1, 7, 39])
def test_a_broken_stream_loses_and_repeats_nothing(
    log: Log, target: str, write: Write, number: int, how: type[Exception]
) -> None:
    """Whether the batch was stored or not when the answer was lost."""
    log.plan = lambda count, _messages: how() if count in (number, number + 3) else None
    written = write(target, BATCHES, window_bytes=300)
    assert stored(log) == BODIES
    assert written.message_count == 120
    assert written.repeated_message_count > 0 or how is ConnectionError


@WRITES
@pytest.mark.parametrize("reason", ["STORE_FULL", "WINDOW_FULL", "RECOVERING"])
def test_a_refusal_that_passes(log: Log, target: str, write: Write, reason: str) -> None:
    """The batch, and the batches behind it that were refused with it, are sent again in order."""
    passing = status(grpc.StatusCode.RESOURCE_EXHAUSTED, reason)
    log.plan = lambda count, _messages: passing if 10 <= count < 12 else None
    write(target, BATCHES)
    assert stored(log) == BODIES


@WRITES
def test_a_program_that_starts_again(log: Log, target: str, write: Write) -> None:
    """The same batches are stored already. Later batches are new. A different beginning is refused."""
    write(target, BATCHES[:10])
    assert write(target, BATCHES).repeated_message_count == 30
    assert write(target, BATCHES[:5], first_sequence=40).repeated_message_count == 0
    assert stored(log) == BODIES + BODIES[:15]
    with pytest.raises(reput_client.AlreadyExistsError, match="WRITER_CONTENT_DIFFERS"):
        write(target, BATCHES[1:2])


@WRITES
def test_a_refusal_that_stays(log: Log, target: str, write: Write) -> None:
    """It is raised, and the end of the block does not try again."""
    lasting = status(grpc.StatusCode.INVALID_ARGUMENT, "MESSAGE_TOO_LARGE")
    log.plan = lambda _count, messages: lasting if messages[0].body == b"20-0" else None
    with pytest.raises(reput_client.InvalidArgumentError, match="MESSAGE_TOO_LARGE"):
        write(target, BATCHES)
    assert stored(log) == BODIES[:60]


def test_an_error_leaves_what_has_no_outcome(log: Log, target: str) -> None:
    """`flush` continues with the same batch, and `next_sequence` is the number for another writer."""
    log.plan = lambda _count, _messages: ConnectionError()
    with reput_client.connect(commitlog=target, retry=RetryPolicy(retries=0)) as client:
        writer = client.writer("w", first_sequence=5)
        writer.append(BATCHES[0])
        for _ in range(2):
            with pytest.raises(reput_client.UnavailableError):
                writer.flush()
        assert writer.next_sequence == 5
        log.by_writer["w", 4] = b""
        log.plan = lambda _count, _messages: None
        assert writer.flush().message_count == 3
        assert writer.next_sequence == 6


def test_an_exception_gives_up(log: Log, target: str) -> None:
    """A block of the client that ends with an exception does not wait for a log that never answers."""
    log.plan = lambda _count, _messages: ConnectionError()
    endless = RetryPolicy(retries=1_000_000, delay_max_s=0.01)

    async def client_async() -> None:
        async with aio.connect(commitlog=target, retry=endless) as client:
            await client.writer("w").append(BATCHES[0])
            raise KeyError

    def client_alone() -> None:
        with reput_client.connect(commitlog=target, retry=endless) as client:
            client.writer("w").append(BATCHES[0])
            raise KeyError

    def both() -> None:
        with reput_client.connect(commitlog=target, retry=endless) as client, client.writer("w") as writer:
            writer.append(BATCHES[0])
            raise KeyError

    for block in (lambda: asyncio.run(client_async()), client_alone, both):
        with pytest.raises(KeyError):
            block()


def test_nothing_half(log: Log, target: str) -> None:
    """A batch with a message that can't be encoded is not sent, and neither is a batch without messages."""
    with reput_client.connect(commitlog=target) as client, client.writer("w") as writer:
        for batch in ([NewMessage("t", b""), NewMessage("t", b"", tag="")], []):
            with pytest.raises(ValueError, match=r"is empty|at least one"):
                writer.append(batch)
    assert (log.stored, log.stream_count) == ([], 0)


@WRITES
def test_a_log_that_does_not_answer(log: Log, target: str, write: Write) -> None:
    """Each answer has the client's time-out. Then another attempt finds the stored batch."""
    log.gate.clear()
    with pytest.raises(reput_client.DeadlineExceededError, match=r"no answer within 0\.2 s"):
        write(target, BATCHES[:1], timeout_s=0.2)
    log.gate.set()
    assert write(target, BATCHES[:1]).message_count == 3
    assert stored(log) == BODIES[:3]
