# SPDX-License-Identifier: Apache-2.0
"""The Consume stream over real services: credits, settling on the way, and its ends."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any, Self

import grpc
import pytest
from reput.delivery.v1 import delivery_service_pb2 as pb
from reput.delivery.v1.group_service_pb2 import GroupPolicy, SetGroupRequest

from tests.support.delivery_stack import GROUP, TOPIC, Stack, delivery_stack, entry, milliseconds
from tests.support.patience import LIMIT_S
from tests.support.service_process import Refusal


@pytest.fixture
async def stack(tmp_path: Path) -> AsyncIterator[Stack]:
    async with delivery_stack(tmp_path) as stack:
        yield stack


class Caller:
    """A stream of Consume."""

    def __init__(self, stack: Stack, group: str, *topics: str, **fields: Any) -> None:
        self.call = stack.client.deliveries.Consume()
        self.begin = pb.ConsumeBegin(group=group, topics=topics or (TOPIC,), **fields)

    async def __aenter__(self) -> Self:
        await self.say(begin=self.begin)
        self.policy = (await self.next("begun")).policy
        return self

    async def __aexit__(self, *_: object) -> None:
        self.call.cancel()

    async def say(self, **step: Any) -> None:
        await self.call.write(pb.ConsumeRequest(**step))

    async def credit(self, count: int, size_bytes: int = 1 << 20) -> None:
        await self.say(credit=pb.ConsumeCredit(message_count=count, size_bytes=size_bytes))

    async def next(self, kind: str) -> Any:
        """Return the next answer, and check its kind."""
        async with asyncio.timeout(LIMIT_S):
            answer = await self.call.read()
        assert answer is not grpc.aio.EOF
        assert answer.WhichOneof("step") == kind, answer
        return getattr(answer, kind)

    async def messages(self, count: int) -> list[pb.ReceivedMessage]:
        found: list[pb.ReceivedMessage] = []
        while len(found) < count:
            found += (await self.next("messages")).messages
        return found


async def test_messages_come_by_credit_and_are_settled_on_the_way(stack: Stack) -> None:
    """A stream begins with the policy, and gets messages up to its credit.

    Each settled entry has its outcome, under the caller's number.
    """
    policy = GroupPolicy(attempts_max=5, invisible=milliseconds(30_000))
    await stack.client.groups.SetGroup(SetGroupRequest(group="g1", policy=policy))
    await stack.append(*(b"%d" % number for number in range(6)), queue_id=0)
    async with Caller(stack, "g1") as caller:
        assert caller.policy.attempts_max == 5
        await caller.credit(2)
        first = await caller.messages(2)
        assert [one.message.body for one in first] == [b"0", b"1"]
        reading = asyncio.create_task(caller.call.read())
        await asyncio.sleep(0.3)
        assert not reading.done()
        entries = [entry("ack", first[0].handle), entry("ack", "nonsense"), entry("nack", first[1].handle, delay={})]
        await caller.say(settle=pb.ConsumeSettle(number=7, entries=entries))
        settled = (await reading).settled
        assert settled.number == 7
        assert [outcome.error.code for outcome in settled.outcomes] == [0, grpc.StatusCode.INVALID_ARGUMENT.value[0], 0]
        await caller.credit(10)
        rest = await caller.messages(5)
        assert sorted(one.message.body for one in rest) == [b"1", b"2", b"3", b"4", b"5"]


async def test_a_stop_lets_everything_be_settled_and_the_end_comes_in_order(stack: Stack) -> None:
    """After a stop the stream delivers no message, and settling continues.

    The stream ends with OK when the caller ends its side.
    """
    await stack.append(b"a", queue_id=0)
    async with Caller(stack, "g2", where="TRUE OR FALSE") as caller:
        await caller.credit(1_000)
        await caller.messages(1)
        await caller.say(stop=pb.ConsumeStop())
        while (answer := await caller.call.read()).WhichOneof("step") == "messages":
            pass
        assert answer.WhichOneof("step") == "stopped"
        await stack.append(b"b", queue_id=0)
        await caller.say(settle=pb.ConsumeSettle(number=1, entries=[entry("ack", "nonsense")]))
        assert (await caller.next("settled")).number == 1
        await caller.call.done_writing()
        assert await caller.call.read() is grpc.aio.EOF
        assert await caller.call.code() is grpc.StatusCode.OK


async def test_a_waiting_caller_hears_of_a_message_in_any_of_its_topics(stack: Stack) -> None:
    """A single stream serves several topics."""
    await stack.append(b"x", queue_id=0)
    async with Caller(stack, "g3", TOPIC, f"%DLQ%{GROUP}-none", tag_expression="late") as caller:
        await caller.credit(5)
        assert Refusal(await failure(caller)).reason == "TOPIC_NOT_FOUND"
    async with Caller(stack, "g4", tag_expression="late") as caller:
        await caller.credit(5)
        await asyncio.sleep(0.2)
        await stack.append(b"late", queue_id=3, properties={"TAGS": "late"})
        (late,) = await caller.messages(1)
        assert late.message.body == b"late"


async def failure(caller: Caller) -> grpc.aio.AioRpcError:
    """Return the error with which a stream ended."""
    try:
        while await caller.call.read() is not grpc.aio.EOF:
            pass
    except grpc.aio.AioRpcError as error:
        return error
    raise AssertionError("it ended well")


BAD: Sequence[tuple[Sequence[dict[str, Any]], str]] = (
    ([{"stop": {}}], "begin"),
    ([{"begin": {"group": "g", "topics": []}}], "begin.topics"),
    ([{"begin": {"group": "g", "topics": ["a/b"]}}], "begin.topics[0]"),
    ([{"begin": {"group": "g", "topics": [TOPIC], "where": "a >"}}], "begin.where"),
    ([{"begin": {"group": "", "topics": [TOPIC]}}], "group"),
    ([{"begin": {"group": "g", "topics": [TOPIC]}}, {"begin": {}}], "begin"),
    ([{"begin": {"group": "g", "topics": [TOPIC]}}, {}], "step"),
    ([{"begin": {"group": "g", "topics": [TOPIC]}}, {"settle": {}}], "settle.entries"),
    ([{"begin": {"group": "g", "topics": [TOPIC]}}, {"credit": {"message_count": -1}}], "credit.message_count"),
)


async def test_bad_steps_are_refused(stack: Stack) -> None:
    """Every step is checked, and the refusal names the wrong field."""
    for steps, field in BAD:
        caller = Caller(stack, "g")
        for step in steps:
            await caller.say(**step)
        assert Refusal(await failure(caller)).field == field


async def test_a_thousand_entries_fit(stack: Stack) -> None:
    """A single request settles as many handles as the API allows."""
    entries = [entry("nack", f"{number:0>900}", delay=milliseconds(1_500)) for number in range(1_000)]
    outcomes = (await stack.client.deliveries.Settle(pb.SettleRequest(entries=entries))).outcomes
    assert len(outcomes) == 1_000
