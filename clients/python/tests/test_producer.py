# SPDX-License-Identifier: Apache-2.0
"""Both producers against a server: results, batching, retries, back-pressure, closing."""

import asyncio
import concurrent.futures
import importlib
import logging
import multiprocessing
import sys
import threading
from collections.abc import Callable, Iterator

import grpc
import pytest
import reput_client
from reput_client import NewMessage, OutcomeUnknownError, ProducerOptions, ReputError, RetryPolicy, SendResult, aio
from reput_client.core.telemetry.tracing import find_tracing

from clients.python.tests.support import LIMIT_S, Log, serving, status

QUICK = RetryPolicy(delay_min_s=0.01, delay_max_s=0.02)
ENDLESS = RetryPolicy(retries=1_000_000, delay_min_s=0.01, delay_max_s=0.02)


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def target(log: Log) -> Iterator[str]:
    with serving(log) as target:
        yield target


def client(target: str) -> reput_client.Client:
    return reput_client.connect(commitlog=target, token="secret")


def options(**changes: object) -> ProducerOptions:
    return ProducerOptions(**{"retry": QUICK, **changes})  # type: ignore[arg-type]


def test_send(log: Log, target: str) -> None:
    """A message arrives as it was given, and its result says where it is."""
    with client(target) as store:
        producer = store.producer()
        future = producer.send("flights", b"body", tag="UA", keys=("N1", "UA7"), queue_id=3, flag=9, born_time_ms=5)
        result = future.result(LIMIT_S)
    (message,) = log.stored
    assert (message.topic, message.body, message.queue_id, message.flag, message.born_time_ms) == (
        "flights", b"body", 3, 9, 5,
    )  # fmt: skip
    expected = f"TAGS\x01UA\x02KEYS\x01N1 UA7\x02UNIQ_KEY\x01{result.unique_id}\x02"
    assert message.property_string == expected.encode()
    assert (result.queue_id, result.queue_offset, result.physical_offset) == (3, 0, 0)
    assert (result.store_time_ms, result.durability) == (1_700_000_000_123, reput_client.Durability.MEMORY)
    assert result.offset_message_id == "7F00000100001BBD0000000000000000"
    assert ("authorization", "Bearer secret") in log.metadata


def test_messages_travel_together(log: Log, target: str) -> None:
    """Messages that are sent at the same time share batches, and keep their order."""
    with client(target) as store, store.producer(options(linger_ms=50)) as producer:
        futures = [producer.send("t", str(number).encode()) for number in range(1000)]
        producer.flush(LIMIT_S)
        assert [future.result(0).queue_offset for future in futures] == list(range(1000))
    assert [message.body for message in log.stored] == [str(number).encode() for number in range(1000)]
    assert len(log.batch_sizes) < 20
    assert log.stream_count == 1


def test_send_batch(log: Log, target: str) -> None:
    """A single future has the outcomes of many messages, in their order."""
    log.plan = lambda _, messages: _refuse_bad(messages)
    bodies = [b"good", b"bad", b"good", b"bad", b"good"]
    with client(target) as store, store.producer(options()) as producer:
        outcomes = producer.send_batch([NewMessage("t", body) for body in bodies]).result(LIMIT_S)
        assert producer.send_batch([]).result(0) == []
    assert [isinstance(outcome, SendResult) for outcome in outcomes] == [True, False, True, False, True]
    assert outcomes[1].reason == "BAD_PROPERTIES"
    assert [message.body for message in log.stored] == [b"good"] * 3


def test_a_cut_line_is_mended(log: Log, target: str) -> None:
    """When the stream breaks the batch is sent again over a new stream. A stored batch may be stored twice."""
    breaks = {0: ConnectionError(), 2: ConnectionResetError()}
    log.plan = lambda number, _: breaks.get(number)
    with client(target) as store, store.producer(options()) as producer:
        assert producer.send("t", b"one").result(LIMIT_S).queue_offset == 0
        assert producer.send("t", b"two").result(LIMIT_S).queue_offset == 2
    assert [message.body for message in log.stored] == [b"one", b"two", b"two"]
    assert log.stream_count == 3


