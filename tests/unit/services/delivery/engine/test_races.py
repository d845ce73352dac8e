# SPDX-License-Identifier: Apache-2.0
"""Another call, a cancelled caller or a refusal between two waits of a call leaves nothing half done."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest

from libs.formats.records.delivery_record import DelaysCopied, DeliveryRecord, Place, Policy
from libs.machine.testing.manual_clock import ManualClock
from libs.requests.errors import DependencyUnavailable, TopicNotFound
from services.delivery.engine.dead_letters.writer import LETTER_AGAIN_MS
from services.delivery.engine.journal.copier import JOURNAL_GROUP, JOURNAL_PLACE
from services.delivery.engine.journal.replay import replay_journal
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.ports.messages import (
    DeadLetter,
    JournaledMessage,
    Measure,
    Part,
    Pulled,
    Wanted,
    Written,
)
from services.delivery.engine.receive.batch import Delivered
from services.delivery.engine.receive.settling import SettleOutcome, SettleRequest
from services.delivery.errors import AppendRefused, JournalLost
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.patience import LIMIT_S, eventually

GROUP, TOPIC = "g", "t"


class HeldStore(MemoryStore):
    """A store whose calls can be held, and whose log may refuse dead letters."""

    def __init__(self, queue_count: int = 2) -> None:
        super().__init__(queue_count)
        self.held_call = ""
        """The call that is held next: its name and its queue."""
        self.is_held, self.goes_on = asyncio.Event(), asyncio.Event()
        self.is_away = False
        """Whether pulls without a wait fail."""
        self.takes_letters = True
        self.gone_topics: set[str] = set()

    async def hold(self, name: str) -> None:
        """Wait if this call is held."""
        if name == self.held_call:
            self.held_call = ""
            self.is_held.set()
            await self.goes_on.wait()

    async def pull(self, topic: str, queue_id: int, queue_offset: int, **words: Any) -> Pulled:
        """See Index."""
        if topic in self.gone_topics:
            raise TopicNotFound(topic)
        if not words["wait_s"]:
            await self.hold(f"read {queue_id}")
            if self.is_away:
                raise DependencyUnavailable("indexer", "it is away")
        return await super().pull(topic, queue_id, queue_offset, **words)

    async def measures(self, parts: Sequence[Part]) -> Sequence[Measure]:
        """See Index."""
        found = await super().measures(parts)
        return [
            Measure(0, None) if part.topic in self.gone_topics else one for part, one in zip(parts, found, strict=True)
        ]

    async def stored_offset(self, group: str, topic: str, queue_id: int) -> int | None:
        """See Index."""
        await self.hold("stored offset")
        return await super().stored_offset(group, topic, queue_id)

    async def write(self, number: int, body: bytes, letters: Sequence[JournaledMessage], *, is_safe: bool) -> Written:
        """See Log."""
        if not self.takes_letters and any(isinstance(letter, DeadLetter) for letter in letters):
            raise AppendRefused("TOPIC_NOT_FOUND: there is no topic")
        return await super().write(number, body, letters, is_safe=is_safe)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def filled(*queues: int) -> HeldStore:
    """A store whose queues have these numbers of messages."""
    store = HeldStore(queue_count=len(queues))
    for queue_id, count in enumerate(queues):
        for number in range(count):
            await store.append(TOPIC, f"{queue_id}/{number}", queue_id=queue_id)
    return store


async def receive(engine: GroupEngine, count: int = 10, **words: Any) -> list[Delivered]:
    defaults = {"invisible_ms": 1_000, "wanted": Wanted(), "wait_s": 0.0}
    return await engine.receive(GROUP, TOPIC, count=count, **(defaults | words))


async def received(engine: GroupEngine, count: int) -> list[str]:
    """Receive until `count` messages came."""
    found: list[str] = []
    async with asyncio.timeout(LIMIT_S):
        while len(found) < count:
            found += [one.message for one in await receive(engine, count - len(found), wait_s=LIMIT_S)]
    return sorted(found)


def feeds() -> list[str]:
    """The names of the tasks that read ahead."""
    return [task.get_name() for task in asyncio.all_tasks() if task.get_name().startswith("feed of ")]


@asynccontextmanager
async def held(store: HeldStore, name: str) -> AsyncIterator[None]:
    """Hold a call, which began before, within the block."""
    async with asyncio.timeout(LIMIT_S):
        await store.is_held.wait()
    assert not store.held_call, f"{name} is not held"
    try:
        yield
    finally:
        store.goes_on.set()


async def test_a_group_that_is_moved_back_while_it_receives_goes_back(clock: ManualClock) -> None:
    """Also for the next process: the journal has the receive's messages before the move."""
    store = await filled(4, 1)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        assert len(await received(engine, 5)) == 5
        clock.advance(1_000)
        store.held_call = "read 1"
        receiving = asyncio.create_task(receive(engine))
        async with held(store, "read 1"):
            moving = asyncio.create_task(engine.move(GROUP, TOPIC, {0: 0}))
            await eventually(lambda: engine.groups.queues(GROUP)[0].next == 0)
        await asyncio.gather(receiving, moving)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        assert [one for one in await received(engine, 4) if one.startswith("0/")] == ["0/0", "0/1", "0/2", "0/3"]


