# SPDX-License-Identifier: Apache-2.0
"""Kinds of messages: the properties of a message decide, and not the kind that its library names."""

from collections.abc import Iterator

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from services.gateway.engine.bodies import Bodies
from services.gateway.engine.messages import kind_of
from services.gateway.errors import Refused
from services.gateway.rpc.caller import Caller
from services.gateway.rpc.codec import to_store
from services.gateway.rpc.wire import messaging_pb2 as wire

NORMAL, FIFO, DELAY = wire.MESSAGE_TYPE_NORMAL, wire.MESSAGE_TYPE_FIFO, wire.MESSAGE_TYPE_DELAY
TRANSACTION = wire.MESSAGE_TYPE_TRANSACTION
GROUP: dict[str, object] = {"message_group": "g"}
TIME: dict[str, object] = {"delivery_timestamp": Timestamp(seconds=2_000_000_000)}


@pytest.fixture
def bodies() -> Iterator[Bodies]:
    """Bodies of messages."""
    found = Bodies(size_bytes_max=1_000)
    yield found
    found.close()


async def properties(bodies: Bodies, kind: int, fields: dict[str, object], **user: str) -> dict[str, str]:
    """The stored properties of a message."""
    system = wire.SystemProperties(message_id="i", message_type=kind, **fields)  # type: ignore[arg-type]
    sent = wire.Message(body=b"b", system_properties=system, user_properties=user)
    stored = await to_store(sent, "t", Caller("c", "CPP", "", ""), bodies, body_size_bytes_max=1_000)
    return dict(stored.properties)


@pytest.mark.parametrize(
    ("kind", "fields", "stored_kind"),
    [
        (NORMAL, {}, "NORMAL"),
        (NORMAL, GROUP, "FIFO"),
        (NORMAL, TIME, "DELAY"),
        (wire.MESSAGE_TYPE_UNSPECIFIED, TIME, "DELAY"),
        (FIFO, GROUP, "FIFO"),
        (DELAY, TIME, "DELAY"),
        (TRANSACTION, {}, "TRANSACTION"),
    ],
)
async def test_what_a_message_has_decides(
    bodies: Bodies, kind: int, fields: dict[str, object], stored_kind: str
) -> None:
    """The properties decide, because callers of the raw protocol may call every message normal.

    They may do so with RocketMQ's proxy, too.
    """
    assert kind_of(await properties(bodies, kind, fields)) == stored_kind


@pytest.mark.parametrize(
    ("kind", "fields", "code"),
    [
        (FIFO, {}, "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
        (DELAY, {}, "ILLEGAL_DELIVERY_TIME"),
        (NORMAL, GROUP | TIME, "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
        (TRANSACTION, GROUP, "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
        (TRANSACTION, TIME, "MESSAGE_PROPERTY_CONFLICT_WITH_TYPE"),
    ],
)
async def test_what_a_message_lacks_or_can_not_have_at_once_is_refused(
    bodies: Bodies, kind: int, fields: dict[str, object], code: str
) -> None:
    """A message that lacks a property, or has properties that exclude each other, is refused with a code."""
    with pytest.raises(Refused) as refused:
        await properties(bodies, kind, fields)
    assert refused.value.code == code


@pytest.mark.parametrize(
    ("time", "stored_ms"),
    [
        (Timestamp(nanos=10_000_000), "10"),
        (Timestamp(), "1"),
        (Timestamp(seconds=-5), "1"),
        (Timestamp(seconds=1, nanos=2_000_000), "1002"),
    ],
)
async def test_every_time_that_is_over_is_a_delivery_time(bodies: Bodies, time: Timestamp, stored_ms: str) -> None:
    """Every delivery time in the past means at once, also a delay in milliseconds in its place."""
    assert (await properties(bodies, DELAY, {"delivery_timestamp": time}))["TIMER_DELIVER_MS"] == stored_ms


async def test_a_message_group_as_a_property(bodies: Bodies) -> None:
    """A message group in the properties makes a FIFO message; the field counts more than the property.

    A program that copies the properties of a FIFO message sends such a property.
    """
    stored = await properties(bodies, NORMAL, {}, __SHARDINGKEY="copied", TRACE_CONTEXT="t1")
    assert (stored["__SHARDINGKEY"], stored["TRACE_CONTEXT"], kind_of(stored)) == ("copied", "t1", "FIFO")
    assert (await properties(bodies, FIFO, GROUP, __SHARDINGKEY="copied"))["__SHARDINGKEY"] == "g"
