# SPDX-License-Identifier: Apache-2.0
"""ConsumeSession: a Consume stream.

A reading task reads the caller's steps, a delivering task waits for messages within the caller's credit, and settling
tasks settle entries. All of them put answers into a queue, from which the stream sends them. A caller that does not
read fills this queue: then no messages are received for it, and no steps are read from it. When the stream breaks,
messages in the queue and messages that could not be put into it are given back at once.
Callers: a single servicer call.
"""

import asyncio
from collections.abc import AsyncGenerator, Coroutine

from msgspec import Struct
from reput.delivery.v1 import delivery_service_pb2 as messages

from libs.formats import fields
from libs.formats.protobuf_wire import length_delimited
from libs.requests import arguments
from libs.requests.checks import check_range
from libs.requests.errors import BadArgument, ServiceError
from libs.runtime.rpc.connection_servicer import note_group, number_of
from services.delivery.engine.own.consumption import OPEN_COUNT_MAX, OPEN_SIZE_BYTES_MAX, Consumption
from services.delivery.engine.own.journal_owner import JournalOwner
from services.delivery.engine.receive.batch import Delivered
from services.delivery.engine.receive.settling import SettleRequest
from services.delivery.rpc.names import group_name
from services.delivery.rpc.policies import message_of as policy_message_of
from services.delivery.rpc.settling import invisible_ms_of, messages_of, outcome_of, settle_requests_of, wanted_of

Requests = AsyncGenerator[messages.ConsumeRequest, None]


class _Sending(Struct, frozen=True):
    """A serialized response with messages, and their handles."""

    response: bytes
    handles: list[str]


Answer = messages.ConsumeResponse | _Sending | Exception | None
"""A response that the stream sends, an error that ends it, or None for its end."""

TOPIC_COUNT_MAX = 100
WAITING_COUNT_MAX = 4
"""The most answers that wait to be sent."""
SETTLING_COUNT_MAX = 8
"""The most settle steps that wait for the log at once."""


class ConsumeSession:
    """The session of a Consume stream. `close` it in the end."""

    def __init__(self, owner: JournalOwner) -> None:
        self._owner = owner
        self._answers: asyncio.Queue[Answer] = asyncio.Queue(WAITING_COUNT_MAX)
        self._settling = asyncio.Semaphore(SETTLING_COUNT_MAX)
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_closing = False
        self._leaving: Answer = None
        """The answer that the stream is sending."""

    async def responses(
        self, requests: Requests, context: object
    ) -> AsyncGenerator[messages.ConsumeResponse | bytes, None]:
        """Yield answers until the caller has ended its side and has all outcomes. Raises the errors of its requests."""
        first = await anext(requests, None)
        if first is None:
            return
        if first.WhichOneof("step") != "begin":
            raise BadArgument("must be set in the first request", field="begin")
        consumption = self._consumption(first.begin, number_of(context))
        note_group(context, first.begin.group)
        engine = await self._owner.engine()
        policy = policy_message_of(engine.groups.policy(first.begin.group))
        yield messages.ConsumeResponse(begun=messages.ConsumeBegun(policy=policy))
        delivering = self._start(self._deliver(consumption))
        self._start(self._read(requests, consumption, delivering))
        self._start(self._until_stopped())
        while (answer := await self._answers.get()) is not None:
            if isinstance(answer, Exception):
                raise answer
            self._leaving = answer
            yield answer.response if isinstance(answer, _Sending) else answer
            self._leaving = None

    async def close(self) -> None:
        """End the session, and give back messages that were not sent."""
        self._is_closing = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        answers = [self._leaving]
        while not self._answers.empty():
            answers.append(self._answers.get_nowait())
        found = [answer for answer in answers if isinstance(answer, _Sending)]
        await self._give_back([handle for answer in found for handle in answer.handles])

    def _consumption(self, begin: messages.ConsumeBegin, connection_number: int) -> Consumption:
        count = len(begin.topics)
        if not 1 <= count <= TOPIC_COUNT_MAX:
            reason = f"must be 1 to {TOPIC_COUNT_MAX}"
            raise BadArgument(reason, field="begin.topics", value=count, limit=TOPIC_COUNT_MAX if count else 1)
        return Consumption(
            self._owner,
            group_name(begin.group),
            [arguments.topic(topic, f"begin.topics[{index}]") for index, topic in enumerate(begin.topics)],
            invisible_ms=invisible_ms_of(begin, "begin."),
            wanted=wanted_of(begin, "begin."),
            connection_number=connection_number,
        )

    def _start(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(self._run(work), name="consume")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _run(self, work: Coroutine[None, None, None]) -> None:
        """Run a task. Its error ends the stream."""
        try:
            await work
        except Exception as error:  # noqa: BLE001 - the stream raises it
            await self._answers.put(error)

    async def _read(self, requests: Requests, consumption: Consumption, delivering: asyncio.Task[None]) -> None:
        """Carry out the caller's steps until it ends its side, then end the stream."""
        async for request in requests:
            step = request.WhichOneof("step")
            if step == "credit":
                credit = request.credit
                count = check_range(credit.message_count, "credit.message_count", most=OPEN_COUNT_MAX)
                consumption.credit(count, check_range(credit.size_bytes, "credit.size_bytes", most=OPEN_SIZE_BYTES_MAX))
            elif step == "settle":
                settle_requests = settle_requests_of(request.settle.entries, "settle.")
                await self._settling.acquire()
                self._start(self._settle(request.settle.number, settle_requests))
            elif step == "stop":
                consumption.stop()
            else:
                reason = "one of credit, settle and stop must be set" if step is None else "is for the first request"
                raise BadArgument(reason, field=step or "step")
        self._is_closing = True
        consumption.stop()
        await delivering
        for _ in range(SETTLING_COUNT_MAX):
            await self._settling.acquire()
        await self._answers.put(None)

    async def _until_stopped(self) -> None:
        """End the stream when this process stops, also that of a caller that gives no credit."""
        await self._owner.stopped.wait()
        await self._owner.engine()  # raises the reason

    async def _deliver(self, consumption: Consumption) -> None:
        while delivered := await consumption.next():
            if self._is_closing:
                await self._give_back([one.handle for one in delivered])
            else:
                await self._send(delivered)
        await self._answers.put(messages.ConsumeResponse(stopped=messages.ConsumeStopped()))

    async def _send(self, delivered: list[Delivered]) -> None:
        batch = messages_of(delivered, fields.CONSUME_MESSAGES_MESSAGES)
        response = length_delimited(fields.CONSUME_RESPONSE_MESSAGES, batch)
        handles = [one.handle for one in delivered]
        try:
            await self._answers.put(_Sending(response, handles))
        except asyncio.CancelledError:
            await self._give_back(handles)
            raise

    async def _settle(self, number: int, settle_requests: list[SettleRequest]) -> None:
        try:
            outcomes = await (await self._owner.engine()).settling.settle(settle_requests)
        finally:
            self._settling.release()
        settled = messages.ConsumeSettled(number=number, outcomes=map(outcome_of, outcomes))
        await self._answers.put(messages.ConsumeResponse(settled=settled))

    async def _give_back(self, handles: list[str]) -> None:
        """Give back messages that were not sent, so that they are delivered again at once."""
        if not handles or not self._owner.is_owner:
            return
        try:
            engine = await self._owner.engine()
            await engine.settling.settle([SettleRequest(handle, "nack", 0, is_untried=True) for handle in handles])
        except ServiceError:
            return  # the messages are delivered again when their time is over
