# SPDX-License-Identifier: Apache-2.0
"""The state after a process died, lost its journal or was replaced: all answered changes, and nothing else."""

import asyncio

import pytest

from libs.formats.records import delivery_record
from libs.formats.records.delivery_record import Began, DeliveryRecord, Policy
from libs.formats.records.transaction_record import COMMIT
from libs.machine.testing.manual_clock import ManualClock
from libs.requests.errors import DependencyUnavailable
from services.delivery.engine.journal import replay as loading
from services.delivery.engine.journal.copier import JOURNAL_GROUP as JOURNAL
from services.delivery.errors import JournalLost, NotOwner
from tests.support.group_calls import GROUP, ack, filled, receive
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.patience import eventually


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def test_a_new_process_knows_what_was_answered(clock: ManualClock) -> None:
    """Policies, acks and deliveries outlive the process, and handles are valid for its successor."""
    store = await filled(4)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy(attempts_max=5))
        found = await receive(engine, 3)
        await ack(engine, found[:1])
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        assert engine.groups.policy(GROUP).attempts_max == 5
        await ack(engine, found[1:2])  # a handle of the former process
        assert [one.message for one in await receive(engine)] == ["m3"]
        clock.advance(1_000)
        assert {one.message: one.attempt for one in await receive(engine)} == {"m2": 2, "m3": 2}


async def test_a_lost_answer_is_looked_up_in_the_log(clock: ManualClock) -> None:
    """An event whose answer was lost is valid if it is in the log."""
    store = await filled(2)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        found = await receive(engine)
        await eventually(lambda: b'["edge",1,true]' in store.journal_records[-1][1])  # nothing else is written
        store.lost_answers = 1
        with pytest.raises(JournalLost):
            await ack(engine, found[:1])
        engine = await engine_of(owner, began_count=2)
        clock.advance(1_000)
        assert [one.message for one in await receive(engine)] == ["m1"]  # the ack was stored


async def test_a_refused_event_did_not_happen(clock: ManualClock) -> None:
    """An event that the log refused has no effect."""
    store = await filled(2)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        found = await receive(engine)
        store.refused_writes = 1
        with pytest.raises(DependencyUnavailable):
            await ack(engine, found)
        engine = await engine_of(owner, began_count=2)
        await ack(engine, found)
        clock.advance(1_000)
        assert await receive(engine, wait_s=0) == []


async def test_of_two_processes_the_last_one_delivers(clock: ManualClock) -> None:
    """A process that was replaced settles nothing, and does no harm."""
    store = await filled(4)
    async with delivering(store, clock) as one:
        former = await engine_of(one)
        found = await receive(former, 2)
        async with delivering(store, clock) as other:
            latter = await engine_of(other)
            with pytest.raises(JournalLost, match="another process"):
                await ack(former, found[:1])
            await one.stop()
            clock.advance(1_000)
            assert {message.message for message in await receive(latter)} >= {"m0", "m1"}
            assert other.began_count == 1


async def test_an_append_that_arrives_after_the_next_process_has_begun(clock: ManualClock) -> None:
    """The log refuses it, so it has neither its events nor its messages."""
    store = await filled(2)
    async with delivering(store, clock) as one:
        former = await engine_of(one)
        found = await receive(former, 1)
        await eventually(lambda: b'["edge",1,true]' in store.journal_records[-1][1])  # nothing else is written
        store.held = is_under_way, arrives = asyncio.Event(), asyncio.Event()
        acknowledging = asyncio.create_task(ack(former, found))
        await is_under_way.wait()
        async with delivering(store, clock) as other:
            latter = await engine_of(other)
            count = len(store.journal_records)
            arrives.set()
            with pytest.raises(JournalLost, match="another process"):
                await acknowledging
            assert not any(b'["settled"' in body for _, body in store.journal_records)
            await ack(latter, found)
            assert len(store.journal_records) > count
            assert other.began_count == 1
            await one.stop()


async def test_the_journal_is_read_up_to_the_own_record(monkeypatch: pytest.MonkeyPatch) -> None:
    """A later record of another owner, another record in its place after a cut, and an index that lacks it."""
    monkeypatch.setattr(loading, "INDEXED_WAIT_S", 0.01)
    store = MemoryStore()
    for number, owner in enumerate("ab"):
        await store.write(number, DeliveryRecord(owner=owner, events=(Began(owner),)).encode(), (), is_safe=True)
    await loading.replay_journal(store, "a", start=0, began=0)
    with pytest.raises(JournalLost, match="record 1 of the journal is another one"):
        await loading.replay_journal(store, "a", start=0, began=1)
    with pytest.raises(DependencyUnavailable, match="it does not have record 2 of the journal yet"):
        await loading.replay_journal(store, "a", start=0, began=2)


