# SPDX-License-Identifier: Apache-2.0
"""Share consumers of both clients in an outage of a service, and after all kinds of callbacks, on a test clock."""

import asyncio
import itertools
import logging
import threading
import types
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import pytest
from reput.common.v1 import message_pb2
from reput_client import Message, Received, ReputError, RetryPolicy
from reput_client.aio import transactions as aio_transactions
from reput_client.aio.sharing import consumer as aio_consumer
from reput_client.aio.sharing.crew import AsyncCrew, AsyncFlag
from reput_client.core.errors import AuthenticationError, InvalidArgumentError, NotFoundError, UnavailableError
from reput_client.core.sharing.holding import ShareSettings
from reput_client.core.sharing.outage import Outage
from reput_client.sync import transactions as sync_transactions
from reput_client.sync.sharing import consumer as sync_consumer
from reput_client.sync.sharing.crew import Crew, Flag

from clients.python.tests.support import LIMIT_S

CODES = grpc.StatusCode
PASSING = [
    UnavailableError("no connection", code=CODES.UNAVAILABLE),
    UnavailableError("starts", code=CODES.UNAVAILABLE, reason="RECOVERING"),
    UnavailableError("follows", code=CODES.UNAVAILABLE, reason="NOT_LEADER"),
    ReputError("late", code=CODES.DEADLINE_EXCEEDED),
    NotFoundError("not made yet", code=CODES.NOT_FOUND, reason="TOPIC_NOT_FOUND"),
]
LASTING = [
    AuthenticationError("no token", code=CODES.UNAUTHENTICATED, reason="UNAUTHENTICATED"),
    AuthenticationError("a member's token", code=CODES.PERMISSION_DENIED, reason="NOT_PERMITTED"),
    InvalidArgumentError("no condition", code=CODES.INVALID_ARGUMENT, reason="BAD_ARGUMENT"),
]


SETTINGS = ShareSettings("g", invisible_s=30)