async def test_a_move_drops_what_was_read_ahead_of_all_queues_at_once(clock: ManualClock) -> None:
    """A receive during the stop of the first of many feeds gets no message that was read ahead before the move."""
    store = await filled(9, 9)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        first = [*await receive(engine, 4, wait_s=LIMIT_S), *await receive(engine, 4, wait_s=LIMIT_S)]
        await engine.settling.settle([SettleRequest(one.handle, "ack") for one in first])
        moving = asyncio.create_task(engine.move(GROUP, TOPIC, {0: 0, 1: 0}))
        await asyncio.sleep(0)
        assert [queue.next for queue in engine.groups.queues(GROUP)] == [0, 0]
        taken = [one.message for one in await receive(engine, 18)]
        await moving
        assert sorted(taken + await received(engine, 18 - len(taken))) == sorted(
            f"{queue_id}/{number}" for queue_id in range(2) for number in range(9)
        )


async def test_a_move_whose_caller_goes_is_whole(clock: ManualClock) -> None:
    """No queue continues with messages that were read ahead before the move."""
    store = await filled(9, 9)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await receive(engine, 4, wait_s=LIMIT_S)
        await receive(engine, 4, wait_s=LIMIT_S)
        moving = asyncio.create_task(engine.move(GROUP, TOPIC, {0: 0, 1: 0}))
        await asyncio.sleep(0)
        assert [queue.next for queue in engine.groups.queues(GROUP)] == [0, 0]
        moving.cancel()
        await asyncio.gather(moving, return_exceptions=True)
        assert len(set(await received(engine, 18))) == 18


async def test_what_is_read_ahead_is_counted_down_whoever_goes(clock: ManualClock) -> None:
    """A caller that is cancelled during a deletion leaves no feed and no counted bytes."""
    store = await filled(9, 9)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await receive(engine, 1, wait_s=LIMIT_S)
        await receive(engine, 1, wait_s=LIMIT_S)
        await eventually(lambda: engine.subscriptions.read_ahead.size_bytes > 0)
        deleting = asyncio.create_task(engine.set_policy(GROUP, None))
        await asyncio.sleep(0)
        assert not engine.groups.is_known(GROUP)
        deleting.cancel()
        await asyncio.gather(deleting, return_exceptions=True)
        await eventually(lambda: not feeds() and engine.subscriptions.read_ahead.size_bytes == 0)


