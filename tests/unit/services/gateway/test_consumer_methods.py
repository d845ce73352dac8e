# SPDX-License-Identifier: Apache-2.0
"""Messages whose receiver has disconnected are given back at any moment."""

import asyncio
from typing import Any

import pytest
from reput.delivery.v1.delivery_service_pb2 import ReceivedMessage

from libs.machine.testing.manual_clock import ManualClock
from services.gateway.engine.bodies import Bodies
from services.gateway.engine.renewals import Renewals
from services.gateway.errors import Refused
from services.gateway.rpc.caller import Caller, WorkCanceller
from services.gateway.rpc.consumer_methods import ConsumerMethods
from services.gateway.rpc.wire import messaging_pb2 as wire
from tests.support.patience import LIMIT_S


class Delivery:
    """Gives two messages."""

    def __init__(self) -> None:
        self.gave = asyncio.Event()
        self.given_back: list[tuple[str, bool]] = []
        self.took_back = asyncio.Event()

    async def receive(self, *_: object, **__: object) -> list[ReceivedMessage]:
        """See DeliveryClient."""
        self.gave.set()
        return [ReceivedMessage(handle="h1"), ReceivedMessage(handle="h2")]

    async def settle(self, entries: Any) -> list[str]:
        """See DeliveryClient."""
        self.given_back += [(entry.handle, entry.nack.is_untried) for entry in entries if entry.HasField("nack")]
        self.took_back.set()
        return [""] * len(entries)


class Context:
    """Of a call."""

    async def send_initial_metadata(self, _: object) -> None:
        """See ServicerContext."""

    def time_remaining(self) -> None:
        """See ServicerContext."""


def receive(delivery: Delivery, tags: str = "*") -> Any:
    """The answers to a receive."""
    subject: Any = ConsumerMethods(
        delivery,  # type: ignore[arg-type]
        Renewals(delivery, ManualClock(), count_max=1),  # type: ignore[arg-type]
        Bodies(size_bytes_max=1 << 20),
        WorkCanceller(),
        ManualClock(),
    )
    request = wire.ReceiveMessageRequest(
        group=wire.Resource(name="g"), message_queue=wire.MessageQueue(topic=wire.Resource(name="t"))
    )
    request.filter_expression.expression = tags
    return subject.receive(request, Caller("c", "", "", ""), Context())


async def test_a_caller_that_goes_in_the_moment_in_which_messages_come() -> None:
    """If the caller disconnects while messages arrive, they are given back at once, without an attempt."""
    delivery = Delivery()
    answers = receive(delivery)
    first = asyncio.ensure_future(anext(answers))
    await delivery.gave.wait()
    first.cancel()
    await asyncio.wait([first])
    assert first.cancelled()
    async with asyncio.timeout(LIMIT_S):
        await delivery.took_back.wait()
    assert delivery.given_back == [("h1", True), ("h2", True)], "a bad line makes no dead letters"


async def test_a_caller_that_goes_while_it_is_given_messages() -> None:
    """If the caller disconnects during its messages, the message that was sent counts as an attempt.

    It may have killed its receiver. The other messages do not count.
    """
    delivery = Delivery()
    answers = receive(delivery)
    assert [(await anext(answers)).WhichOneof("content") for _ in range(2)] == ["status", "message"]
    await answers.aclose()
    async with asyncio.timeout(LIMIT_S):
        await delivery.took_back.wait()
    assert delivery.given_back == [("h1", False), ("h2", True)]


@pytest.mark.parametrize("tags", ["||", " ", "|| ||"])
async def test_an_expression_without_a_tag_is_refused(tags: str) -> None:
    """An expression without a tag is refused at once, without a call to Delivery."""
    delivery = Delivery()
    with pytest.raises(Refused) as error:
        await anext(receive(delivery, tags))
    assert error.value.code == "ILLEGAL_FILTER_EXPRESSION"
    assert not delivery.gave.is_set()