class Clock:
    """Time that passes while something waits."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.now_s

    def sleep(self, seconds: float) -> None:
        """Let time pass."""
        self.now_s += seconds


class Delivery:
    """Channels to a Delivery that fails while `failure` returns an error, and otherwise gives a message per receive."""

    def __init__(self, kind: str, failure: Callable[[], BaseException | None]) -> None:
        self.retry, self.options = RetryPolicy(), types.SimpleNamespace(timeout_s=LIMIT_S)
        self.settled: list[tuple[str, str]] = []
        self._failure, self._kind = failure, kind
        self._numbers = itertools.count()

    def run(self, call: Any, retry: RetryPolicy | None = None) -> Any:
        """Answer, as Channels.run or AsyncChannels.run does."""
        return self._answer(call) if self._kind == "sync" else self._answer_soon(call)

    async def _answer_soon(self, call: Any) -> Any:
        await asyncio.sleep(0)
        return self._answer(call)

    def _answer(self, call: Any) -> Any:
        entries = getattr(call.request, "entries", None)
        if entries is not None:
            self.settled += [(entry.handle, entry.WhichOneof("action")) for entry in entries]
            return [None] * len(entries)
        if (failure := self._failure()) is not None:
            raise failure
        number = str(next(self._numbers))
        if hasattr(call.request, "check_count_max"):
            return types.SimpleNamespace(checks=[types.SimpleNamespace(transaction=None, message=None)])
        return [Received(Message(message_pb2.StoredMessage(body=number.encode())), 1, number)]


def sharing(delivery: Any, settings: ShareSettings = SETTINGS) -> sync_consumer.ShareConsumer:
    return sync_consumer.ShareConsumer(delivery, sync_consumer.Settler(delivery), "orders", settings)


def aio_sharing(delivery: Any, settings: ShareSettings = SETTINGS) -> aio_consumer.AsyncShareConsumer:
    return aio_consumer.AsyncShareConsumer(delivery, aio_consumer.AsyncSettler(delivery), "orders", settings)


class Door:
    """A consumer of either kind at a Delivery that fails, with waits that only move the clock."""

    def __init__(self, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self.kind, self.clock = kind, Clock()
        self.delivery: Delivery
        self.module: Any = sync_consumer if kind == "sync" else aio_consumer
        clock = self.clock
        monkeypatch.setattr(self.module, "time", clock)
        if kind == "sync":
            monkeypatch.setattr(Flag, "wait_for", lambda _, seconds: clock.sleep(seconds))
        else:

            async def wait_for(_: object, seconds: float) -> None:
                clock.sleep(seconds)

            monkeypatch.setattr(AsyncFlag, "wait_for", wait_for)

    def consume(
        self, failure: Callable[[], BaseException | None], handle: Callable[[Any, Received], Any], *, iterates: bool
    ) -> tuple[Any, Delivery]:
        """Run a consumer, or iterate over it, until `handle` closes it. Returns it and its Delivery."""
        delivery = self.delivery = Delivery(self.kind, failure)
        if self.kind == "sync":
            consumer = sharing(delivery)
            if iterates:
                for received in consumer:
                    handle(consumer, received)
            else:
                consumer.run(lambda received: handle(consumer, received))
            return consumer, delivery

        async def consume() -> Any:
            one = aio_sharing(delivery)

            async def handle_soon(received: Received) -> None:
                closing = handle(one, received)
                if closing is not None:
                    await closing

            if iterates:
                async for received in one:
                    await handle_soon(received)
            else:
                await one.run(handle_soon)
            return one

        return asyncio.run(consume()), delivery


@pytest.fixture(params=["sync", "aio"])
def door(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Door:
    return Door(request.param, monkeypatch)


@pytest.fixture
def warnings(caplog: pytest.LogCaptureFixture) -> Callable[[], list[str]]:
    caplog.set_level(logging.WARNING, "reput_client")
    return lambda: [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("iterates", [False, True], ids=["run", "iteration"])
@pytest.mark.parametrize("error", PASSING, ids=lambda error: error.reason or error.code.name)
def test_an_outage_of_a_minute_ends_nothing(
    door: Door, error: ReputError, iterates: bool, warnings: Callable[[], list[str]]
) -> None:
    """A run and an iteration continue after an outage. Its beginning and its end are logged."""
    begin_s, seen = door.clock.now_s, list[bytes]()

    def handle(consumer: Any, received: Received) -> Any:
        seen.append(received.message.body)
        return consumer.close()

    consumer, _ = door.consume(lambda: error if door.clock.now_s < begin_s + 60 else None, handle, iterates=iterates)
    assert seen == [b"0"]
    begin, end = warnings()
    assert begin.startswith("receiving from orders for group g does not work, and is tried again until it does")
    assert str(error) in begin
    assert "works again after 6" in end
    metrics = consumer.metrics()
    assert (metrics.outage_count, metrics.outage_s) == (1, 0.0)
    assert 12 <= metrics.failed_receive_count <= 40  # about 5 s lie between later attempts


@pytest.mark.parametrize("iterates", [False, True], ids=["run", "iteration"])
@pytest.mark.parametrize("error", LASTING, ids=lambda error: error.reason)
def test_a_refusal_that_does_not_pass_is_raised(door: Door, error: ReputError, iterates: bool) -> None:
    """A permanent refusal ends a run and an iteration at once, in an outage, too."""
    errors: Iterator[ReputError] = iter([PASSING[0], PASSING[0], PASSING[0], error])
    with pytest.raises(type(error), match=error.reason):
        door.consume(lambda: next(errors), lambda *_: None, iterates=iterates)


def test_a_restart_that_is_over_at_once_is_not_told(door: Door, warnings: Callable[[], list[str]]) -> None:
    """Two failed calls are no outage. They are counted."""
    errors: Iterator[Any] = iter([PASSING[0], PASSING[1], None])
    consumer, _ = door.consume(lambda: next(errors, None), lambda consumer, _: consumer.close(), iterates=False)
    assert warnings() == []
    assert (consumer.metrics().failed_receive_count, consumer.metrics().outage_count) == (2, 0)


def test_another_reason_is_told(warnings: Callable[[], list[str]]) -> None:
    """A change of the reason of an outage is logged a single time, and the outage stays the same."""
    outage = Outage("it", RetryPolicy())
    for error in (*[PASSING[0]] * 5, *[PASSING[4]] * 5):
        assert outage.on_failure(error, 1.0) is not None
    outage.on_success(3.0)
    assert [line.split(":")[0] for line in warnings()] == [
        "it does not work, and is tried again until it does",
        "it does not work, and is tried again until it does",
        "it works again after 2.0 s and 10 failed calls",
    ]
    assert outage.outage_count == 1


def test_a_policy_without_delays_does_not_spin() -> None:
    """With any retries of the client, attempts of an outage have delays, and no end."""
    outage = Outage("it", RetryPolicy(retries=0, delay_min_s=0, delay_max_s=0))
    assert all((outage.on_failure(PASSING[0], 0.0) or 0) > 0 for _ in range(5000))


@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_a_close_ends_the_wait(kind: str) -> None:
    """A consumer that waits for the next attempt is closed without waiting for it."""
    is_tried = threading.Event()

    def failure() -> ReputError:
        is_tried.set()
        return ReputError("away", code=CODES.UNAVAILABLE, retry_after=3600.0)

    delivery = Delivery(kind, failure)
    settings = ShareSettings("g", invisible_s=30)
    if kind == "sync":
        consumer = sharing(delivery, settings)
        thread = threading.Thread(target=consumer.run, args=[print], daemon=True)
        thread.start()
        assert is_tried.wait(LIMIT_S)
        consumer.close()
        thread.join(LIMIT_S)
        assert not thread.is_alive()
        return

    async def run() -> None:
        one = aio_sharing(delivery, settings)
        async with asyncio.timeout(LIMIT_S):
            task = asyncio.create_task(one.run(lambda _: asyncio.sleep(0)))
            assert await asyncio.to_thread(is_tried.wait, LIMIT_S)
            await one.close()
            await task

    asyncio.run(run())


class Own(BaseException):
    """A time-out of some library, say."""


@pytest.mark.parametrize("failure", [asyncio.CancelledError, GeneratorExit, Own, ValueError])
def test_a_failure_of_any_kind_gives_its_message_back(
    door: Door, failure: type[BaseException], warnings: Callable[[], list[str]]
) -> None:
    """The message is given back as failed, the failure is logged, and the run continues with the next message."""

    def handle(consumer: Any, received: Received) -> Any:
        if received.message.body == b"0":
            raise failure
        return consumer.close()

    consumer, delivery = door.consume(lambda: None, handle, iterates=False)
    assert ("0", "nack") in delivery.settled
    assert ("1", "ack") in delivery.settled
    assert warnings() == ["a message of orders is given back: its callback failed"]
    assert (consumer.metrics().failed_message_count, consumer.metrics().held_message_count) == (1, 0)


@pytest.mark.parametrize("failure", [SystemExit(3), KeyboardInterrupt()], ids=repr)
def test_an_exit_of_a_callback_ends_the_run(door: Door, failure: BaseException) -> None:
    """`sys.exit` in a callback concerns the program: its message is given back, and the run raises its exception."""

    def handle(_consumer: Any, _: Received) -> None:
        raise failure

    with pytest.raises(type(failure)) as raised:
        door.consume(lambda: None, handle, iterates=False)
    assert raised.value is failure
    assert ("0", "nack") in door.delivery.settled
    assert all(action == "nack" for _, action in door.delivery.settled)


def test_the_crew_looks_how_works_ended(caplog: pytest.LogCaptureFixture) -> None:
    """A work that fails outside its callback is logged: no other code holds its future."""

    def fail() -> None:
        raise RuntimeError("beside the callback")

    async def fail_soon() -> None:
        fail()

    async def run() -> None:
        crew = AsyncCrew(1)
        crew.start(fail_soon)
        await crew.end()

    asyncio.run(run())
    crew = Crew(1)
    crew.start(fail)
    crew.end()
    texts = [str(record.exc_info[1]) for record in caplog.records if record.exc_info]
    assert texts == ["beside the callback", "beside the callback"]


@pytest.mark.parametrize("kind", ["sync", "aio"])
def test_checks_go_on_after_an_outage(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking for transactions whose end is not known outlives an outage of a minute."""
    clock = Clock()
    delivery: Any = Delivery(kind, lambda: PASSING[0] if clock.now_s < 1060 else None)
    for module in (sync_transactions, aio_transactions):
        monkeypatch.setattr(module, "time", clock)
        monkeypatch.setattr(module, "open_transaction", lambda _: types.SimpleNamespace(id="1", group="g"))
    if kind == "sync":
        assert next(iter(sync_transactions.Transactions(delivery).checks("g"))).id == "1"
        return

    async def first() -> str:
        async for check in aio_transactions.AsyncTransactions(delivery).checks("g"):
            return check.id
        raise AssertionError

    async def sleep(seconds: float) -> None:
        clock.sleep(seconds)

    monkeypatch.setattr(aio_transactions, "asyncio", types.SimpleNamespace(sleep=sleep))
    assert asyncio.run(first()) == "1"