async def test_a_group_that_is_deleted_while_it_receives_leaves_no_feed(clock: ManualClock) -> None:
    """The receive returns no message, or begins the group anew; the former group's feeds are gone."""
    store = await filled(4)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        assert len(await received(engine, 1)) == 1
        clock.advance(1_000)
        store.held_call = "read 0"
        receiving = asyncio.create_task(receive(engine))
        async with held(store, "read 0"):
            await engine.set_policy(GROUP, None)
            assert not feeds()
        await receiving
        await engine.set_policy(GROUP, Policy())
        await engine.set_policy(GROUP, None)
        await eventually(lambda: not feeds())


async def test_an_end_of_deliveries_leaves_no_feed_of_who_receives(clock: ManualClock) -> None:
    """A receive that still runs after the stop reads nothing ahead."""
    store = await filled(4)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        assert len(await received(engine, 1)) == 1
        clock.advance(1_000)
        store.held_call = "read 0"
        receiving = asyncio.create_task(receive(engine))
        async with held(store, "read 0"):
            await engine.stop()
        await asyncio.gather(receiving, return_exceptions=True)
        assert not feeds()


async def test_a_receive_that_begins_while_deliveries_end_reads_nothing_ahead(clock: ManualClock) -> None:
    """Nothing would stop its feeds any more: the receive fails, and its caller repeats it with the next owner."""
    store = await filled(4)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        store.held_call = "stored offset"
        waiting = asyncio.create_task(receive(engine, wait_s=LIMIT_S))
        async with held(store, "stored offset"):
            await engine.stop()
        assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], JournalLost)
        assert not feeds()


async def test_a_repeated_receive_that_fails_changes_nothing(clock: ManualClock) -> None:
    """The next repetition gets the same messages."""
    store = await filled(2, 2)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await received(engine, 4)
        clock.advance(1_000)
        first = await receive(engine, attempt_id="a")
        assert len(first) == 4
        store.held_call = "read 1"
        repeating = asyncio.create_task(receive(engine, attempt_id="a"))
        async with held(store, "read 1"):
            store.is_away = True
        assert isinstance((await asyncio.gather(repeating, return_exceptions=True))[0], DependencyUnavailable)
        store.is_away = False
        again = await receive(engine, attempt_id="a")
        messages = [f"{queue_id}/{number}" for queue_id in range(2) for number in range(2)]
        assert [one.attempt for one in again] == [2] * 4
        # redeliveries come from the queues in turn, and in order from each queue
        assert sorted([one.message for one in again], key=lambda name: name[0]) == messages
        store.held = is_under_way, arrives = asyncio.Event(), asyncio.Event()
        repeating = asyncio.create_task(receive(engine, attempt_id="a"))
        await is_under_way.wait()
        repeating.cancel()
        await asyncio.gather(repeating, return_exceptions=True)
        arrives.set()
        assert await received(engine, 4) == messages


async def test_what_is_settled_beside_a_burial_is_in_the_journal(clock: ManualClock) -> None:
    """A caller that is cancelled during a burial has settled its other messages, also for the next process."""
    store = await filled(2)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        one, other = await receive(engine, wait_s=LIMIT_S)
        store.held_call = "read 0"
        settling = asyncio.create_task(
            engine.settling.settle([SettleRequest(one.handle, "ack"), SettleRequest(other.handle, "bury")])
        )
        async with held(store, "read 0"):
            await asyncio.sleep(0)
            settling.cancel()
            await asyncio.gather(settling, return_exceptions=True)
        record_count = len(store.journal_records)
        await engine.set_policy("another", Policy())
        assert len(store.journal_records) > record_count
    store.offsets.clear()  # so that only the journal is valid
    clock.advance(1_000)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        assert await received(engine, 1) == ["0/1"]
        assert await receive(engine) == []


Burial = tuple[asyncio.Task[list[SettleOutcome]], asyncio.Event]


async def begun_burial(store: HeldStore, engine: GroupEngine, handle: str) -> Burial:
    """Begin to bury a message. Returns the task, and the event that lets the log take its letter."""
    store.held = is_under_way, arrives = asyncio.Event(), asyncio.Event()
    task = asyncio.create_task(engine.settling.settle([SettleRequest(handle, "bury")]))
    async with asyncio.timeout(LIMIT_S):
        await is_under_way.wait()
    return task, arrives


