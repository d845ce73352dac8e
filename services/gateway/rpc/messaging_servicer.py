# SPDX-License-Identifier: Apache-2.0
"""MessagingService: the methods of the protocol. An error becomes a status in the answer."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine
from typing import Any, TypeVar, cast

from libs.machine.clock import Clock
from libs.requests.errors import BadArgument, PeerError, ServiceError
from libs.runtime.rpc.errors import HeldAnswer
from libs.runtime.trust.rights.access import Access
from libs.runtime.trust.trail import Trail
from services.gateway.engine import recall
from services.gateway.engine.bodies import Bodies
from services.gateway.engine.names import is_of_group
from services.gateway.engine.producers import Producers
from services.gateway.engine.renewals import Renewals
from services.gateway.engine.shards.names import with_shard
from services.gateway.errors import Refused
from services.gateway.rpc.access_keys import AccessKeys
from services.gateway.rpc.caller import Caller, Context
from services.gateway.rpc.codec import delivery_ms, is_transaction, to_store
from services.gateway.rpc.consumer_methods import ConsumerMethods
from services.gateway.rpc.rights import CallerRights
from services.gateway.rpc.routes import Routes
from services.gateway.rpc.settings import check_client_type
from services.gateway.rpc.statuses import OK, status_of
from services.gateway.rpc.store.ports import BROKER, Deliveries, Log, Sent
from services.gateway.rpc.telemetry import Telemetry
from services.gateway.rpc.wire import messaging_pb2 as wire

SERVED_AS = "apache.rocketmq.v2.MessagingService"
SEND_COUNT_MAX = 1_000
SEND_STEP_COUNT = 50
"""Messages of a request that are translated before the event loop runs other work. This takes some milliseconds."""

COME_AGAIN = (wire.CODE_UNAUTHORIZED, wire.CODE_TOO_MANY_REQUESTS)
"""Codes with which a stream ends without an error, because the same settings may be accepted later."""

R = TypeVar("R")


def _answers(make: Callable[..., R]) -> Callable[[Any], Callable[..., Coroutine[Any, Any, R]]]:
    """Make a method answer with a status: its own answer, or OK if it returns None, or the status of its error."""

    def decorate(method: Any) -> Callable[..., Coroutine[Any, Any, R]]:
        async def answer(self: "MessagingServicer", request: Any, context: Context) -> R:
            try:
                caller = self.admit(context, request)
                return await method(self, request, caller) or make(status=OK)
            except ServiceError as error:
                return self.refusal(make, method.__name__, request, context, error)

        return answer

    return decorate


class MessagingServicer:
    """The servicer of the protocol."""

    def __init__(
        self,
        log: Log,
        delivery: Deliveries,
        routes: Routes,
        consumer_methods: ConsumerMethods,
        telemetry: Telemetry,
        renewals: Renewals,
        producers: Producers,
        bodies: Bodies,
        keys: AccessKeys,
        *,
        clock: Clock,
        body_size_bytes_max: int,
        access: Access | None = None,
        trail: Trail | None = None,
    ) -> None:
        self._log, self._routes, self._consumer_methods, self._telemetry = log, routes, consumer_methods, telemetry
        self._delivery, self._renewals, self._producers = delivery, renewals, producers
        self._rights = CallerRights(keys, access)
        self._trail = trail
        self._bodies, self._body_size_bytes_max, self._clock = bodies, body_size_bytes_max, clock

    def admit(self, context: Context, request: Any, *, is_stream: bool = False) -> Caller:
        """Return the caller, after the checks of its access key, its quota and its rights. Raises Refused."""
        caller = self._rights.admit(context, request, is_stream=is_stream)
        self._rights.check(request, caller)
        return caller

    def refusal(self, make: Callable[..., R], method: str, request: Any, context: Context, error: ServiceError) -> R:
        """Return the answer with the status of an error. Raises HeldAnswer with it for a caller over its quota."""
        answer: Any = make(status=self.refused(method, request, context, error))
        if isinstance(error, Refused) and error.over:
            raise HeldAnswer(error.over, answer.SerializeToString()) from None
        return cast("R", answer)

    def refused(self, method: str, request: Any, context: Context, error: ServiceError) -> wire.Status:
        """Return the status of an error. A refusal for lack of a right, or over a quota, has an audit line."""
        if self._trail is not None and isinstance(error, Refused) and error.reason:
            subject, code = self._rights.name_of(context), error.code
            self._trail.told(
                f"/{SERVED_AS}/{method}",
                request,
                context,
                subject=subject,
                code=code,
                reason=error.reason,
                text=str(error),
            )
        return status_of(error)

    @_answers(wire.QueryRouteResponse)
    async def QueryRoute(self, request: wire.QueryRouteRequest, caller: Caller) -> wire.QueryRouteResponse:
        """Return the queues of a topic."""
        return wire.QueryRouteResponse(status=OK, message_queues=await self._routes.queues(request, caller))

    @_answers(wire.QueryAssignmentResponse)
    async def QueryAssignment(
        self, request: wire.QueryAssignmentRequest, caller: Caller
    ) -> wire.QueryAssignmentResponse:
        """Return the queues that a push consumer receives from."""
        return wire.QueryAssignmentResponse(status=OK, assignments=await self._routes.assignments(request, caller))

    @_answers(wire.HeartbeatResponse)
    async def Heartbeat(self, request: wire.HeartbeatRequest, caller: Caller) -> None:
        """Record that a client lives."""
        check_client_type(request.client_type)
        self._renewals.hear(caller.client)

    @_answers(wire.NotifyClientTerminationResponse)
    async def NotifyClientTermination(self, _: wire.NotifyClientTerminationRequest, caller: Caller) -> None:
        """Record that a client terminates."""
        self._renewals.leave(caller.client)

    @_answers(wire.SendMessageResponse)
    async def SendMessage(self, request: wire.SendMessageRequest, caller: Caller) -> wire.SendMessageResponse:
        """Append messages of a topic, all of them or none."""
        count = len(request.messages)
        if not 1 <= count <= SEND_COUNT_MAX:
            raise Refused("BAD_REQUEST", f"the request has {count} messages, and must have 1 to {SEND_COUNT_MAX}")
        topics = {caller.topic(message.topic) for message in request.messages}
        if len(topics) > 1:
            raise Refused("BAD_REQUEST", "all messages of a request must be of one topic")
        (topic,) = topics
        if is_of_group(topic):
            raise Refused("ILLEGAL_TOPIC", f"topic {topic} is of a group: messages are received from it, and not sent")
        most, stored = self._body_size_bytes_max, []
        for number, message in enumerate(request.messages, 1):
            stored.append(await to_store(message, topic, caller, self._bodies, body_size_bytes_max=most))
            if number % SEND_STEP_COUNT == 0:
                await asyncio.sleep(0)
        sent = await self._log.send(stored)
        if any(map(is_transaction, request.messages)):
            self._producers.publishes(caller.client, [topic], in_transactions=True)
        entries = [_sent(message, topic, place) for message, place in zip(request.messages, sent, strict=True)]
        return wire.SendMessageResponse(status=OK, entries=entries)

    async def ReceiveMessage(
        self, request: wire.ReceiveMessageRequest, context: Context
    ) -> AsyncGenerator[wire.ReceiveMessageResponse, None]:
        """Deliver messages to a consumer."""
        try:
            caller = self.admit(context, request, is_stream=True)
            async with contextlib.aclosing(self._consumer_methods.receive(request, caller, context)) as answers:
                async for answer in answers:
                    yield answer
        except ServiceError as error:
            yield self.refusal(wire.ReceiveMessageResponse, "ReceiveMessage", request, context, error)

    @_answers(wire.AckMessageResponse)
    async def AckMessage(self, request: wire.AckMessageRequest, _: Caller) -> wire.AckMessageResponse:
        """Acknowledge messages."""
        return await self._consumer_methods.ack(request)

    @_answers(wire.ChangeInvisibleDurationResponse)
    async def ChangeInvisibleDuration(
        self, request: wire.ChangeInvisibleDurationRequest, caller: Caller
    ) -> wire.ChangeInvisibleDurationResponse:
        """Set the invisible time of a message."""
        handle = await self._consumer_methods.change(request, caller)
        return wire.ChangeInvisibleDurationResponse(status=OK, receipt_handle=handle)

    @_answers(wire.ForwardMessageToDeadLetterQueueResponse)
    async def ForwardMessageToDeadLetterQueue(
        self, request: wire.ForwardMessageToDeadLetterQueueRequest, _: Caller
    ) -> None:
        """Make a message a dead letter."""
        await self._consumer_methods.bury(request)

    async def Telemetry(
        self, requests: AsyncIterator[wire.TelemetryRequest], context: Context
    ) -> AsyncGenerator[wire.TelemetryResponse, None]:
        """Complete a client's settings, and ask it about transactions.

        Refused settings end the stream with an error, as with RocketMQ's proxy: this ends the start of clients for Java
        and Go. A client for Node.js looks at the status. Raises BadArgument.
        """
        try:
            caller = self._rights.admit(context, None, is_stream=True)
            checked = self._rights.checked(requests, caller, context)
            async with contextlib.aclosing(self._telemetry.answers(caller, checked, context)) as answers:
                async for answer in answers:
                    yield answer
        except (Refused, PeerError) as error:
            answer = self.refusal(wire.TelemetryResponse, "Telemetry", None, context, error)
            yield answer
            if answer.status.code not in COME_AGAIN:
                raise BadArgument(answer.status.message, field="settings") from error

    @_answers(wire.EndTransactionResponse)
    async def EndTransaction(self, request: wire.EndTransactionRequest, caller: Caller) -> None:
        """Commit or roll back a transaction. A producer that does not know the end yet is asked again."""
        topic = caller.topic(request.topic)
        name = request.transaction_id or request.message_id
        if not name:
            raise Refused("INVALID_TRANSACTION_ID", "the transaction must have an id")
        self._producers.publishes(caller.client, [topic], in_transactions=True)
        if request.resolution != wire.TRANSACTION_RESOLUTION_UNSPECIFIED:
            is_committed = request.resolution == wire.TRANSACTION_RESOLUTION_COMMIT
            await self._delivery.end_transaction(name, topic, is_committed=is_committed)

    @_answers(wire.RecallMessageResponse)
    async def RecallMessage(self, request: wire.RecallMessageRequest, caller: Caller) -> wire.RecallMessageResponse:
        """Cancel a message that waits for its delivery time."""
        topic, handle = caller.topic(request.topic), recall.decode(request.recall_handle)
        if handle.topic != topic:
            raise Refused("BAD_REQUEST", f"the recall handle is of a message of topic {handle.topic}")
        try:
            await self._delivery.cancel(topic, handle.message_id, broker=handle.broker)
        except PeerError as error:
            raise recall.refused(handle, error, self._clock.now_ms()) from error
        return wire.RecallMessageResponse(status=OK, message_id=handle.message_id)

    @_answers(wire.SyncLiteSubscriptionResponse)
    async def SyncLiteSubscription(self, _: wire.SyncLiteSubscriptionRequest, __: Caller) -> None:
        """Refuse the call: lite topics are not served."""
        raise Refused("UNSUPPORTED", "lite topics are not served yet")


def _sent(message: wire.Message, topic: str, place: Sent) -> wire.SendResultEntry:
    """Return the result entry of a stored message."""
    system, shard = message.system_properties, place.shard
    name = with_shard(shard, system.message_id) if shard and is_transaction(message) else system.message_id
    entry = wire.SendResultEntry(
        status=OK, message_id=system.message_id, transaction_id=name, offset=place.queue_offset
    )
    if deliver_ms := delivery_ms(system):
        handle = recall.RecallHandle(topic, shard or BROKER, deliver_ms, system.message_id)
        entry.recall_handle = handle.encode()
    return entry
