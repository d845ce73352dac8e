# SPDX-License-Identifier: Apache-2.0
"""Transactions as RocketMQ 5's libraries make them. `make clients` tests them with the libraries themselves."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration

from services.gateway.rpc.wire import messaging_pb2 as wire
from tests.support.served_gateway import PLACE, Caller, Served, gateway, named, store

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

OK, COMMIT, ROLLBACK = wire.CODE_OK, wire.TRANSACTION_RESOLUTION_COMMIT, wire.TRANSACTION_RESOLUTION_ROLLBACK
TRANSACTION = wire.MESSAGE_TYPE_TRANSACTION
AT_ONCE = {"message_type": TRANSACTION, "orphaned_transaction_recovery_duration": Duration(seconds=1)}


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """A gateway with a store."""
    async with store(tmp_path) as targets, gateway(*targets) as found:
        yield found


async def end(caller: Caller, transaction_id: str, how: int, topic: str = "t") -> int:
    """End a transaction. Returns the code."""
    request = wire.EndTransactionRequest(
        topic=named(topic), message_id="m", transaction_id=transaction_id, resolution=how
    )
    answer = await caller.call("EndTransaction", request)
    return int(answer.status.code)


async def begin(caller: Caller, body: bytes, **system: Any) -> str:
    """Send a transactional message. Returns the id of the transaction."""
    sent = await caller.send("t", caller.message("t", body, **{"message_type": TRANSACTION, **system}))
    assert sent.status.code == OK, sent
    return str(sent.entries[0].transaction_id)


async def test_a_message_comes_when_it_is_committed(served: Served) -> None:
    """A message is delivered after its commit, and a message that was rolled back is never delivered.

    A repeated end has no effect, and the opposite end is refused.
    """
    caller = served.caller()
    await caller.call("QueryRoute", wire.QueryRouteRequest(topic=named("t"), endpoints=PLACE))
    first, second = await begin(caller, b"a", tag="x"), await begin(caller, b"b")
    assert await caller.receive("t", wait_s=1) == []
    assert await end(caller, first, wire.TRANSACTION_RESOLUTION_UNSPECIFIED) == OK, "Go says so when it does not know"
    assert await end(caller, first, COMMIT, "other") == wire.CODE_BAD_REQUEST, "it is of another topic"
    assert (await end(caller, first, COMMIT), await end(caller, second, ROLLBACK)) == (OK, OK)
    (message,) = await caller.receive("t")
    system = message.system_properties
    assert (message.body, system.tag, system.message_type, system.message_id) == (b"a", "x", TRANSACTION, first)
    assert dict(message.user_properties) == {"__transactionId__": first}
    assert await end(caller, first, COMMIT) == OK
    assert await end(caller, first, ROLLBACK) == wire.CODE_INVALID_TRANSACTION_ID
    assert await end(caller, "unknown", COMMIT) == wire.CODE_INVALID_TRANSACTION_ID
    assert await caller.receive("t", wait_s=1) == []


@pytest.mark.parametrize("by_settings", [True, False])
async def test_another_producer_is_asked_by_another_gateway(tmp_path: Path, *, by_settings: bool) -> None:
    """Another gateway asks another producer, which publishes the topic by its settings.

    Without settings the gateway uses the topics of the producer's sends.
    """
    async with store(tmp_path) as targets:
        async with gateway(*targets) as first:
            name = await begin(first.caller("gone"), b"a", **AT_ONCE)
        async with gateway(*targets) as second:
            caller = second.caller("other", x_mq_namespace="")
            stream = caller.telemetry()
            if by_settings:
                said = wire.Settings(publishing=wire.Publishing(topics=[named("t")]))
                await stream.write(wire.TelemetryRequest(settings=said))
                assert (await stream.read()).HasField("settings")
            else:
                await stream.write(wire.TelemetryRequest())
                await end(caller, await begin(caller, b"b", message_id="B"), ROLLBACK)
            asked = (await stream.read()).recover_orphaned_transaction_command
            assert (asked.transaction_id, asked.message.body, asked.message.topic.name) == (name, b"a", "t")
            assert asked.message.system_properties.body_digest.checksum
            assert await end(caller, asked.transaction_id, COMMIT) == OK
            (message,) = await caller.receive("t")
            assert message.body == b"a"
            await stream.done_writing()


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"message_group": "g"}, wire.CODE_MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ({"message_type": wire.MESSAGE_TYPE_NORMAL}, wire.CODE_MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ({"orphaned_transaction_recovery_duration": Duration(seconds=-1)}, wire.CODE_BAD_REQUEST),
    ],
)
async def test_a_message_that_contradicts_itself_is_refused(served: Served, fields: Any, code: int) -> None:
    """A contradictory message is refused with its code.

    Its type is no transaction, or it has a message group, too, or its time is invalid.
    """
    caller = served.caller()
    answer = await caller.send("t", caller.message("t", **{**AT_ONCE, **fields}))
    assert answer.status.code == code
