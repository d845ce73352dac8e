# SPDX-License-Identifier: Apache-2.0
"""ReputBroker over a real store: publishing, receiving, settling, requests, stops and outages."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from faststream import AckPolicy
from faststream.exceptions import NackMessage, RejectMessage, SetupError
from faststream_reput import ReputBatchMessage, ReputBroker, ReputMessage, ReputResponse, ReputRouter, TestReputBroker
from faststream_reput.annotations import Attempt
from faststream_reput.annotations import ReputBatchMessage as BatchFromContext
from faststream_reput.annotations import ReputMessage as MessageFromContext
from pytest_reput import MemoryReput
from reput_client import DeadLetter, Durability, SharePolicy

LIMIT_S = 30.0


@asynccontextmanager
async def started(*brokers: ReputBroker) -> AsyncIterator[None]:
    """Run brokers over the store of the test."""
    async with TestReputBroker(*brokers, with_real=True):
        yield


async def eventually(holds: Callable[[], Any]) -> None:
    """Wait until a condition holds."""
    async with asyncio.timeout(LIMIT_S):
        while not holds():  # noqa: ASYNC110 - the store changes it
            await asyncio.sleep(0.01)


def letters(reput: MemoryReput, group: str) -> list[DeadLetter]:
    """Return the dead letters of a group."""
    return list(reput.client().dead_letters.list(group))


def waiting(reput: MemoryReput, group: str) -> int:
    """Return the number of messages that were given back and wait for their next attempt."""
    return sum(queue.waiting_count for queue in reput.client().share_groups.get(group).queues)


def lag(reput: MemoryReput, group: str) -> int:
    """Return the number of messages that are not settled."""
    return sum(queue.lag for queue in reput.client().share_groups.get(group).queues)


async def test_all_fields_of_a_message_arrive(reput: MemoryReput) -> None:
    """Tag, keys, headers, ids and durability: a handler gets and a query finds them as they were published."""
    topic, broker = reput.topic(), ReputBroker(group=reput.name())
    got: list[ReputMessage] = []

    @broker.subscriber(topic)
    async def handler(body: dict[str, int], message: MessageFromContext) -> None:
        got.append(message)

    async with started(broker):
        stored = await broker.publish(
            {"a": 1},
            topic,
            tag="eu",
            keys=["O-1", "O-2"],
            headers={"tries": 3, "none": None},
            correlation_id="c-1",
            sharding_key="customer",
            durability=Durability.LOCAL_DISK,
        )
        await eventually(lambda: got)
    (message,) = got
    assert stored.durability == Durability.LOCAL_DISK
    assert (message.tag, message.keys, message.topic, message.attempt) == ("eu", ("O-1", "O-2"), topic, 1)
    assert (message.correlation_id, message.message_id) == ("c-1", stored.unique_id)
    assert message.headers == {"tries": "3", "content-type": "application/json", "correlation_id": "c-1"}
    (found,) = reput.client().query.by_key(topic, "O-2")
    assert (found.body, found.properties["__SHARDINGKEY"]) == (b'{"a":1}', "customer")


async def test_a_delayed_message_comes_at_its_time(reput: MemoryReput) -> None:
    """A delay of the call takes precedence over the delay of the publisher, and a handler's response has its own."""
    topic, broker = reput.topic(), ReputBroker(group=reput.name())
    publisher = broker.publisher(topic, delay_s=7200)
    got: list[str] = []

    @broker.subscriber(topic)
    async def handler(body: str) -> None:
        got.append(body)

    @broker.subscriber(f"{topic}-in")
    @broker.publisher(topic)
    async def later(body: str) -> ReputResponse:
        return ReputResponse(body, delay_s=3 * 3600)

    async with started(broker):
        await publisher.publish("two hours")
        await publisher.publish("an hour", delay_s=3600)
        await broker.publish("three hours", f"{topic}-in")
        await broker.publish_batch("four", "hours", topic=topic, delay_s=4 * 3600)
        await eventually(lambda: len(list(reput.client().delayed.list(topic=topic))) == 5)
        for count in (1, 2, 3, 5):
            assert len(got) < count
            reput.advance(minutes=61)
            await eventually(lambda count=count: len(got) == count)
    assert got[:3] == ["an hour", "two hours", "three hours"]
    assert sorted(got[3:]) == ["four", "hours"]


