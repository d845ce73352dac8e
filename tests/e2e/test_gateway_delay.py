# SPDX-License-Identifier: Apache-2.0
"""Delayed messages and their recall, through the gateway."""

import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from services.gateway.rpc.wire import messaging_pb2 as wire
from tests.support.served_gateway import Served, gateway, named, store

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

OK = wire.CODE_OK


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """A gateway with a store."""
    async with store(tmp_path) as targets, gateway(*targets) as found:
        yield found


def at(delay_s: float) -> Timestamp:
    """Return the time this many seconds from now."""
    found = Timestamp()
    found.FromMilliseconds(int((time.time() + delay_s) * 1000))
    return found


async def test_a_delayed_message(served: Served) -> None:
    """A delayed message is delivered at its time, and has its delivery time.

    A recalled message is never delivered. After the delivery a recall is refused.
    """
    caller = served.caller()
    kind = wire.MESSAGE_TYPE_DELAY
    due = at(2)
    sent = [
        caller.message("t", b"kept", message_type=kind, delivery_timestamp=due),
        caller.message("t", b"recalled", message_type=kind, delivery_timestamp=at(3)),
    ]
    kept, recalled = (await caller.send("t", *sent)).entries
    request = wire.RecallMessageRequest(topic=named("t"), recall_handle=recalled.recall_handle)
    for _ in range(2):
        answer = await caller.call("RecallMessage", request)
        assert (answer.status.code, answer.message_id) == (OK, recalled.message_id)
    (message,) = await caller.receive("t", wait_s=20)
    system = message.system_properties
    assert (message.body, system.message_type, system.message_id) == (b"kept", kind, kept.message_id)
    assert system.delivery_timestamp.ToMilliseconds() == due.ToMilliseconds() <= system.store_timestamp.ToMilliseconds()
    assert not message.user_properties
    late = wire.RecallMessageRequest(topic=named("t"), recall_handle=kept.recall_handle)
    assert (await caller.call("RecallMessage", late)).status.code == wire.CODE_ILLEGAL_DELIVERY_TIME
    over = caller.message("t", b"its time is over", message_type=kind, delivery_timestamp=at(-1))
    (at_once,) = (await caller.send("t", over)).entries
    late = wire.RecallMessageRequest(topic=named("t"), recall_handle=at_once.recall_handle)
    assert (await caller.call("RecallMessage", late)).status.code == wire.CODE_ILLEGAL_DELIVERY_TIME
    (message,) = await caller.receive("t", wait_s=20)
    assert message.body == b"its time is over"
    for topic, handle in (("other", kept.recall_handle), ("t", "nonsense"), ("t", "")):
        bad = wire.RecallMessageRequest(topic=named(topic), recall_handle=handle)
        assert (await caller.call("RecallMessage", bad)).status.code == wire.CODE_BAD_REQUEST
    assert await caller.receive("t", wait_s=2) == []


async def test_what_a_delayed_message_must_be(served: Served) -> None:
    """A delayed message has a time within 40 days and no message group. A time in the past is valid, too."""
    caller = served.caller()
    for kind, fields, code in (
        (wire.MESSAGE_TYPE_DELAY, {}, wire.CODE_ILLEGAL_DELIVERY_TIME),
        (wire.MESSAGE_TYPE_DELAY, {"delivery_timestamp": at(41 * 86_400)}, wire.CODE_ILLEGAL_DELIVERY_TIME),
        (wire.MESSAGE_TYPE_DELAY, {"delivery_timestamp": Timestamp(nanos=10_000_000)}, OK),
        (
            wire.MESSAGE_TYPE_DELAY,
            {"delivery_timestamp": at(9), "message_group": "g"},
            wire.CODE_MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        ),
    ):
        assert (await caller.send("t", caller.message("t", message_type=kind, **fields))).status.code == code
    (entry,) = (await caller.send("t", caller.message("t"))).entries
    assert entry.recall_handle == ""