@pytest.mark.parametrize(
    "later",
    [
        b'{"format":2,"owner":"o","events":[["settled",["g","t",0],[0]]]}',
        b'{"format":1,"owner":"o","events":[["settled",["g","t",0],[0]],["renamed","g","h"]]}',
        b"not JSON",
    ],
)
async def test_a_record_that_this_version_cannot_read_ends_the_start(
    clock: ManualClock, caplog: pytest.LogCaptureFixture, later: bytes
) -> None:
    """An acknowledgement beside an unknown event is never lost: nothing is delivered until an operator decides."""
    store = await filled(2)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await ack(engine, await receive(engine, 1))
    unread = len(store.journal_records)
    await store.write(store.next, later, (), is_safe=True)
    async with delivering(store, clock) as owner:
        with pytest.raises(NotOwner, match=f"record at queue offset {unread} can't be read"):
            await owner.engine()
        with pytest.raises(NotOwner, match=f"journal_skip_below = {unread + 1} accepts that"):
            await owner.engine()
        assert not owner.is_owner
    assert caplog.text.count(f"the journal's record at queue offset {unread} can't be read") == 1
    async with delivering(store, clock, journal_skip_below=unread + 1) as owner:
        engine = await engine_of(owner)
        assert [one.message for one in await receive(engine, 2)] == ["m1"]


async def test_a_journal_with_a_later_format_goes_on_in_it(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """A version writes the former format until a record in the later format, which it can read, is in the journal."""

    class LaterRecord(DeliveryRecord, frozen=True, kw_only=True):
        """A record with a field that format 1 lacks."""

        note: str = ""

    monkeypatch.setattr(delivery_record, "DECODERS", {1: DeliveryRecord, 2: LaterRecord})
    store = await filled(2)
    async with delivering(store, clock) as owner:
        await ack(await engine_of(owner), await receive(await engine_of(owner), 1))
    assert {DeliveryRecord.decode(body).format for _, body in store.journal_records} == {1}
    await store.write(store.next, b'{"format":2,"owner":"o","events":[],"note":"later"}', (), is_safe=True)
    before = len(store.journal_records)
    async with delivering(store, clock) as owner:
        await ack(await engine_of(owner), await receive(await engine_of(owner), 1))
    written = [DeliveryRecord.decode(body).format for _, body in store.journal_records[before + 1 :]]
    assert set(written) == {2}


async def test_a_copy_is_enough(clock: ManualClock) -> None:
    """Records before a whole copy are not needed."""
    store = await filled(6)
    store.segment_size_bytes = 2_000
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy(is_ordered=True, attempts_max=9))
        found = await receive(engine)
        await ack(engine, found[:1])
        before = [queue.copied() for queue in engine.groups.all_queues()]
        await asyncio.sleep(1.2)  # a turn of the maintenance
        assert before == [queue.copied() for queue in engine.groups.all_queues()]
    begin = store.offsets[JOURNAL][JOURNAL, 0]
    assert begin > 0
    store.min_journal_offset = begin
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        assert [queue.copied() for queue in engine.groups.all_queues()] == before
        assert engine.groups.policy(GROUP) == Policy(is_ordered=True, attempts_max=9)


async def test_a_copy_without_an_end_is_none(clock: ManualClock) -> None:
    """With a copy that was not finished, the records before it are read."""
    store = await filled(6)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await receive(engine, 2)
        await eventually(lambda: (JOURNAL, 0) in store.offsets[JOURNAL])
        former = store.offsets[JOURNAL][JOURNAL, 0]
        store.segment_size_bytes = 100
        await eventually(lambda: store.offsets[JOURNAL][JOURNAL, 0] > former)
        before = [queue.copied() for queue in engine.groups.all_queues()]
    begin = store.offsets[JOURNAL][JOURNAL, 0]
    del store.journal_records[begin + 1 :]
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        assert [queue.copied() for queue in engine.groups.all_queues()] == before


async def test_a_log_that_follows_denies_no_transaction(clock: ManualClock) -> None:
    """Its Delivery and its log may lack a transaction that the leader has: the caller repeats the call elsewhere."""
    store = MemoryStore()
    async with delivering(store, clock) as owner:
        subject = (await engine_of(owner)).transactions
        store.is_following = True
        with pytest.raises((DependencyUnavailable, JournalLost)):
            await subject.end("x", "p", COMMIT)