async def test_a_failing_handler_sees_its_attempts_until_the_dead_letter(reput: MemoryReput) -> None:
    """The group's policy of the subscriber decides about delays and the number of attempts."""
    topic, group = reput.topic(), reput.name()
    broker, attempts = ReputBroker(group=group), list[int]()

    @broker.subscriber(topic, policy=SharePolicy(attempts_max=3, backoffs_s=(60, 600)))
    async def handler(body: str, attempt: Attempt) -> None:
        attempts.append(attempt)
        raise ValueError(body)

    async with started(broker):
        await broker.publish("x", topic)
        await eventually(lambda: attempts == [1] and waiting(reput, group))
        reput.advance(seconds=61)
        await eventually(lambda: attempts == [1, 2] and waiting(reput, group))
        reput.advance(seconds=61)
        assert attempts == [1, 2]
        reput.advance(seconds=600)
        await eventually(lambda: letters(reput, group))
    assert attempts == [1, 2, 3]
    (letter,) = letters(reput, group)
    assert (letter.origin_topic, letter.attempt_count, letter.message.body) == (topic, 3, b"x")


@pytest.mark.parametrize(
    ("ack_policy", "raised", "outcome"),
    [
        (AckPolicy.NACK_ON_ERROR, None, "done"),
        (AckPolicy.NACK_ON_ERROR, ValueError(), "again"),
        (AckPolicy.NACK_ON_ERROR, NackMessage(delay_s=3600), "waits"),
        (AckPolicy.NACK_ON_ERROR, RejectMessage(), "letter"),
        (AckPolicy.REJECT_ON_ERROR, ValueError(), "letter"),
        (AckPolicy.ACK, ValueError(), "done"),
        (AckPolicy.ACK_FIRST, ValueError(), "done"),
        (AckPolicy.MANUAL, None, "held"),
    ],
)
async def test_ack_policies(reput: MemoryReput, ack_policy: AckPolicy, raised: Exception | None, outcome: str) -> None:
    """Each policy of FastStream, and each exception that asks for a settlement, has its effect in the store."""
    topic, group = reput.topic(), reput.name()
    broker, attempts = ReputBroker(group=group), list[int]()

    @broker.subscriber(topic, policy=SharePolicy(backoffs_s=(5,)), ack_policy=ack_policy)
    async def handler(body: str, attempt: Attempt) -> None:
        attempts.append(attempt)
        if raised is not None and attempt == 1:
            raise raised

    async with started(broker):
        await broker.publish("x", topic)
        await eventually(lambda: attempts)
        if outcome == "letter":
            await eventually(lambda: letters(reput, group))
        elif outcome == "done":
            await eventually(lambda: lag(reput, group) == 0)
        elif outcome == "held":
            assert lag(reput, group) == 1
        else:
            await eventually(lambda: waiting(reput, group))
            reput.advance(seconds=6 if outcome == "again" else 3601)
            await eventually(lambda: attempts == [1, 2])
    assert attempts == ([1, 2] if outcome in ("again", "waits") else [1])
    assert len(letters(reput, group)) == (outcome == "letter")


async def test_workers_run_at_the_same_time(reput: MemoryReput) -> None:
    """As many handlers run as there are workers."""
    topic, broker = reput.topic(), ReputBroker(group=reput.name())
    inside, most, go_on = 0, 0, asyncio.Event()

    @broker.subscriber(topic, max_workers=3)
    async def handler(_: str) -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        await go_on.wait()
        inside -= 1

    async with started(broker):
        await broker.publish_batch(*"abcdef", topic=topic)
        await eventually(lambda: inside == 3)
        go_on.set()
        await eventually(lambda: handler.mock.call_count == 6)
    assert most == 3


async def test_a_batch_is_settled_together(reput: MemoryReput) -> None:
    """A handler gets a list of the messages that have arrived, and all of it again after a failure."""
    topic, group = reput.topic(queue_count=1), reput.name()
    broker, got = ReputBroker(group=group), list[tuple[list[str], tuple[int, ...]]]()

    @broker.subscriber(topic, batch=True, max_records=3, policy=SharePolicy(backoffs_s=(1,)))
    async def handler(bodies: list[str], message: BatchFromContext) -> None:
        got.append((bodies, message.attempts))
        if len(got) == 1:
            raise ValueError

    await broker.connect()
    results = await broker.publish_batch(*"abcd", topic=topic)
    assert [one.queue_offset for one in results] == [0, 1, 2, 3]
    async with started(broker):
        await eventually(lambda: len(got) == 2)
        reput.advance(seconds=2)
        await eventually(lambda: len(got) == 3 and lag(reput, group) == 0)
    assert got == [(["a", "b", "c"], (1, 1, 1)), (["d"], (1,)), (["a", "b", "c"], (2, 2, 2))]


