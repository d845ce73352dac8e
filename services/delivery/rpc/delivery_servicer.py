# SPDX-License-Identifier: Apache-2.0
"""DeliveryServicer: the gRPC service DeliveryService of this process."""

from collections.abc import AsyncGenerator

from reput.delivery.v1 import delivery_service_pb2 as messages

from libs.formats import fields
from libs.requests import arguments
from libs.requests.checks import size_of_page
from libs.runtime.rpc.connection_servicer import note_group, number_of
from services.delivery.engine.own.journal_owner import JournalOwner
from services.delivery.rpc.consume_session import ConsumeSession
from services.delivery.rpc.names import group_name
from services.delivery.rpc.settling import (
    attempt_id_of,
    invisible_ms_of,
    messages_of,
    outcome_of,
    settle_requests_of,
    wanted_of,
)

COUNT_DEFAULT = 32
WAIT_MAX_S = 30.0


class DeliveryServicer:
    """Delivers and settles messages, by single calls or in a stream."""

    def __init__(self, owner: JournalOwner, *, receive_count_max: int) -> None:
        self._owner = owner
        self._receive_count_max = receive_count_max

    async def Receive(self, request: messages.ReceiveRequest, context: object) -> bytes:
        """Return messages that are the caller's for the invisible time."""
        engine = await self._owner.engine()
        group = group_name(request.group)
        note_group(context, group)
        delivered = await engine.receive(
            group,
            arguments.topic(request.topic),
            count=size_of_page(request, "message_count_max", default=COUNT_DEFAULT, most=self._receive_count_max),
            invisible_ms=invisible_ms_of(request),
            wanted=wanted_of(request),
            wait_s=arguments.wait_s(request, "wait", most_s=WAIT_MAX_S),
            attempt_id=attempt_id_of(request),
            connection_number=number_of(context),
        )
        return messages_of(delivered, fields.RECEIVE_RESPONSE_MESSAGES)

    async def Settle(self, request: messages.SettleRequest, _: object) -> messages.SettleResponse:
        """Settle deliveries, and return an outcome for each entry."""
        settle_requests = settle_requests_of(request.entries)
        outcomes = await (await self._owner.engine()).settling.settle(settle_requests)
        return messages.SettleResponse(outcomes=map(outcome_of, outcomes))

    async def Consume(
        self, requests: AsyncGenerator[messages.ConsumeRequest, None], context: object
    ) -> AsyncGenerator[messages.ConsumeResponse | bytes, None]:
        """Send messages within the caller's credit, and settle them. See ConsumeSession."""
        session = ConsumeSession(self._owner)
        try:
            async for response in session.responses(requests, context):
                yield response
        finally:
            await session.close()
