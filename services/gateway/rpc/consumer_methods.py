# SPDX-License-Identifier: Apache-2.0
"""ConsumerMethods: delivers messages to consumers, and settles them as the consumers request."""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Sequence

from google.protobuf.duration import from_milliseconds
from google.protobuf.duration_pb2 import Duration
from reput.delivery.v1.delivery_service_pb2 import Bury, Extend, Nack, ReceivedMessage

from libs.filters.property_filter import parse_where
from libs.filters.tag_expression import parse_tags, text_of
from libs.machine.clock import Clock
from libs.requests.errors import BadArgument, ServiceError
from libs.runtime.rpc.connection_servicer import note_group
from libs.runtime.rpc.timestamps import timestamp
from services.gateway.engine import retries
from services.gateway.engine.bodies import Bodies
from services.gateway.engine.renewals import INVISIBLE_S, Renewals
from services.gateway.engine.waiting import wait_s
from services.gateway.errors import Refused
from services.gateway.rpc.caller import Caller, Context, WorkCanceller
from services.gateway.rpc.codec import milliseconds, to_client
from services.gateway.rpc.routes import ANY_QUEUE
from services.gateway.rpc.statuses import OK, status, status_of
from services.gateway.rpc.store.delivery_client import ENTRY_COUNT_MAX, SettleEntry
from services.gateway.rpc.store.ports import Deliveries
from services.gateway.rpc.wire import messaging_pb2 as wire

BATCH_SIZE_MAX = 32
NOTHING = status("MESSAGE_NOT_FOUND", "no new message")
INVISIBLE_MS_MAX = 12 * 3_600_000


class ConsumerMethods:
    """The methods of consumers."""

    def __init__(
        self, delivery: Deliveries, renewals: Renewals, bodies: Bodies, canceller: WorkCanceller, clock: Clock
    ) -> None:
        self._delivery, self._renewals, self._bodies = delivery, renewals, bodies
        self._canceller, self._clock = canceller, clock
        self._giving_back: set[asyncio.Task[None]] = set()

    async def receive(
        self, request: wire.ReceiveMessageRequest, caller: Caller, context: Context
    ) -> AsyncGenerator[wire.ReceiveMessageResponse, None]:
        """Yield the status, the messages, and the time. Messages that the caller does not take are redelivered at once.

        The message on its way to the caller counts as an attempt, because the caller may have begun to work on it.
        Without a message the status is MESSAGE_NOT_FOUND, as from RocketMQ's proxy. Libraries take this status for an
        empty list; only the simple consumer for Go returns it as an error.
        """
        await context.send_initial_metadata(())
        invisible_ms = _invisible_ms(request)
        received = deque(await self._received(request, caller, context, invisible_ms))
        tried: list[ReceivedMessage] = []
        try:
            yield wire.ReceiveMessageResponse(status=OK if received else NOTHING)
            while received:
                message = await to_client(received[0], caller, self._bodies, invisible_ms=invisible_ms)
                tried = [one := received.popleft()]
                if request.auto_renew:
                    self._renewals.add(caller.client, one.handle)
                yield wire.ReceiveMessageResponse(message=message)
                tried = []
            yield wire.ReceiveMessageResponse(delivery_timestamp=timestamp(self._clock.now_ms()))
        finally:
            if tried or received:
                self._give_back(tried, received)

    async def _received(
        self, request: wire.ReceiveMessageRequest, caller: Caller, context: Context, invisible_ms: int | None
    ) -> Sequence[ReceivedMessage]:
        tags, where = _filter(request.filter_expression)
        group = caller.group(request.group)
        note_group(context, group)
        receiving = asyncio.ensure_future(
            self._delivery.receive(
                group,
                caller.topic(request.message_queue.topic),
                broker=_broker(request.message_queue),
                count=min(max(request.batch_size, 1), BATCH_SIZE_MAX),
                invisible_ms=invisible_ms,
                tags=tags,
                where=where,
                wait_s=wait_s(_asked_s(request), context.time_remaining()),
                attempt_id=request.attempt_id,
            )
        )
        try:
            return receiving.result() if await self._canceller.unless(receiving) else ()
        except asyncio.CancelledError:  # the caller was cancelled just when the messages arrived
            if receiving.done() and not receiving.cancelled() and receiving.exception() is None:
                self._give_back((), receiving.result())
            raise

    def _give_back(self, tried: Iterable[ReceivedMessage], untried: Iterable[ReceivedMessage]) -> None:
        entries: list[SettleEntry] = []
        for some, is_untried in ((tried, False), (untried, True)):
            for one in some:
                self._renewals.drop(one.handle)
                entries.append(SettleEntry(handle=one.handle, nack=Nack(delay=Duration(), is_untried=is_untried)))
        task = asyncio.create_task(self._settle(entries), name="give messages back")
        self._giving_back.add(task)
        task.add_done_callback(self._giving_back.discard)

    async def _settle(self, entries: Sequence[SettleEntry]) -> None:
        with contextlib.suppress(ServiceError):  # then they are redelivered after their invisible time
            await self._delivery.settle(entries)

    async def ack(self, request: wire.AckMessageRequest) -> wire.AckMessageResponse:
        """Acknowledge messages. Each has its own outcome."""
        count = len(request.entries)
        if not 1 <= count <= ENTRY_COUNT_MAX:
            raise Refused("BAD_REQUEST", f"the request has {count} entries, and must have 1 to {ENTRY_COUNT_MAX}")
        handles = [entry.receipt_handle for entry in request.entries]
        outcomes = await self._delivery.ack(handles)
        for handle in handles:
            self._renewals.drop(handle)
        statuses = [OK if isinstance(outcome, str) else status_of(outcome) for outcome in outcomes]
        codes = {one.code for one in statuses}
        several = status("MULTIPLE_RESULTS", "each entry has a status of its own")
        entries = [
            wire.AckMessageResultEntry(message_id=entry.message_id, receipt_handle=entry.receipt_handle, status=one)
            for entry, one in zip(request.entries, statuses, strict=True)
        ]
        return wire.AckMessageResponse(status=statuses[0] if len(codes) == 1 else several, entries=entries)

    async def change(self, request: wire.ChangeInvisibleDurationRequest, caller: Caller) -> str:
        """Set the invisible time of a message. Returns its receipt handle from now on."""
        invisible_ms = milliseconds(request.invisible_duration)
        if not 0 <= invisible_ms <= INVISIBLE_MS_MAX:
            text = f"invisible_duration is {invisible_ms} ms, and must be 0 to {INVISIBLE_MS_MAX}"
            raise Refused("ILLEGAL_INVISIBLE_TIME", text)
        entry = SettleEntry(handle=request.receipt_handle)
        if retries.is_misread(invisible_ms, is_node=caller.is_node):
            entry.nack.SetInParent()
        elif invisible_ms:
            entry.extend.CopyFrom(Extend(invisible=from_milliseconds(invisible_ms)))
        else:
            entry.nack.CopyFrom(Nack(delay=Duration()))
        handle = await self._delivery.change(entry)
        self._renewals.drop(request.receipt_handle)
        return handle or request.receipt_handle

    async def bury(self, request: wire.ForwardMessageToDeadLetterQueueRequest) -> None:
        """Make a message a dead letter of its group."""
        await self._delivery.bury(SettleEntry(handle=request.receipt_handle, bury=Bury()))
        self._renewals.drop(request.receipt_handle)


