# SPDX-License-Identifier: Apache-2.0
"""Rights of RocketMQ's clients at the gateway: access keys are subjects of the rights file."""

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from libs.runtime.trust.rights.access import HOLD_S
from services.gateway.rpc.rights import QUESTIONS
from services.gateway.rpc.wire import messaging_pb2 as wire
from tests.support.patience import LIMIT_S
from tests.support.served_gateway import PLACE, Caller, Served, gateway, named, receive_request, store

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

OK, FORBIDDEN = wire.CODE_OK, wire.CODE_FORBIDDEN
RIGHTS = """
[[subjects]]
name = "shop"
access_keys = ["shop-key"]
[[subjects]]
name = "billing"
access_keys = ["billing-key"]

[[rules]]
subjects = ["shop"]
allow = ["produce"]
topics = ["orders", "ns%orders"]
[[rules]]
subjects = ["billing"]
allow = ["consume"]
topics = ["orders"]
groups = ["billing"]
"""
KEYS = ("shop-key", "billing-key", "guest-key")


def signed(served: Served, key: str, client: str = "", **metadata: str) -> Caller:
    """A client with an access key, as libraries sign their calls."""
    digits = hmac.new(b"secret", b"20260101T000000Z", hashlib.sha1).hexdigest()
    shown = f"MQv2-HMAC-SHA1 Credential={key}, SignedHeaders=x-mq-date-time, Signature={digits}"
    return served.caller(client or key, authorization=shown, x_mq_date_time="20260101T000000Z", **metadata)


@pytest.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    """A gateway with rights and a store."""
    keys = tmp_path / "keys"
    keys.write_text("".join(f"{key} secret\n" for key in KEYS))
    keys.chmod(0o600)
    (tmp_path / "rights.toml").write_text(RIGHTS)
    async with (
        store(tmp_path) as targets,
        gateway(*targets, access_keys_file=keys, rights_file=tmp_path / "rights.toml") as found,
    ):
        yield found


async def code_of_receive(caller: Caller, topic: str, group: str) -> int:
    parts = [part async for part in caller.receiving(receive_request(topic, group, wait_s=1))]
    return int(parts[0].status.code)


async def code_of_settings(caller: Caller, settings: wire.Settings) -> int:
    """The code of the answer; refused settings end the stream with an error."""
    stream = caller.telemetry()
    await stream.write(wire.TelemetryRequest(settings=settings))
    answer = await stream.read()
    code = int(answer.status.code)
    if code != OK:
        with pytest.raises(grpc.aio.AioRpcError):
            await stream.read()
    await stream.done_writing()
    return code


async def test_each_request_has_a_question() -> None:
    """A method of the protocol that nobody asks about would be open."""
    service = wire.DESCRIPTOR.services_by_name["MessagingService"]
    assert set(QUESTIONS) == {method.input_type.name for method in service.methods}


async def test_own_and_foreign_topics_and_groups(served: Served) -> None:
    """A producer sends to its topics, a consumer receives in its group, and a key without a subject does neither."""
    shop, billing, guest = (signed(served, key) for key in KEYS)
    route = wire.QueryRouteRequest(topic=named("orders"), endpoints=PLACE)
    codes = [int((await one.call("QueryRoute", route)).status.code) for one in (shop, billing, guest)]
    assert codes == [OK, OK, FORBIDDEN]
    sent = await shop.send("orders")
    assert sent.status.code == OK
    refused = await shop.send("payments")
    assert refused.status.code == FORBIDDEN
    assert refused.status.message.startswith("shop may not produce topic payments: no rule allows it")
    for one in (billing, guest):
        assert (await one.send("orders")).status.code == FORBIDDEN
    assert await code_of_receive(shop, "orders", "billing") == FORBIDDEN
    assert await code_of_receive(billing, "orders", "other") == FORBIDDEN
    assert await code_of_receive(billing, "payments", "billing") == FORBIDDEN
    (message,) = await billing.receive("orders", "billing", wait_s=10)
    handle = message.system_properties.receipt_handle
    for one in (shop, guest):
        assert (await one.ack("orders", handle, group="billing")).status.code == FORBIDDEN
        assert (await one.change(handle, 1_000)).status.code == FORBIDDEN
        bury = wire.ForwardMessageToDeadLetterQueueRequest(receipt_handle=handle)
        assert (await one.call("ForwardMessageToDeadLetterQueue", bury)).status.code == FORBIDDEN
    assert (await billing.ack("orders", handle, group="billing")).status.code == OK


async def test_a_name_in_a_namespace_is_another_name(served: Served) -> None:
    """The rules have the store's names: namespace, percent sign, name."""
    assert (await signed(served, "shop-key", x_mq_namespace="ns").send("orders")).status.code == OK
    assert (await signed(served, "shop-key", x_mq_namespace="other").send("orders")).status.code == FORBIDDEN


