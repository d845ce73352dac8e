# SPDX-License-Identifier: Apache-2.0
"""Stops, leases and outages of ReputBroker over a real store."""

import asyncio
from typing import Annotated, Any

import pytest
from faststream import Context
from faststream_reput import ReputBroker
from faststream_reput.annotations import Attempt, ReputMessage
from faststream_reput.subscribing import subscriber as subscriber_module
from pytest_reput import MemoryReput
from reput_client import RetryPolicy, SharePolicy

from clients.faststream.tests.test_broker import LIMIT_S, eventually, lag, started

FromContext = Annotated[Any, Context("message")]


async def test_a_stop_waits_for_handlers_and_gives_the_rest_back(reput: MemoryReput) -> None:
    """The message that is processed is done; messages that no handler has begun come again at once, as attempt 1."""
    topic, group = reput.topic(queue_count=1), reput.name()
    first, second = ReputBroker(group=group), ReputBroker(group=group)
    begun, go_on, got = asyncio.Event(), asyncio.Event(), list[tuple[str, int]]()

    @first.subscriber(topic)
    async def slow(body: str, attempt: Attempt) -> None:
        begun.set()
        await go_on.wait()
        got.append((body, attempt))

    @second.subscriber(topic)
    async def fast(body: str, attempt: Attempt) -> None:
        got.append((body, attempt))

    await first.start()
    await first.publish_batch(*"abc", topic=topic)
    await asyncio.wait_for(begun.wait(), LIMIT_S)
    stopping = asyncio.create_task(first.stop())
    await asyncio.sleep(0)
    assert not stopping.done()
    go_on.set()
    await asyncio.wait_for(stopping, LIMIT_S)
    assert got == [("a", 1)]
    async with started(second):
        await eventually(lambda: len(got) == 3)
    assert got == [("a", 1), ("b", 1), ("c", 1)]
    assert lag(reput, group) == 0


async def test_a_handler_that_hangs_is_cancelled_and_its_message_comes_again(reput: MemoryReput) -> None:
    """After the graceful time-out the message is given back as failed, so its attempts count."""
    topic, group = reput.topic(), reput.name()
    hanging, other = ReputBroker(group=group, graceful_timeout=0.1), ReputBroker(group=group)
    begun, attempts = asyncio.Event(), list[int]()
    policy = SharePolicy(backoffs_s=(1,))

    @hanging.subscriber(topic, policy=policy)
    async def hang(_: str) -> None:
        begun.set()
        await asyncio.Event().wait()

    @other.subscriber(topic, policy=policy)
    async def handler(_: str, attempt: Attempt) -> None:
        attempts.append(attempt)

    async with started(hanging):
        await hanging.publish("x", topic)
        await asyncio.wait_for(begun.wait(), LIMIT_S)
    await hanging.stop()
    async with started(other):
        reput.advance(seconds=2)
        await eventually(lambda: attempts)
    assert attempts == [2]


async def test_a_message_is_kept_as_long_as_its_handler_asks(reput: MemoryReput) -> None:
    """An extended lease outlives the lease of the policy; a later settlement has its effect."""
    topic, group = reput.topic(), reput.name()
    broker, attempts, go_on = ReputBroker(group=group), list[int](), asyncio.Event()
    extended = asyncio.Event()

    @broker.subscriber(topic, policy=SharePolicy(invisible_s=60, backoffs_s=(1,)), max_workers=2)
    async def handler(_: str, attempt: Attempt, message: ReputMessage) -> None:
        attempts.append(attempt)
        await message.extend(3600)
        extended.set()
        await go_on.wait()

    async with started(broker):
        await broker.publish("x", topic)
        await asyncio.wait_for(extended.wait(), LIMIT_S)
        reput.advance(seconds=3500)
        await broker.publish("y", topic)
        await eventually(lambda: len(attempts) == 2)
        go_on.set()
        await eventually(lambda: lag(reput, group) == 0)
    assert attempts == [1, 1]


