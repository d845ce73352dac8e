# SPDX-License-Identifier: Apache-2.0
"""A caller that waits for an outcome ends the linger of its batch; callers that wait at the same time share batches."""

import asyncio
import concurrent.futures
from collections.abc import Awaitable, Callable, Iterator

import pytest
import reput_client
from reput_client import NewMessage, ProducerOptions, aio
from reput_client.core.sending import SendQueue

from clients.python.tests.support import LIMIT_S, Log, serving

PATIENT = ProducerOptions(linger_ms=3_600_000)
"""Without a caller that waits, a batch lingers longer than the test."""


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def target(log: Log) -> Iterator[str]:
    with serving(log) as target:
        yield target


def test_a_queue_hurries_the_batch_of_a_number() -> None:
    """`hurry` makes the open batch due, only if it has the number; later messages linger again."""
    queue = SendQueue(ProducerOptions(batch_size_bytes=10, linger_ms=5))

    def add(size_bytes: int) -> int:
        queue.add(bytes(size_bytes), "", None, lambda: 1.0)  # type: ignore[arg-type]
        return queue.batch_number

    assert not queue.hurry(0)
    assert not queue.hurry(1)
    first = add(4)
    assert not queue.hurry(first + 1)
    assert queue.wait_s(1.0) == pytest.approx(0.005)
    assert queue.hurry(first)
    assert not queue.hurry(first), "the sender looks again only once"
    assert queue.wait_s(1.0) == 0.0
    assert add(4) == first, "messages are added until the batch is popped"
    batch = queue.pop(1.0)
    assert batch is not None
    assert len(batch.sinks) == 2
    assert not queue.hurry(first)
    full = add(10)
    assert full == first + 1
    assert not queue.hurry(full), "it is ready already"
    second = add(4)
    assert second == full + 1
    assert queue.pop(1.0) is not None
    assert not queue.hurry(full)
    assert queue.pop(1.0) is None, "the next batch lingers"
    assert queue.hurry(second)
    assert queue.pop(1.0) is not None


def test_a_caller_that_waits_does_not_linger(log: Log, target: str) -> None:
    """`result` and `exception` of a message or a batch send what was collected."""
    with reput_client.connect(commitlog=target) as store, store.producer(PATIENT) as producer:
        first, second = producer.send("t", b"1"), producer.send("t", b"2")
        assert first.result(LIMIT_S).queue_offset == 0
        assert second.exception(LIMIT_S) is None
        assert producer.send("t", b"3").exception(LIMIT_S) is None
        outcomes = producer.send_batch([NewMessage("t", b"4"), NewMessage("t", b"5")]).result(LIMIT_S)
        assert len(outcomes) == 2
        assert log.batch_sizes == [2, 1, 2]


def test_a_look_and_a_callback_do_not_hurry(log: Log, target: str) -> None:
    """A look without waiting and a callback leave the messages in the open batch."""
    with reput_client.connect(commitlog=target) as store, store.producer(PATIENT) as producer:
        future = producer.send("t", b"1")
        seen: list[object] = []
        future.add_done_callback(seen.append)
        assert not future.done()
        with pytest.raises(TimeoutError):
            future.result(0)
        last = producer.send("t", b"2")
        assert last.result(LIMIT_S).queue_offset == 1
    assert log.batch_sizes == [2]
    assert seen == [future]


def test_a_caller_that_gives_up_disturbs_no_other(log: Log, target: str) -> None:
    """A time-out of one caller leaves its message and the messages of others in the stream."""
    log.gate.clear()
    with reput_client.connect(commitlog=target) as store, store.producer(PATIENT) as producer:
        given_up, other = producer.send("t", b"1"), producer.send("t", b"2")
        with pytest.raises(TimeoutError):
            given_up.result(0.01)
        log.gate.set()
        assert other.result(LIMIT_S).queue_offset == 1
        assert given_up.result(0).queue_offset == 0


def test_threads_that_wait_share_a_stream(log: Log, target: str) -> None:
    """Threads that each wait for their message need no linger, and use a single stream."""
    with reput_client.connect(commitlog=target) as store, store.producer(PATIENT) as producer:

        def caller(number: int) -> int:
            for _ in range(20):
                result = producer.send("t", str(number).encode()).result(LIMIT_S)
            return result.queue_offset

        with concurrent.futures.ThreadPoolExecutor(16) as pool:
            assert len(set(pool.map(caller, range(16)))) == 16
    assert len(log.stored) == 320
    assert log.stream_count == 1


WAYS: dict[str, Callable[["asyncio.Future[object]"], Awaitable[object]]] = {
    "await": lambda future: future,
    "gather": lambda future: asyncio.gather(future),
    "wait": lambda future: asyncio.wait([future]),
    "wait_for": lambda future: asyncio.wait_for(future, LIMIT_S),
    "shield": lambda future: asyncio.shield(future),
}


@pytest.mark.parametrize("way", WAYS)
async def test_tasks_that_wait_share_batches(log: Log, target: str, way: str) -> None:
    """Tasks that send in the same turn and wait, in each way of asyncio, have a batch in common."""
    async with aio.connect(commitlog=target) as store, store.producer(PATIENT) as producer:

        async def caller() -> None:
            for _ in range(3):
                await asyncio.wait_for(WAYS[way](await producer.send("t", b"x")), LIMIT_S)  # type: ignore[arg-type]

        await asyncio.gather(*(caller() for _ in range(64)))
        assert len(await asyncio.wait_for(await producer.send_batch([NewMessage("t", b"x")] * 2), LIMIT_S)) == 2
    assert sum(log.batch_sizes) == 194
    assert log.batch_sizes[0] == 64
    assert len(log.batch_sizes) <= 20
    assert log.stream_count == 1


async def test_a_task_that_is_cancelled_disturbs_no_other(log: Log, target: str) -> None:
    """A task that is cancelled while it waits leaves its message in the stream, and the other task gets its result."""
    log.gate.clear()
    async with aio.connect(commitlog=target) as store, store.producer(PATIENT) as producer:

        async def caller() -> int:
            return (await (await producer.send("t", b"x"))).queue_offset

        given_up, other = asyncio.create_task(caller()), asyncio.create_task(caller())
        await asyncio.sleep(0)
        given_up.cancel()
        log.gate.set()
        assert await asyncio.wait_for(other, LIMIT_S) == 1
        assert given_up.cancelled()
    assert len(log.stored) == 2