@pytest.mark.parametrize("takes_letters", [True, False])
async def test_a_burial_that_is_repeated_hears_how_the_first_one_ends(takes_letters: bool, clock: ManualClock) -> None:
    """Also if the first caller is gone: its letter is being written, and no second letter."""
    store = await filled(2)
    store.takes_letters = takes_letters
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        for number, one in enumerate(await receive(engine, wait_s=LIMIT_S)):
            first, arrives = await begun_burial(store, engine, one.handle)
            second = asyncio.create_task(engine.settling.settle([SettleRequest(one.handle, "bury")]))
            if number:
                first.cancel()
                await asyncio.gather(first, return_exceptions=True)
            await asyncio.sleep(0)
            assert not second.done()
            arrives.set()
            (outcome,) = await second
            if takes_letters:
                assert outcome == SettleOutcome()
            else:
                assert "TOPIC_NOT_FOUND" in str(outcome.error)
            if not number:
                assert str((await first)[0].error) == str(outcome.error)
        letters = [found.message for queue in store.queues(f"%DLQ%{GROUP}") for found in queue]
        assert letters == (["0/0", "0/1"] if takes_letters else [])


async def test_a_burial_of_what_is_gone_that_is_repeated_is_answered_when_it_is_done(clock: ManualClock) -> None:
    """Then the log has the event that settles the message."""
    store = await filled(1)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        (one,) = await receive(engine, wait_s=LIMIT_S)
        store.min_offsets[TOPIC, 0] = 1
        first, arrives = await begun_burial(store, engine, one.handle)
        second = asyncio.create_task(engine.settling.settle([SettleRequest(one.handle, "bury")]))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not second.done()
        arrives.set()
        assert await first == await second == [SettleOutcome()]


async def test_a_dead_letter_that_the_log_does_not_take_stops_nobody(clock: ManualClock) -> None:
    """The letter is tried again, and the caller that buries gets the error; the log has it once in the end."""
    store = await filled(3)
    store.takes_letters = False
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy(attempts_max=1))
        (poison,) = await receive(engine, 1, wait_s=LIMIT_S)
        await engine.settling.settle([SettleRequest(poison.handle, "nack", delay_ms=0)])
        others = await receive(engine, wait_s=LIMIT_S)
        assert [one.message for one in others] == ["0/1", "0/2"]
        (outcome,) = await engine.settling.settle([SettleRequest(others[0].handle, "bury")])
        assert isinstance(outcome.error, DependencyUnavailable)
        assert "TOPIC_NOT_FOUND" in str(outcome.error)
        assert (await engine.settling.settle([SettleRequest(others[1].handle, "ack")]))[0].error is None
        assert owner.began_count == 1
        assert [lag.committed for lag in await engine.lags.of(GROUP)] == [0]
        store.takes_letters = True
        clock.advance(LETTER_AGAIN_MS - 1)
        assert await receive(engine) == []
        assert not any(store.queues(f"%DLQ%{GROUP}"))
        clock.advance(1)
        assert await receive(engine) == []
        letters = store.queues(f"%DLQ%{GROUP}")[0]
        await eventually(lambda: len(letters) == 2)
        assert [one.message for one in letters] == ["0/0", "0/1"]
        await eventually(lambda: engine.groups.queues(GROUP)[0].committed == 3)
    async with delivering(store, clock) as owner:
        assert await receive(await engine_of(owner)) == []


async def test_a_policy_that_is_set_while_a_group_begins_stays(clock: ManualClock) -> None:
    """RocketMQ's policy of the group does not replace it."""
    store = await filled(1)
    store.policies[GROUP] = Policy(attempts_max=2)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        store.held_call = "stored offset"
        receiving = asyncio.create_task(receive(engine, wait_s=LIMIT_S))
        async with held(store, "stored offset"):
            await engine.set_policy(GROUP, Policy(attempts_max=9))
        assert len(await receiving) == 1
        assert engine.groups.policy(GROUP).attempts_max == 9


