# SPDX-License-Identifier: Apache-2.0
"""The exact state of single messages at a group."""

import pytest
from reput.delivery.v1 import group_service_pb2 as pb

from libs.formats.records.delivery_record import Flight, Place, Policy, Took
from libs.machine.testing.manual_clock import ManualClock
from libs.requests.errors import BadArgument, BadTopicName
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.own.message_states import MessageState, Stage
from services.delivery.engine.ports.messages import Wanted
from services.delivery.engine.receive.batch import Delivered
from services.delivery.engine.receive.settling import SettleRequest
from services.delivery.engine.state.holders import Holders
from services.delivery.engine.state.queue import QueueState
from services.delivery.errors import GroupNotFound
from services.delivery.rpc.group_servicer import MESSAGE_COUNT_MAX, GroupServicer
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.patience import LIMIT_S, eventually

GROUP, TOPIC, CONNECTION = "g", "t", 7


async def receive(engine: GroupEngine, count: int, number: int = CONNECTION) -> list[Delivered]:
    return await engine.receive(
        GROUP,
        TOPIC,
        count=count,
        invisible_ms=30_000,
        wanted=Wanted(),
        wait_s=LIMIT_S,
        connection_number=number,
    )


async def test_every_stage_is_told_and_left() -> None:
    """A message is not delivered, held, in flight with its receiver, waits, dies and is settled, each exactly told."""
    store, clock = MemoryStore(queue_count=1), ManualClock()
    for number in range(5):
        await store.append(TOPIC, str(number), key=9 if number < 2 else 0)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)

        def state(offset: int) -> MessageState:
            return engine.message_states.of(GROUP, TOPIC, 0, offset)

        with pytest.raises(GroupNotFound):
            state(0)
        await engine.set_policy(GROUP, Policy(is_ordered=True, attempts_max=2))
        assert state(0).stage is Stage.NO_POSITION
        found = await receive(engine, 2)
        start_ms = clock.now_ms()
        assert state(0) == MessageState(Stage.IN_FLIGHT, 1, start_ms, start_ms + 30_000, CONNECTION)
        assert state(1) == MessageState(Stage.HELD, behind_queue_offset=0)
        assert state(4) == MessageState(Stage.NOT_DELIVERED, before_count=1)
        assert state(3) == MessageState(Stage.NOT_DELIVERED)
        await engine.settling.settle([SettleRequest(found[1].handle, "ack")])
        assert state(2).stage is Stage.SETTLED
        clock.advance(1_000)
        (outcome,) = await engine.settling.settle([SettleRequest(found[0].handle, "extend", 60_000)])
        now_ms = clock.now_ms()
        assert state(0) == MessageState(Stage.IN_FLIGHT, 1, now_ms, now_ms + 60_000, CONNECTION)
        await engine.settling.settle([SettleRequest(outcome.handle, "nack", 5_000)])
        assert state(0) == MessageState(Stage.WAITING, 1, None, clock.now_ms() + 5_000, CONNECTION)
        clock.advance(5_000)
        assert (await receive(engine, 1, 8))[0].attempt == 2
        assert (state(0).stage, state(0).attempt, state(0).connection_number) == (Stage.IN_FLIGHT, 2, 8)
        clock.advance(30_000)
        assert state(0).stage is Stage.DYING
        await eventually(lambda: state(0).stage is Stage.SETTLED)
        assert state(1) == MessageState(Stage.HELD)


async def test_a_lease_that_is_over_and_a_member_that_is_missing_are_told() -> None:
    """A message whose lease is over waits since then; the next owner knows all but the connection."""
    store, clock = MemoryStore(queue_count=1), ManualClock()
    await store.append(TOPIC, "0")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await receive(engine, 1)
        start_ms = clock.now_ms()
        clock.advance(30_000)
        assert engine.message_states.of(GROUP, TOPIC, 0, 0) == MessageState(
            Stage.WAITING, 1, None, start_ms + 30_000, CONNECTION
        )
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        assert engine.message_states.of(GROUP, TOPIC, 0, 0).connection_number == 0
        assert engine.message_states.of(GROUP, "other", 0, 0).stage is Stage.NO_POSITION


def test_holders_stay_within_their_bound_and_keep_messages_in_flight() -> None:
    """A message that stays in flight keeps its holder while thousands of others come and are settled."""
    holders, queue = Holders(count_max=4), QueueState(Place(GROUP, TOPIC, 0))
    stuck = Flight(0, 1, 1, 100)
    queue.apply(Took(queue.place, 1, (stuck,)))
    holders.note(CONNECTION, queue, [stuck])
    for offset in range(1, 100):
        holders.note(8, queue, [Flight(offset, 1, 1, 100)])
        assert len(holders) <= 4
    assert holders.of(queue, stuck) == CONNECTION
    assert holders.of(queue, Flight(0, 2, 5, 100)) == 0
    open_flights = [Flight(offset, 1, 1, 100) for offset in range(100, 110)]
    queue.apply(Took(queue.place, 110, tuple(open_flights)))
    holders.note(9, queue, open_flights)
    assert len(holders) == 4


PLACE: dict[str, object] = {"topic": TOPIC, "queue_id": 0, "queue_offset": 0}
BAD: tuple[tuple[dict[str, object], str], ...] = (
    ({"messages": []}, "messages"),
    ({"messages": [PLACE] * (MESSAGE_COUNT_MAX + 1)}, "messages"),
    ({"messages": [PLACE, PLACE | {"topic": "a/b"}]}, "messages[1].topic"),
    ({"messages": [PLACE | {"queue_id": -1}]}, "messages[0].queue_id"),
    ({"messages": [PLACE | {"queue_offset": -1}]}, "messages[0].queue_offset"),
    ({"group": "", "messages": [PLACE]}, "group"),
)


def request(**fields: object) -> pb.GetMessageStatesRequest:
    return pb.GetMessageStatesRequest(**{"group": GROUP, **fields})  # type: ignore[arg-type]


async def test_the_call_refuses_what_it_can_t_answer(subtests: pytest.Subtests) -> None:
    """Each bad request is refused by field; the most messages of a call are answered, in order."""
    store, clock = MemoryStore(queue_count=1), ManualClock()
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy())
        servicer = GroupServicer(owner, store, store)
        for fields, field in BAD:
            with subtests.test(field), pytest.raises((BadArgument, BadTopicName)) as refused:
                await servicer.GetMessageStates(request(**fields), None)
            assert refused.value.field == field
        most = [PLACE | {"queue_offset": number} for number in range(MESSAGE_COUNT_MAX)]
        answer = await servicer.GetMessageStates(request(messages=most), None)
        assert [one.stage for one in answer.states] == [pb.MESSAGE_STAGE_NO_POSITION] * MESSAGE_COUNT_MAX
