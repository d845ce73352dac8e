# SPDX-License-Identifier: Apache-2.0
"""SendMessage: a large request does not block other callers of the gateway."""

import asyncio
import gzip
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from libs.machine.testing.manual_clock import ManualClock
from services.gateway.engine.bodies import Bodies
from services.gateway.rpc.access_keys import AccessKeys
from services.gateway.rpc.messaging_servicer import SEND_COUNT_MAX, SEND_STEP_COUNT, MessagingServicer
from services.gateway.rpc.store.ports import Sent
from services.gateway.rpc.wire import messaging_pb2 as wire

BODY = b"the same words again. " * 10


class Log:
    """Takes everything."""

    async def send(self, messages: Sequence[Any]) -> list[Sent]:
        """See Log."""
        return [Sent("", offset) for offset in range(len(messages))]


class Context:
    """Of a call of a client."""

    def invocation_metadata(self) -> list[tuple[str, str]]:
        """See gRPC."""
        return [("x-mq-client-id", "c")]

    def peer(self) -> str:
        """See gRPC."""
        return "ipv4:10.0.0.1:1234"


@pytest.fixture
def servicer() -> Iterator[MessagingServicer]:
    """A servicer that only sends."""
    bodies, others = (
        Bodies(size_bytes_max=1 << 20),
        dict.fromkeys(("delivery", "routes", "consumer_methods", "telemetry")),
    )
    parts: Any = {**others, "renewals": None, "producers": None, "log": Log(), "bodies": bodies}
    yield MessagingServicer(**parts, keys=AccessKeys(None), clock=ManualClock(), body_size_bytes_max=1 << 20)
    bodies.close()


@pytest.mark.parametrize(
    ("encoding", "turn_count"),
    [
        pytest.param(wire.ENCODING_GZIP, SEND_COUNT_MAX, id="gzip"),
        pytest.param(wire.ENCODING_IDENTITY, SEND_COUNT_MAX // SEND_STEP_COUNT, id="plain"),
    ],
)
async def test_others_have_their_turn_within_a_large_request(
    servicer: MessagingServicer, encoding: int, turn_count: int
) -> None:
    """The event loop gets a turn after each inflated body, and after some other messages."""
    body = gzip.compress(BODY) if encoding == wire.ENCODING_GZIP else BODY
    message = wire.Message(
        topic=wire.Resource(name="t"),
        body=body,
        system_properties=wire.SystemProperties(message_id="i", body_encoding=encoding),
    )
    context: Any = Context()
    sending = asyncio.create_task(
        servicer.SendMessage(wire.SendMessageRequest(messages=[message] * SEND_COUNT_MAX), context)
    )
    turns = 0
    while not sending.done():
        turns += 1
        await asyncio.sleep(0)
    assert len((await sending).entries) == SEND_COUNT_MAX
    assert turns >= turn_count