async def test_a_topic_that_is_gone_hides_no_group(clock: ManualClock) -> None:
    """Lags are shown although messages of a topic that is gone are in flight."""
    store = await filled(1)
    await store.append("gone", "a")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        for topic in (TOPIC, "gone"):
            await engine.receive(GROUP, topic, count=1, invisible_ms=1_000, wanted=Wanted(), wait_s=LIMIT_S)
        store.gone_topics.add("gone")
        counts = {lag.place.topic: (lag.flight_count, lag.lag_ms is None) for lag in await engine.lags.of(GROUP)}
        assert counts == {TOPIC: (1, False), "gone": (1, True)}


async def test_a_group_that_begins_holds_up_no_other(clock: ManualClock) -> None:
    """While the index is slow to return its stored offset."""
    store = await filled(1)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        store.held_call = "stored offset"
        receiving = asyncio.create_task(receive(engine, wait_s=LIMIT_S))
        async with held(store, "stored offset"), asyncio.timeout(LIMIT_S / 2):
            other = await engine.receive("other", TOPIC, count=1, invisible_ms=1, wanted=Wanted(), wait_s=LIMIT_S)
        assert [one.message for one in other] == [one.message for one in await receiving] == ["0/0"]


async def test_an_ack_that_comes_while_its_message_is_read_again_counts(clock: ManualClock) -> None:
    """A late ack that succeeds settles its message, also while this is read for the next delivery."""
    store = await filled(1)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        (late,) = await receive(engine, wait_s=LIMIT_S)
        clock.advance(1_000)
        store.held_call = "read 0"
        receiving = asyncio.create_task(receive(engine))
        async with held(store, "read 0"):
            assert (await engine.settling.settle([SettleRequest(late.handle, "ack")]))[0].error is None
        assert await receiving == []
        assert (await engine.lags.of(GROUP))[0].committed == 1


async def test_a_copy_of_the_journal_knows_what_is_buried_meanwhile(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A message that becomes a dead letter while a copy is written is settled for the next process, too."""
    store, write, place = await filled(1), MemoryStore.write, Place(GROUP, TOPIC, 0)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        (one,) = await receive(engine, 1, wait_s=LIMIT_S)
        buried: list[asyncio.Task[list[SettleOutcome]]] = []

        async def write_and_bury(
            number: int, body: bytes, letters: Sequence[JournaledMessage], *, is_safe: bool
        ) -> Written:
            if not buried and any(isinstance(one, DelaysCopied) for one in DeliveryRecord.decode(body).events):
                before = engine.groups.find(place).flight(0)  # type: ignore[union-attr]
                buried.append(asyncio.create_task(engine.settling.settle([SettleRequest(one.handle, "bury")])))
                await eventually(lambda: engine.groups.find(place).flight(0) != before)  # type: ignore[union-attr]
            return await write(store, number, body, letters, is_safe=is_safe)

        monkeypatch.setattr(store, "write", write_and_bury)
        store.segment_size_bytes = 1  # so that a copy is due at the next look
        await eventually(lambda: bool(buried) and buried[0].done() and JOURNAL_PLACE in store.offsets[JOURNAL_GROUP])
        assert [outcome.error for outcome in buried[0].result()] == [None]
        owner, last = DeliveryRecord.decode(store.journal_records[-1][1]).owner, len(store.journal_records) - 1
        reading = await replay_journal(store, owner, start=store.offsets[JOURNAL_GROUP][JOURNAL_PLACE], began=last)
        queue = reading.groups.find(place)
        assert queue is not None
        assert queue.is_settled(0)
    assert [found.message for letters in store.queues(f"%DLQ%{GROUP}") for found in letters] == ["0/0"]