async def test_settings_name_only_own_topics_and_groups(served: Served) -> None:
    """Else a client would be asked about the transactions of a foreign topic, with their messages."""
    shop, billing = signed(served, "shop-key"), signed(served, "billing-key")
    publishing = {
        topic: wire.Settings(publishing=wire.Publishing(topics=[named(topic)])) for topic in ("orders", "payments")
    }
    assert await code_of_settings(shop, publishing["orders"]) == OK
    assert await code_of_settings(shop, publishing["payments"]) == FORBIDDEN
    assert await code_of_settings(billing, publishing["orders"]) == FORBIDDEN
    for group, topic, expected in (("billing", "orders", OK), ("g", "orders", FORBIDDEN), ("billing", "t", FORBIDDEN)):
        entry = wire.SubscriptionEntry(topic=named(topic))
        subscription = wire.Subscription(group=named(group), subscriptions=[entry])
        assert await code_of_settings(billing, wire.Settings(subscription=subscription)) == expected


async def test_transactions_and_recalls_are_the_producers(served: Served) -> None:
    """Only a producer of the topic ends its transactions, and calls its delayed messages back."""
    shop, billing = signed(served, "shop-key"), signed(served, "billing-key")
    half = shop.message(
        "orders",
        message_type=wire.MESSAGE_TYPE_TRANSACTION,
        orphaned_transaction_recovery_duration=Duration(seconds=60),
    )
    sent = await shop.send("orders", half)
    assert sent.status.code == OK
    end = wire.EndTransactionRequest(
        topic=named("orders"),
        message_id="m",
        transaction_id=sent.entries[0].transaction_id,
        resolution=wire.TRANSACTION_RESOLUTION_COMMIT,
    )
    assert (await billing.call("EndTransaction", end)).status.code == FORBIDDEN
    assert (await shop.call("EndTransaction", end)).status.code == OK
    recall = wire.RecallMessageRequest(topic=named("orders"), recall_handle="x")
    assert (await billing.call("RecallMessage", recall)).status.code == FORBIDDEN
    assert (await shop.call("RecallMessage", recall)).status.code not in (OK, FORBIDDEN)


def audit_lines(served: Served) -> list[dict[str, Any]]:
    """The lines in the gateway's audit."""
    return [json.loads(text) for _, text in served.gateway.server.trail.lines(0)]


async def test_a_refusal_has_an_audit_line(served: Served) -> None:
    """The line names the subject of the access key, the method and the topic; a wrong key is nobody's."""
    shop = signed(served, "shop-key")
    for _ in range(3):
        assert (await shop.send("payments")).status.code == FORBIDDEN
    assert (await signed(served, "unknown-key").send("orders")).status.code == wire.CODE_UNAUTHORIZED
    forbidden, unknown = audit_lines(served)
    expected = {"subject": "shop", "code": "FORBIDDEN", "reason": "NOT_PERMITTED", "topics": ["payments"]}
    assert {name: forbidden[name] for name in expected} == expected
    assert forbidden["method"].endswith("MessagingService/SendMessage")
    assert (unknown["subject"], unknown["code"], unknown["reason"]) == ("anonymous", "UNAUTHORIZED", "UNAUTHENTICATED")
    assert "unknown-key" in unknown["text"]


async def test_a_subject_over_its_quota_is_told_to_wait(served: Served, tmp_path: Path) -> None:
    """The quota is that of the access key's subject, over all its connections; other subjects go on."""
    rights = tmp_path / "rights.toml"
    rights.write_text(RIGHTS.replace('["shop-key"]', '["shop-key"]\nbytes_per_s_max = 1\nstream_count_max = 1'))
    shop, billing = signed(served, "shop-key"), signed(served, "billing-key")
    async with asyncio.timeout(LIMIT_S):
        while (answer := await shop.send("orders")).status.code == OK:  # noqa: ASYNC110 - a file has no bell
            await asyncio.sleep(0.1)
    assert answer.status.code == wire.CODE_TOO_MANY_REQUESTS
    assert answer.status.message.startswith("shop is over its quota: bytes_per_s_max is 1, ")
    assert await billing.receive("orders", "billing", wait_s=10)
    start_s = time.monotonic()
    parts = [part async for part in shop.receiving(receive_request("orders", "billing", wait_s=1))]
    assert [part.status.code for part in parts] == [wire.CODE_TOO_MANY_REQUESTS]
    assert time.monotonic() - start_s >= HOLD_S, "the refusal leaves at once"
    (line, *_) = audit_lines(served)
    assert (line["subject"], line["reason"]) == ("shop", "QUOTA_EXCEEDED")
    rights.write_text(RIGHTS)
    async with asyncio.timeout(LIMIT_S):
        while (await shop.send("orders")).status.code != OK:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.1)


async def test_a_caller_without_a_key_is_refused(served: Served) -> None:
    """The check of access keys is the first."""
    answer = await served.caller().call("QueryRoute", wire.QueryRouteRequest(topic=named("orders"), endpoints=PLACE))
    assert answer.status.code == wire.CODE_UNAUTHORIZED