def test_no_retries_means_no_duplicates(log: Log, target: str) -> None:
    """With retries=0 a broken stream gives an unknown outcome, and the producer continues."""
    log.plan = lambda number, _: ConnectionResetError() if number == 0 else None
    with client(target) as store, store.producer(options(retry=RetryPolicy(retries=0))) as producer:
        with pytest.raises(OutcomeUnknownError):
            producer.send("t", b"one").result(LIMIT_S)
        assert producer.send("t", b"two").result(LIMIT_S).queue_offset == 1


def test_a_full_store_is_waited_for(log: Log, target: str) -> None:
    """A temporary refusal is retried until the store takes the batch."""
    full = status(grpc.StatusCode.RESOURCE_EXHAUSTED, "STORE_FULL", retry_after_s=0.01)
    log.plan = lambda number, _: full if number < 3 else None
    with client(target) as store, store.producer(options()) as producer:
        assert producer.send("t", b"x").result(LIMIT_S).queue_offset == 0
    assert log.batch_sizes == [1, 1, 1, 1]


def test_refusals_and_cut_lines_keep_the_order(log: Log, target: str) -> None:
    """Batches under way behind a refused or lost batch are not stored before it."""
    full = status(grpc.StatusCode.RESOURCE_EXHAUSTED, "STORE_FULL", retry_after_s=0.01)
    plan = {0: full, 1: None, 9: full, 20: ConnectionError(), 30: full}
    log.plan = lambda number, messages: plan.get(number) or _refuse_bad(messages)
    bodies = [b"bad" if number % 37 == 5 else str(number).encode() for number in range(200)]
    log.gate.clear()
    with client(target) as store, store.producer(options(batch_size_bytes=100)) as producer:
        futures = [producer.send("t", body) for body in bodies]
        log.gate.set()
        producer.flush(LIMIT_S)
        assert [future.exception(0) is not None for future in futures] == [body == b"bad" for body in bodies]
    assert [message.body for message in log.stored] == [body for body in bodies if body != b"bad"]


def test_back_pressure(log: Log, target: str) -> None:
    """`send` waits while the window is full, and continues when outcomes come."""
    log.gate.clear()
    with client(target) as store, store.producer(options(window_bytes=1000, batch_size_bytes=100)) as producer:
        sent = threading.Semaphore(0)

        def send() -> None:
            for _ in range(30):
                producer.send("t", bytes(60))
                sent.release()

        sender = threading.Thread(target=send)
        sender.start()
        assert all(sent.acquire(timeout=LIMIT_S) for _ in range(5))
        assert not sent.acquire(timeout=0.2) or not all(sent.acquire(timeout=0.2) for _ in range(20))
        log.gate.set()
        sender.join(LIMIT_S)
        assert not sender.is_alive()
    assert len(log.stored) == 30


def test_close(log: Log, target: str) -> None:
    """Closing sends the collected messages. Later messages are refused."""
    store = client(target)
    producer = store.producer(options(linger_ms=60_000))
    future = producer.send("t", b"late")
    store.close()
    assert future.result(0).queue_offset == 0
    with pytest.raises(ReputError, match="closed"):
        producer.send("t", b"too late")
    producer.close()


def test_close_without_waiting(log: Log, target: str) -> None:
    """Closing with a time-out fails messages without an outcome, even if the server never answers."""
    log.gate.clear()
    store = client(target)
    producer = store.producer(options())
    future = producer.send("t", b"x")
    producer.close(timeout_s=0.1)
    assert isinstance(future.exception(0), reput_client.UnavailableError)
    log.gate.set()
    store.close()


def test_close_ends_with_the_time_out_of_the_client() -> None:
    """An unreachable store delays a close no longer than any call."""
    with reput_client.connect(commitlog="127.0.0.1:1", timeout_s=1.0) as store:
        with store.producer(options(retry=ENDLESS)) as producer:
            future = producer.send("t", b"x")
        assert isinstance(future.exception(0), reput_client.UnavailableError)
        other = store.producer(options(retry=ENDLESS)).send("t", b"y")
    assert isinstance(other.exception(0), reput_client.UnavailableError)