def _broker(queue: wire.MessageQueue) -> str:
    """Return the broker of a queue that stands for the whole topic there. A named queue stands for all brokers.

    A push consumer receives from each broker. A simple consumer waits at the queue of a single call.
    """
    return queue.broker.name if queue.id == ANY_QUEUE else ""


def _invisible_ms(request: wire.ReceiveMessageRequest) -> int | None:
    """Return the invisible time in ms, None if the group's policy decides. Raises Refused."""
    if request.auto_renew:
        return round(INVISIBLE_S * 1000)
    if not request.HasField("invisible_duration"):
        return None
    invisible_ms = milliseconds(request.invisible_duration)
    if not 1 <= invisible_ms <= INVISIBLE_MS_MAX:
        text = f"invisible_duration is {invisible_ms} ms, and must be 1 to {INVISIBLE_MS_MAX}"
        raise Refused("ILLEGAL_INVISIBLE_TIME", text)
    return invisible_ms


def _asked_s(request: wire.ReceiveMessageRequest) -> float | None:
    if not request.HasField("long_polling_timeout"):
        return None
    return milliseconds(request.long_polling_timeout) / 1000


def _filter(expression: wire.FilterExpression) -> tuple[str, str]:
    """Return tags and a condition on properties. At least either passes all messages. Raises Refused."""
    text = expression.expression
    try:
        if expression.type != wire.FILTER_TYPE_SQL:
            return text_of(parse_tags(text, field="filter_expression")), ""
        return "*", parse_where(text, field="filter_expression").text
    except BadArgument as error:
        raise Refused("ILLEGAL_FILTER_EXPRESSION", str(error)) from error