async def test_a_handler_may_stop_its_subscriber(reput: MemoryReput) -> None:
    """The other handlers go on, and the stop of the broker waits for them."""
    topic, group = reput.topic(), reput.name()
    broker = ReputBroker(group=group, poll_s=0.1)
    slow_begun, done = asyncio.Event(), list[str]()

    @broker.subscriber(topic, max_workers=2)
    async def handler(body: str) -> None:
        if body == "stop":
            await slow_begun.wait()
            raise SystemExit
        slow_begun.set()
        await eventually(lambda: not subscriber.running)
        await broker.publish("late", f"{topic}-out")
        done.append(body)

    (subscriber,) = broker.subscribers
    async with broker:
        await broker.start()
        await broker.publish_batch("slow", "stop", topic=topic)
        await eventually(lambda: not subscriber.running)
    assert done == ["slow"]
    assert lag(reput, group) == 1


@pytest.mark.parametrize("batch", [False, True])
async def test_a_failed_settlement_is_a_failure_of_the_message(
    reput: MemoryReput, batch: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message whose acknowledgement is refused comes again, and its lease is not extended meanwhile."""
    monkeypatch.setattr(subscriber_module, "REFUSED_PAUSE_S", 0.05)
    topic, group = reput.topic(), reput.name()
    broker, attempts = ReputBroker(group=group), list[int]()

    @broker.subscriber(topic, policy=SharePolicy(backoffs_s=(1,)), batch=batch)
    async def handler(_: object, message: FromContext) -> None:
        attempts.append(message.raw_message[0].attempt if batch else message.raw_message.attempt)

    async with started(broker):
        reput.fail_next("settle", code="INTERNAL")
        await broker.publish("x", topic)
        await eventually(lambda: attempts)
        async with asyncio.timeout(LIMIT_S):
            while lag(reput, group):
                reput.advance(seconds=10)
                await asyncio.sleep(0.05)
    assert attempts[0] == 1
    assert attempts[-1] > 1


async def test_two_starts_are_one(reput: MemoryReput) -> None:
    """A broker that is started again has no second consumer: a worker has a single message at a time."""
    topic, broker = reput.topic(), ReputBroker(group=reput.name(), poll_s=0.1)
    inside, most = 0, 0

    @broker.subscriber(topic)
    async def handler(_: str) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await asyncio.sleep(0.02)
        inside -= 1

    async with broker:
        for _ in range(2):
            await broker.start()
            await broker.start()
            await broker.publish_batch(*"abcdef", topic=topic)
            await eventually(lambda: most and lag(reput, broker.subscribers[0].group) == 0)
            await broker.stop()
    assert most == 1


async def test_subscribers_continue_after_an_outage(reput: MemoryReput) -> None:
    """A broker may start before the store, and goes on after its services were killed."""
    topic, group = reput.topic(), reput.name()
    broker = ReputBroker(group=group, retry=RetryPolicy(delay_max_s=0.2))
    got: list[str] = []

    @broker.subscriber(topic)
    async def handler(body: str) -> None:
        got.append(body)

    await asyncio.to_thread(reput.stop)
    async with started(broker):
        assert await broker.ping(0.2) is False
        await asyncio.to_thread(reput.start)
        await broker.publish("a", topic)
        await eventually(lambda: got == ["a"])
        await reput.aio.restart(crash=True)
        await broker.publish("b", topic)
        await eventually(lambda: set(got) == {"a", "b"})
        assert await broker.ping(LIMIT_S) is True
    assert await broker.ping() is False


async def test_a_subscriber_without_handlers_is_read_by_the_program(reput: MemoryReput) -> None:
    """The program takes a message, or loops, and settles each."""
    topic, group = reput.topic(queue_count=1), reput.name()
    broker = ReputBroker(group=group, poll_s=0.1)
    subscriber = broker.subscriber(topic)
    async with broker:
        await broker.start()
        assert await subscriber.get_one(timeout=0) is None
        await broker.publish_batch(*"abc", topic=topic)
        message = await subscriber.get_one(timeout=LIMIT_S)
        assert message is not None
        await message.ack()
        got = [await message.decode()]
        async for message in subscriber:
            got.append(await message.decode())
            await message.ack()
            if len(got) == 3:
                break
        assert lag(reput, group) == 0
    assert got == ["a", "b", "c"]
