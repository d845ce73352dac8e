# SPDX-License-Identifier: Apache-2.0
"""A Consume stream over a log and an index in memory: a caller does not read, and a process stops."""

import asyncio
from collections.abc import AsyncGenerator

from reput.common.v1.message_pb2 import StoredMessage
from reput.delivery.v1 import delivery_service_pb2 as pb

from libs.machine.testing.manual_clock import ManualClock
from services.delivery.engine.ports.messages import Wanted
from services.delivery.errors import NotOwner
from services.delivery.rpc.consume_session import WAITING_COUNT_MAX, ConsumeSession
from services.delivery.rpc.log.stored import StoredContent
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.patience import LIMIT_S, eventually

GROUP, TOPIC = "g", "t"
COUNT = 20
HELD_COUNT = WAITING_COUNT_MAX + 3
"""Messages, each an answer: sent, being sent, waiting in the queue, and without room in the queue."""


async def filled() -> MemoryStore:
    store = MemoryStore(queue_count=1)
    for number in range(COUNT):
        await store.append(TOPIC, StoredContent(StoredMessage(body=b"%d" % number)))
    return store


async def following(responses: AsyncGenerator[pb.ConsumeResponse | bytes, None]) -> pb.ConsumeResponse:
    """The next response, which may be serialized."""
    response = await anext(responses)
    return pb.ConsumeResponse.FromString(response) if isinstance(response, bytes) else response


async def test_what_was_not_sent_goes_back_when_a_caller_goes() -> None:
    """A caller that does not read holds only HELD_COUNT messages; the end of its stream gives them back as untried.

    Also the message that is being sent, in which such a caller's stream is stuck.
    """
    store = await filled()
    async with delivering(store, ManualClock()) as owner:
        engine = await engine_of(owner)
        over = asyncio.Event()

        async def steps() -> AsyncGenerator[pb.ConsumeRequest, None]:
            yield pb.ConsumeRequest(begin=pb.ConsumeBegin(group=GROUP, topics=[TOPIC]))
            for count in range(1, COUNT + 1):
                yield pb.ConsumeRequest(credit=pb.ConsumeCredit(message_count=1, size_bytes=1 << 20))
                least = min(count, HELD_COUNT)
                await eventually(lambda: engine.groups.open_count >= least)  # noqa: B023 - it is awaited at once
            await over.wait()

        session = ConsumeSession(owner)
        responses = session.responses(steps(), None)
        assert (await following(responses)).WhichOneof("step") == "begun"
        (first,) = (await following(responses)).messages.messages
        (stuck,) = (await following(responses)).messages.messages
        await eventually(lambda: engine.groups.open_count == HELD_COUNT)
        await asyncio.sleep(0.3)
        assert engine.groups.open_count == HELD_COUNT
        await responses.aclose()
        await session.close()
        received = await engine.receive(GROUP, TOPIC, count=99, invisible_ms=None, wanted=Wanted(), wait_s=LIMIT_S)
        while len(received) < COUNT - 1:
            received += await engine.receive(GROUP, TOPIC, count=99, invisible_ms=None, wanted=Wanted(), wait_s=LIMIT_S)
        assert {one.attempt for one in received} == {1}
        bodies = {one.message.message.body for one in received}
        assert first.message.body not in bodies
        assert stuck.message.body in bodies


async def test_a_stop_of_the_process_ends_streams_at_once() -> None:
    """A caller without credit, and a caller that waits for messages, get NotOwner, and may call another process."""
    store = await filled()
    async with delivering(store, ManualClock()) as owner:
        await engine_of(owner)

        async def steps(count: int) -> AsyncGenerator[pb.ConsumeRequest, None]:
            yield pb.ConsumeRequest(begin=pb.ConsumeBegin(group="g2", topics=["empty"]))
            yield pb.ConsumeRequest(credit=pb.ConsumeCredit(message_count=count, size_bytes=1))
            await asyncio.Event().wait()

        store.queues("empty")
        sessions = [ConsumeSession(owner) for _ in range(2)]
        streams = [session.responses(steps(count), None) for count, session in enumerate(sessions)]
        for stream in streams:
            assert (await following(stream)).WhichOneof("step") == "begun"
        waiting = [asyncio.create_task(anext(stream)) for stream in streams]
        await asyncio.sleep(0.1)
        await owner.stop()
        async with asyncio.timeout(LIMIT_S):
            ends = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(end) for end in ends] == [NotOwner, NotOwner]
        for session in sessions:
            await session.close()