async def test_a_list_becomes_a_batch(reput: MemoryReput) -> None:
    """Each element that a handler returns is a message."""
    topic, broker = reput.topic(), ReputBroker(group=reput.name(), poll_s=0.1)

    @broker.subscriber(topic)
    @broker.publisher(f"{topic}-out", batch=True)
    async def split(body: str) -> list[str]:
        return body.split()

    out = broker.subscriber(f"{topic}-out", batch=True)
    async with broker:
        await broker.start()
        await broker.publish("a b c", topic)
        got: list[str] = []
        while len(got) < 3:
            batch = await out.get_one(timeout=LIMIT_S)
            assert isinstance(batch, ReputBatchMessage)
            await batch.ack()
            got += await batch.decode()
    assert sorted(got) == ["a", "b", "c"]


async def test_a_group_gets_what_passes_its_filter(reput: MemoryReput) -> None:
    """Tags and conditions on properties are the store's own."""
    topic, broker, got = reput.topic(), ReputBroker(), list[tuple[str, str]]()
    group = reput.name()

    @broker.subscriber(topic, group=f"{group}-tags", tags="eu || us")
    async def by_tag(body: str) -> None:
        got.append(("tag", body))

    @broker.subscriber(topic, group=f"{group}-where", where="cents > 100")
    async def by_condition(body: str) -> None:
        got.append(("where", body))

    async with started(broker):
        for body, tag, cents in (("a", "eu", 1), ("b", "asia", 200), ("c", "us", 300)):
            await broker.publish(body, topic, tag=tag, headers={"cents": cents})
        await eventually(lambda: len(got) == 4)
    assert sorted(got) == [("tag", "a"), ("tag", "c"), ("where", "b"), ("where", "c")]


async def test_a_request_gets_the_reply_to_itself(reput: MemoryReput) -> None:
    """Requests of two processes at the same time: each reads its own replies, matched by correlation id."""
    topic, group = reput.topic(), reput.name()
    brokers = [ReputBroker(group=group), ReputBroker(group=group)]

    @brokers[0].subscriber(topic, max_workers=10)
    async def double(number: int) -> int:
        await asyncio.sleep(0.01 * (10 - number))
        return 2 * number

    async with started(*brokers):
        asked = [(broker, number) for number in range(10) for broker in brokers]
        replies = await asyncio.gather(*(broker.request(number, topic, timeout=LIMIT_S) for broker, number in asked))
        assert [await reply.decode() for reply in replies] == [2 * number for _, number in asked]
        with pytest.raises(TimeoutError):
            await brokers[1].request(1, f"{topic}-nobody", timeout=0.05)


async def test_a_router_gives_prefix_and_group(reput: MemoryReput) -> None:
    """The group of the innermost router counts; prefixes add up."""
    topic, broker = reput.name(), ReputBroker(group="outer")
    inner, router = ReputRouter("b-", group="inner"), ReputRouter("a-")
    subscriber = inner.subscriber(topic)
    plain = router.subscriber(topic)
    router.include_router(inner)
    broker.include_router(router)
    assert (subscriber.topic, subscriber.group) == (f"a-b-{topic}", "inner")
    assert (plain.topic, plain.group) == (f"a-{topic}", "outer")
    with pytest.raises(TypeError, match="expected a ReputRouter"):
        broker.include_router(object())  # type: ignore[arg-type]


async def test_a_subscriber_needs_a_group(reput: MemoryReput) -> None:
    """Two services under the same name by accident would take each other's messages."""
    broker = ReputBroker()

    @broker.subscriber("orders")
    async def handler(_: str) -> None: ...

    with pytest.raises(SetupError, match="the subscriber of orders has no group"):
        await broker.start()
    await broker.stop()


@pytest.mark.parametrize(
    "options", [{"max_workers": 0}, {"max_records": 0}, {"max_records": 1001}, {"batch": True, "max_workers": 2}]
)
def test_refused_options(options: dict[str, Any]) -> None:
    """An option without a meaning is refused where it is written."""
    with pytest.raises(SetupError, match="max_"):
        ReputBroker(group="g").subscriber("orders", **options)