async def test_async_close_ends_with_the_time_out_of_the_client() -> None:
    """So it is with asyncio."""
    async with aio.connect(commitlog="127.0.0.1:1", timeout_s=1.0) as store:
        async with store.producer(options(retry=ENDLESS)) as producer:
            future = await producer.send("t", b"x")
        assert isinstance(future.exception(), reput_client.UnavailableError)


def test_nobody_listens() -> None:
    """A store that can't be reached fails the message when the retries are used up."""
    with reput_client.connect(commitlog="127.0.0.1:1") as store:
        producer = store.producer(options(retry=RetryPolicy(retries=2, delay_min_s=0.01, delay_max_s=0.01)))
        with pytest.raises(reput_client.UnavailableError):
            producer.send("t", b"x").result(LIMIT_S)


def test_flush_timeout(log: Log, target: str) -> None:
    """`flush` gives up after its time-out and says how much is missing."""
    log.gate.clear()
    with client(target) as store, store.producer(options()) as producer:
        producer.send("t", b"x")
        with pytest.raises(TimeoutError, match="bytes"):
            producer.flush(0.05)
        log.gate.set()


def test_flush_waits_for_callbacks(log: Log, target: str) -> None:
    """When it returns, each future is done and its callbacks have run. In such a callback it would wait for itself."""
    log.gate.clear()
    is_called, may_end = threading.Event(), threading.Event()
    errors: list[str] = []
    with client(target) as store, store.producer(options()) as producer:

        def called(_: object) -> None:
            with pytest.raises(RuntimeError) as caught:
                producer.flush(LIMIT_S)
            is_called.set()
            may_end.wait(LIMIT_S)
            errors.append(str(caught.value))

        producer.send("t", b"x").add_done_callback(called)
        log.gate.set()
        assert is_called.wait(LIMIT_S)
        with pytest.raises(TimeoutError, match="callbacks"):
            producer.flush(0.05)
        may_end.set()
        producer.flush(LIMIT_S)
        assert errors == ["flush waits for callbacks, so that none may call it"]


@pytest.mark.parametrize("changes", [{"linger_ms": -1}, {"batch_size_bytes": 0}, {"batch_size_bytes": 9 << 20}])
def test_bad_options(changes: dict[str, int]) -> None:
    """Options that can't work are refused when they are made."""
    with pytest.raises(ValueError, match=next(iter(changes))):
        ProducerOptions(**changes)


async def test_async_send(log: Log, target: str) -> None:
    """The asyncio producer sends, batches and returns results in the same way."""
    log.plan = lambda number, messages: ConnectionError() if number == 0 else _refuse_bad(messages)
    async with aio.connect(commitlog=target, token="secret") as store:
        producer = store.producer(options())
        futures = [await producer.send("t", str(number).encode()) for number in range(500)]
        futures.append(await producer.send("t", b"bad"))
        await producer.flush()
        assert [future.result().queue_offset for future in futures[:-1]] == list(range(500))
        assert futures[-1].exception().reason == "BAD_PROPERTIES"
        outcomes = await (await producer.send_batch([NewMessage("t", b"good"), NewMessage("t", b"bad")]))
        assert [isinstance(outcome, SendResult) for outcome in outcomes] == [True, False]
        assert await (await producer.send_batch([])) == []
    assert ("authorization", "Bearer secret") in log.metadata
    with pytest.raises(ReputError, match="closed"):
        await producer.send("t", b"too late")


async def test_async_back_pressure(log: Log, target: str) -> None:
    """`send` of the asyncio producer waits for room as well."""
    log.gate.clear()
    async with aio.connect(commitlog=target) as store:
        producer = store.producer(options(window_bytes=1000, batch_size_bytes=100))

        async def send() -> None:
            for _ in range(30):
                await producer.send("t", bytes(60))

        sender = asyncio.create_task(send())
        done, _ = await asyncio.wait([sender], timeout=0.2)
        assert not done
        log.gate.set()
        await asyncio.wait_for(sender, LIMIT_S)
    assert len(log.stored) == 30


