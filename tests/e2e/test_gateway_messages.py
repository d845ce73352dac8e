# SPDX-License-Identifier: Apache-2.0
"""The path of a message through the gateway: its texts, its body, its type, and a repeated send."""

import asyncio
import gzip
import zlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from services.gateway.rpc.wire import messaging_pb2 as wire
from tests.support.served_gateway import PLACE, Served, gateway, named, store

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

OK = wire.CODE_OK


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """A gateway with a store."""
    async with store(tmp_path) as targets, gateway(*targets) as found:
        yield found


async def test_texts_as_rocketmq_takes_them(served: Served) -> None:
    """The longest tag, a key and a tag with spaces, and a property without a value are stored and received."""
    caller = served.caller()
    await caller.send("t", caller.message("t", tag="a" * 16_384))
    (message,) = await caller.receive("t", filter_expression=wire.FilterExpression(expression="a" * 16_384))
    assert message.system_properties.tag == "a" * 16_384
    sent = caller.message("t", tag=" a ", keys=["order 17"])
    sent.user_properties["baggage"] = ""
    assert (await caller.send("t", sent)).status.code == OK
    (message,) = await caller.receive("t")
    assert (message.system_properties.tag, list(message.system_properties.keys)) == (" a ", ["order", "17"])
    assert not message.user_properties


async def test_bodies_that_clients_compress(served: Served) -> None:
    """Consumers get the inflated body. A body that can't be inflated is refused."""
    caller = served.caller()
    for body in (zlib.compress(b"one" * 100), gzip.compress(b"one" * 100)):
        assert (await caller.send("t", caller.message("t", body, body_encoding=wire.ENCODING_GZIP))).status.code == OK
        (message,) = await caller.receive("t")
        assert (message.body, message.system_properties.body_encoding) == (b"one" * 100, wire.ENCODING_IDENTITY)
    refused = await caller.send("t", caller.message("t", b"nonsense", body_encoding=wire.ENCODING_GZIP))
    assert refused.status.code == wire.CODE_MESSAGE_CORRUPTED


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        (wire.MESSAGE_TYPE_LITE, {"lite_topic": "l"}),
        (wire.MESSAGE_TYPE_PRIORITY, {"priority": 1}),
    ],
)
async def test_kinds_that_are_not_served_are_refused(served: Served, kind: int, fields: dict[str, object]) -> None:
    """A message of a type that is not served is refused and not stored, also if it claims to be a normal message."""
    caller = served.caller()
    message = caller.message("t", message_type=kind, **fields)
    answer = await caller.send("t", message)
    assert (answer.status.code, len(answer.entries)) == (wire.CODE_UNSUPPORTED, 0)
    if fields:
        message.system_properties.message_type = wire.MESSAGE_TYPE_NORMAL
        answer = await caller.send("t", caller.message("t"), message)
        assert answer.status.code == wire.CODE_MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    await caller.call("QueryRoute", wire.QueryRouteRequest(topic=named("t"), endpoints=PLACE))
    assert await caller.receive("t", wait_s=1) == [], "all messages of a request, or none"


async def test_senders_at_the_same_time(served: Served) -> None:
    """Messages that share a batch have offsets of their own, and only the refused message is refused."""
    callers = [served.caller(f"p{number}") for number in range(40)]
    sent = [one.message("t", b"%d" % number) for number, one in enumerate(callers)]
    sent[20].user_properties["large"] = "x" * 40_000
    answers = await asyncio.gather(*(one.send("t", message) for one, message in zip(callers, sent, strict=True)))
    refused = answers.pop(20)
    assert refused.status.code not in (OK, wire.CODE_INTERNAL_SERVER_ERROR)
    assert "properties" in refused.status.message
    assert {answer.status.code for answer in answers} == {OK}
    received: list[wire.Message] = []
    while len(received) < 39:
        received += await callers[0].receive("t", batch_size=32)
    bodies = {int(one.body): one.system_properties.queue_offset for one in received}
    del sent[20]
    assert bodies == {int(one.body): answer.entries[0].offset for one, answer in zip(sent, answers, strict=True)}


async def test_what_is_sent_again_is_there_once(tmp_path: Path) -> None:
    """A repeated send, to another queue and some time later, stores the message once.

    The answer is the answer of the first send.
    """
    async with store(tmp_path) as (commitlog, delivery), gateway(commitlog, delivery, once=True) as served:
        producer = served.caller("p")
        await producer.send("t", producer.message("t", b"before", queue_id=1))
        sent = producer.message("t", b"hello", queue_id=1)
        first = await producer.send("t", sent)
        sent.system_properties.queue_id = 2
        sent.system_properties.born_timestamp.GetCurrentTime()
        again = await producer.send("t", sent)
        assert (again.status.code, again.entries[0].offset) == (OK, first.entries[0].offset)
        await producer.send("t", producer.message("t", b"after"))
        received: list[wire.Message] = []
        while len(received) < 3:
            received += await served.caller("c").receive("t", batch_size=10)
        assert sorted(message.body for message in received) == [b"after", b"before", b"hello"]
        assert await served.caller("c").receive("t", batch_size=10, wait_s=1) == []
