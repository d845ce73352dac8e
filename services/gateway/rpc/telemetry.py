# SPDX-License-Identifier: Apache-2.0
"""Telemetry: the stream on which a client sends its settings, gets the completed settings, and gets questions."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from typing import TypeAlias

from reput.delivery.v1.group_service_pb2 import GroupPolicy
from reput.delivery.v1.transaction_service_pb2 import TransactionCheck

from libs.requests.errors import PeerError, ServiceError
from services.gateway.engine.bodies import Bodies
from services.gateway.engine.producers import Producers
from services.gateway.engine.renewals import Renewals
from services.gateway.errors import Refused
from services.gateway.rpc import settings
from services.gateway.rpc.caller import Caller, Context, WorkCanceller
from services.gateway.rpc.codec import question
from services.gateway.rpc.statuses import OK, is_passing, status_of
from services.gateway.rpc.store.ports import Deliveries
from services.gateway.rpc.wire import messaging_pb2 as wire

NODE_DELAY_S = 0.15
"""Delay of the settings for Node.js: a client that gets them before it has asked for all its topics waits for ever."""

POLICY_TRIES, POLICY_INTERVAL_S = 16, 0.5
"""The gateway retries for the client: a client whose settings fail asks again only after minutes, or never."""


ANSWER_COUNT_MAX = 16
"""Answers that wait for a client that does not read. With more, the gateway stops reading the client's requests."""
QUESTION_COUNT_MAX = 1_000
"""Questions that wait for a client that does not read. Further questions are dropped, and asked again later."""

_Told: TypeAlias = "asyncio.Queue[wire.TelemetryResponse | TransactionCheck | None]"
"""Answers and questions for a client. None ends them."""


class Telemetry:
    """The streams of this gateway's clients."""

    def __init__(
        self,
        delivery: Deliveries,
        renewals: Renewals,
        producers: Producers,
        bodies: Bodies,
        canceller: WorkCanceller,
        *,
        body_size_bytes_max: int,
        stream_count_max: int,
    ) -> None:
        self._delivery, self._renewals, self._producers = delivery, renewals, producers
        self._bodies, self._canceller = bodies, canceller
        self._body_size_bytes_max = body_size_bytes_max
        self._stream_count, self.stream_count_max = 0, stream_count_max

    async def answers(
        self, caller: Caller, requests: AsyncIterator[wire.TelemetryRequest], context: Context
    ) -> AsyncGenerator[wire.TelemetryResponse, None]:
        """Answer the client's requests until the client ends the stream or the gateway stops.

        Raises Refused for a stream beyond the limit, and Refused and PeerError for settings that are never accepted.
        """
        if self._stream_count >= self.stream_count_max:
            limit = f"client_stream_count_max, {self.stream_count_max}"
            raise Refused("TOO_MANY_REQUESTS", f"as many clients have a stream as there may: {limit}")
        told: _Told = asyncio.Queue()
        taken = asyncio.Event()

        def ask(check: TransactionCheck) -> None:
            if told.qsize() < QUESTION_COUNT_MAX:
                told.put_nowait(check)

        self._stream_count += 1
        self._renewals.connected(caller.client)
        self._producers.connected(caller.client, ask)
        reading = asyncio.create_task(self._read(caller, requests, told, taken), name="telemetry")
        reading.add_done_callback(lambda _: told.put_nowait(None))
        self._canceller.cancels(reading)
        try:
            await context.send_initial_metadata(())  # the library for Rust sends no request before it
            while (answer := await told.get()) is not None:
                taken.set()
                if isinstance(answer, TransactionCheck):
                    answer = await question(answer, caller, self._bodies)
                yield answer
            if not reading.cancelled():
                await reading
        finally:
            reading.cancel()
            self._producers.disconnected(caller.client, ask)
            self._renewals.disconnected(caller.client)
            self._stream_count -= 1

    async def _read(
        self,
        caller: Caller,
        requests: AsyncIterator[wire.TelemetryRequest],
        told: _Told,
        taken: asyncio.Event,
    ) -> None:
        """Answer the client's requests until the client ends the stream."""
        async for request in requests:
            while told.qsize() > ANSWER_COUNT_MAX:
                taken.clear()
                await taken.wait()
            if request.HasField("settings"):
                topics = request.settings.publishing.topics
                self._producers.publishes(caller.client, [caller.topic(topic) for topic in topics if topic.name])
                await told.put(await self._answer(caller, request.settings))

    async def _answer(self, caller: Caller, said: wire.Settings) -> wire.TelemetryResponse:
        try:
            settings.check(said)
            completed = await self._completed(caller, said)
        except ServiceError as error:
            if not is_passing(error):
                raise
            return wire.TelemetryResponse(status=status_of(error))
        return wire.TelemetryResponse(status=OK, settings=completed)

    async def _completed(self, caller: Caller, said: wire.Settings) -> wire.Settings:
        is_node = caller.is_node or settings.is_of_node(said)
        if is_node:
            await asyncio.sleep(NODE_DELAY_S)
        if said.HasField("publishing"):
            return settings.of_producer(said, body_size_bytes_max=self._body_size_bytes_max)
        policy = await self._policy(caller.group(said.subscription.group))
        return settings.of_consumer(said, policy, is_node=is_node)

    async def _policy(self, group: str) -> GroupPolicy:
        """Return a group's policy. Raises PeerError when the call is refused, or all retries have failed."""
        for _ in range(POLICY_TRIES - 1):
            try:
                return await self._delivery.policy(group)
            except PeerError as error:
                if not is_passing(error):
                    raise
                await asyncio.sleep(POLICY_INTERVAL_S)
        return await self._delivery.policy(group)