async def test_async_close_without_waiting(log: Log, target: str) -> None:
    """Closing the asyncio producer with a time-out fails messages without an outcome."""
    log.gate.clear()
    async with aio.connect(commitlog=target) as store:
        producer = store.producer(options())
        future = await producer.send("t", b"x")
        await producer.close(timeout_s=0.1)
        assert isinstance(future.exception(), reput_client.UnavailableError)
        log.gate.set()


async def test_async_close_wakes_everybody(log: Log, target: str) -> None:
    """A task that waits in `flush` ends when another task gives up."""
    log.gate.clear()
    async with aio.connect(commitlog=target) as store:
        producer = store.producer(options())
        await producer.send("t", b"x")
        flushing = asyncio.create_task(producer.flush())
        await asyncio.sleep(0.05)
        await producer.close(timeout_s=0.1)
        await asyncio.wait_for(flushing, LIMIT_S)
        log.gate.set()


def test_a_batch_that_is_refused_as_a_whole_is_cut(log: Log, target: str) -> None:
    """After a refusal that names no message the batch is sent again in halves, until the bad message is alone."""

    def plan(_: int, messages: list) -> object:
        is_bad = any(message.body == b"bad" for message in messages)
        return status(grpc.StatusCode.INVALID_ARGUMENT, "BATCH_TOO_LARGE") if is_bad else None

    log.plan = plan
    with client(target) as store, store.producer(options(linger_ms=1000)) as producer:
        bodies = [b"a", b"b", b"bad", b"c", b"d"]
        outcomes = producer.send_batch([NewMessage("t", body) for body in bodies])
        producer.flush()
        assert [isinstance(outcome, SendResult) for outcome in outcomes.result(LIMIT_S)] == [
            True,
            True,
            False,
            True,
            True,
        ]


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "reput_client")
    return lambda: [record.getMessage() for record in caplog.records if record.name == "reput_client"]


def test_failures_that_nobody_asked_about_are_told(log: Log, target: str, warnings: Callable[[], list[str]]) -> None:
    """A flush and a close log the number of failed messages and the first error. Each message counts a single time."""
    log.plan = lambda _, messages: _refuse_bad(messages)
    with client(target) as store, store.producer(options()) as producer:
        producer.send("t", b"bad")
        producer.send("t", b"good")
        producer.send_batch([NewMessage("t", b"bad"), NewMessage("t", b"good"), NewMessage("t", b"bad")])
        producer.flush()
        assert len(warnings()) == 1
        assert warnings()[0].startswith("3 messages of a producer failed")
        assert "BAD_PROPERTIES" in warnings()[0]
        producer.flush()
        producer.send("t", b"bad")
        assert len(warnings()) == 1
    assert [line.split(" ", 1)[0] for line in warnings()] == ["3", "1"]


def test_failures_that_were_asked_about_are_not_told(log: Log, target: str, warnings: Callable[[], list[str]]) -> None:
    """Results, exceptions and callbacks are asked for, before or after the outcome is there."""
    log.plan = lambda _, messages: _refuse_bad(messages)
    with client(target) as store, store.producer(options()) as producer:
        with pytest.raises(ReputError, match="BAD_PROPERTIES"):
            producer.send("t", b"bad").result(LIMIT_S)
        assert producer.send("t", b"bad").exception(LIMIT_S) is not None
        producer.send("t", b"bad").add_done_callback(lambda _: None)
        assert producer.send_batch([NewMessage("t", b"bad")]).result(LIMIT_S)
        late = producer.send("t", b"bad")
        assert concurrent.futures.wait([late], LIMIT_S).done
        assert late.exception() is not None
    assert warnings() == []


