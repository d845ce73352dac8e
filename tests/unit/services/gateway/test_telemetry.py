# SPDX-License-Identifier: Apache-2.0
"""A consumer gets its settings also while Delivery starts, and a client above the limit gets an error."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from google.protobuf.duration_pb2 import Duration
from reput.delivery.v1.group_service_pb2 import GroupPolicy

from libs.machine.testing.manual_clock import ManualClock
from libs.requests.errors import PeerError
from services.gateway.engine.bodies import Bodies
from services.gateway.engine.producers import Producers
from services.gateway.engine.renewals import Renewals
from services.gateway.errors import Refused
from services.gateway.rpc import telemetry
from services.gateway.rpc.caller import Caller, WorkCanceller
from services.gateway.rpc.statuses import status_of
from services.gateway.rpc.wire import messaging_pb2 as wire


class Delivery:
    """Is away for so many calls."""

    def __init__(self, away_count: int) -> None:
        self.away_count = away_count

    async def policy(self, group: str) -> GroupPolicy:
        """See DeliveryClient."""
        if self.away_count:
            self.away_count -= 1
            raise PeerError("delivery", "RECOVERING", "the journal is not read yet")
        return GroupPolicy(attempts_max=7, backoffs=[Duration(seconds=1)])

    async def renew(self, handles: Sequence[str], invisible_s: float) -> Mapping[str, bool]:
        """See Renewer."""
        raise NotImplementedError


class Context:
    """Of a call."""

    async def send_initial_metadata(self, _: object) -> None:
        """See ServicerContext."""


def subject_of(delivery: Any, canceller: WorkCanceller) -> telemetry.Telemetry:
    """The Telemetry under test, with room for two clients."""
    renewals = Renewals(delivery, ManualClock(), count_max=1)
    bodies = Bodies(size_bytes_max=1)
    return telemetry.Telemetry(
        delivery, renewals, Producers(), bodies, canceller, body_size_bytes_max=1, stream_count_max=2
    )


async def answer_of(away_count: int) -> wire.TelemetryResponse:
    """The answer to a push consumer."""
    context: Any = Context()
    subject = subject_of(Delivery(away_count), WorkCanceller())
    said = wire.Settings(subscription=wire.Subscription(group=wire.Resource(name="g")))

    async def requests() -> AsyncIterator[wire.TelemetryRequest]:
        yield wire.TelemetryRequest(settings=said)

    (answer,) = [one async for one in subject.answers(Caller("c", "JAVA", "", ""), requests(), context)]
    return answer


@pytest.fixture(autouse=True)
def quickly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing here is about how long it waits."""
    monkeypatch.setattr(telemetry, "POLICY_INTERVAL_S", 0.001)


async def test_delivery_may_begin_later() -> None:
    """The client waits for Delivery; after an error it would ask again after minutes, or never."""
    answer = await answer_of(telemetry.POLICY_TRIES - 1)
    assert (answer.status.code, answer.settings.backoff_policy.max_attempts) == (wire.CODE_OK, 7)


async def test_a_client_does_not_wait_for_ever() -> None:
    """A client that waited for the limit is told that the store is away."""
    answer = await answer_of(telemetry.POLICY_TRIES)
    assert (answer.status.code, answer.HasField("settings")) == (wire.CODE_HA_NOT_AVAILABLE, False)


async def test_a_group_that_is_refused_is_refused_at_once() -> None:
    """A refused group ends the stream at once with its reason, so that libraries end their start."""

    class Refusing(Delivery):
        async def policy(self, group: str) -> GroupPolicy:
            """See DeliveryClient."""
            asked.append(group)
            raise PeerError("delivery", "BAD_ARGUMENT", "group: must be 1 to 122 bytes", field="group")

    asked: list[str] = []
    context: Any = Context()
    said = wire.Settings(subscription=wire.Subscription(group=wire.Resource(name="a.b")))

    async def requests() -> AsyncIterator[wire.TelemetryRequest]:
        yield wire.TelemetryRequest(settings=said)

    answers = subject_of(Refusing(0), WorkCanceller()).answers(Caller("c", "GO", "", ""), requests(), context)
    with pytest.raises(PeerError) as refused:
        await anext(answers)
    assert (asked, status_of(refused.value).code) == (["a.b"], wire.CODE_ILLEGAL_CONSUMER_GROUP)


async def test_a_client_that_does_not_read() -> None:
    """A client that does not read is not read any more; when it reads, all answers are there."""
    context: Any = Context()
    subject = subject_of(Delivery(0), WorkCanceller())
    said = wire.TelemetryRequest(settings=wire.Settings(subscription=wire.Subscription(group=wire.Resource(name="g"))))
    heard: list[int] = []

    async def requests() -> AsyncIterator[wire.TelemetryRequest]:
        for number in range(100):
            heard.append(number)
            yield said

    answers = subject.answers(Caller("c", "JAVA", "", ""), requests(), context)
    await anext(answers)
    await asyncio.sleep(0.05)
    assert len(heard) <= telemetry.ANSWER_COUNT_MAX + 3
    assert len([one async for one in answers]) == 99


async def test_too_many_clients() -> None:
    """A client above the limit is refused; when another disconnects, or the gateway ends, there is room."""
    context: Any = Context()
    canceller = WorkCanceller()
    subject = subject_of(Delivery(0), canceller)

    async def nothing() -> AsyncIterator[wire.TelemetryRequest]:
        await asyncio.Event().wait()
        yield wire.TelemetryRequest()

    async def stay(name: str) -> int:
        return len([one async for one in subject.answers(Caller(name, "JAVA", "", ""), nothing(), context)])

    streams = [asyncio.create_task(stay(name)) for name in "ab"]
    await asyncio.sleep(0)
    with pytest.raises(Refused, match="client_stream_count_max, 2"):
        await stay("c")
    streams[0].cancel()
    await asyncio.wait(streams[:1])
    streams.append(asyncio.create_task(stay("c")))
    await asyncio.sleep(0.01)
    canceller.end()
    assert await asyncio.gather(*streams[1:]) == [0, 0]
    assert await stay("d") == 0