async def test_async_failures_that_nobody_asked_about_are_told(
    log: Log, target: str, warnings: Callable[[], list[str]]
) -> None:
    """The asyncio producer does the same. Awaiting, alone or with others, is asking."""
    log.plan = lambda _, messages: _refuse_bad(messages)
    async with aio.connect(commitlog=target) as store:
        producer = store.producer(options())
        with pytest.raises(ReputError, match="BAD_PROPERTIES"):
            await (await producer.send("t", b"bad"))
        waiting = asyncio.gather(await producer.send("t", b"bad"), return_exceptions=True)
        await producer.flush()
        await waiting
        assert warnings() == []
        futures = [await producer.send("t", b"bad"), await producer.send_batch([NewMessage("t", b"bad")])]
        await producer.flush()
        assert len(warnings()) == 1
        assert warnings()[0].startswith("2 messages of a producer failed")
        assert futures[0].exception() is not None
        await producer.close()
    assert len(warnings()) == 1


def test_what_no_request_carries_is_refused_here(log: Log, target: str) -> None:
    """A body above gRPC's limit is refused, and fails no other message. The same applies to a batch of a writer."""
    large = bytes(65 << 20)
    with client(target) as store:
        producer = store.producer(options())
        before = producer.send("t", b"before")
        for send in (lambda: producer.send("t", large), lambda: producer.send_batch([NewMessage("t", large)])):
            with pytest.raises(reput_client.InvalidArgumentError, match="nothing was sent") as raised:
                send()
            assert raised.value.reason == "MESSAGE_TOO_LARGE"
            assert raised.value.metadata["field"] == "body"
            assert int(raised.value.metadata["limit"]) < int(raised.value.metadata["value"]) == len(large)
        after = producer.send("t", b"after")
        assert [before.result(LIMIT_S).queue_offset, after.result(LIMIT_S).queue_offset] == [0, 1]
        with store.writer("w") as writer:
            with pytest.raises(reput_client.InvalidArgumentError, match="BATCH_TOO_LARGE"):
                writer.append([NewMessage("t", bytes(33 << 20))] * 2)
            writer.append([NewMessage("t", b"written")])
    assert [message.body for message in log.stored] == [b"before", b"after", b"written"]


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs a system with fork")
def test_a_forked_child_is_told_at_once(log: Log, target: str) -> None:
    """An object made before a fork raises in the child, which lacks its threads. A close does nothing there."""
    with client(target) as store:
        producer, writer = store.producer(), store.writer("w")
        sharing = store.share_consumer("t", group="g")
        uses: dict[str, list[Callable[[], object]]] = {
            "producer": [lambda: producer.send("t", b""), lambda: producer.send_batch([]), producer.flush],
            "writer": [lambda: writer.append([NewMessage("t", b"")]), writer.flush],
            "share consumer": [sharing.receive, lambda: sharing.run(print), lambda: next(iter(sharing))],
        }

        def use_all() -> None:
            for what, calls in uses.items():
                for call in calls:
                    with pytest.raises(RuntimeError, match=f"this {what} was made in process .* after the fork"):
                        call()
            for made in (producer, writer, sharing):
                made.close()

        child = multiprocessing.get_context("fork").Process(target=use_all)
        child.start()
        child.join(LIMIT_S)
        assert child.exitcode == 0
        assert producer.send("t", b"of its own process").result(LIMIT_S).queue_offset == 0


def _refuse_bad(messages: list) -> object:
    """Refuse a batch because of its first bad message."""
    for index, message in enumerate(messages):
        if message.body == b"bad":
            field = f"messages[{index}].properties"
            return status(grpc.StatusCode.INVALID_ARGUMENT, "BAD_PROPERTIES", field=field)
    return None


def test_a_trace_asks_for_nothing(
    log: Log, target: str, warnings: Callable[[], list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Failures are also logged in a program with spans, which read the outcomes of their messages."""
    monkeypatch.setitem(sys.modules, "opentelemetry", importlib.import_module("opentelemetry"))
    log.plan = lambda _, messages: _refuse_bad(messages)
    with client(target) as store, store.producer(options()) as producer:
        assert find_tracing() is not None
        producer.send("t", b"bad")
        producer.flush()
    assert [line.split(" ", 1)[0] for line in warnings()] == ["1"]
