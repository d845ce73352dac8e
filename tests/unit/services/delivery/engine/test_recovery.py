# SPDX-License-Identifier: Apache-2.0
"""The state after a process died, lost its journal or was replaced: all answered changes, and nothing else."""

import asyncio
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from libs.formats.records import delivery_record
from libs.formats.records.delivery_record import Began, DeliveryRecord, Policy
from libs.formats.records.transaction_record import COMMIT
from libs.machine.testing.manual_clock import ManualClock
from libs.requests.errors import DependencyUnavailable
from services.delivery.engine.journal import replay as loading
from services.delivery.engine.journal.copier import JOURNAL_GROUP as JOURNAL
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.own.journal_owner import JournalOwner
from services.delivery.engine.ports.messages import Wanted
from services.delivery.engine.receive.batch import Delivered
from services.delivery.engine.receive.settling import SettleRequest
from services.delivery.errors import JournalLost, NotOwner
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.patience import LIMIT_S, eventually

GROUP, TOPIC = "g", "t"
LOST = (JournalLost, DependencyUnavailable, NotOwner)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def filled(count: int) -> MemoryStore:
    store = MemoryStore(queue_count=1)
    store.queues(TOPIC)
    for number in range(count):
        await store.append(TOPIC, f"m{number}", key=number % 3 + 1)
    return store


async def receive(engine: GroupEngine, count: int = 10, wait_s: float = LIMIT_S) -> list[Delivered]:
    return await engine.receive(GROUP, TOPIC, count=count, invisible_ms=1_000, wanted=Wanted("*"), wait_s=wait_s)


async def ack(engine: GroupEngine, delivered: Sequence[Delivered]) -> None:
    for outcome in await engine.settling.settle([SettleRequest(one.handle, "ack") for one in delivered]):
        if outcome.error is not None:
            raise outcome.error


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


class Run:
    """Random receives, settlements and faults from a seed, and the rules that always hold."""

    def __init__(self, seed: int, clock: ManualClock) -> None:
        self.chance = random.Random(seed)
        self.clock = clock
        self.acked: set[str] = set()
        """Messages whose ack succeeded."""
        self.maybe: set[str] = set()
        """Messages whose ack was sent, with or without an answer."""
        self.got: Counter[str] = Counter()
        self.held: list[Delivered] = []

    async def step(self, store: MemoryStore, owner: JournalOwner) -> None:
        engine = await engine_of(owner)
        match self.chance.randrange(8):
            case 0 | 1 | 2:
                self._see(await receive(engine, self.chance.randint(1, 4), wait_s=0.01))
            case 3 | 4 if self.held:
                one = self.held.pop(self.chance.randrange(len(self.held)))
                self.maybe.add(one.message)
                (outcome,) = await engine.settling.settle([SettleRequest(one.handle, "ack")])
                if outcome.error is None:
                    self.acked.add(one.message)
            case 5 if self.held:
                one = self.held.pop()
                await engine.settling.settle([SettleRequest(one.handle, "nack", self.chance.choice([0, 500]))])
            case 6:
                self.clock.advance(self.chance.choice([100, 1_000, 5_000]))
            case 7:
                which = self.chance.choice(["lost_answers", "refused_writes", "none", "none"])
                if which != "none":
                    setattr(store, which, 1)

    def _see(self, delivered: Sequence[Delivered]) -> None:
        for one in delivered:
            assert one.message not in self.acked, f"{one.message} came again after its ack was answered"
            self.got[one.message] += 1
        self.held += delivered


@pytest.mark.parametrize("seed", range(24))
async def test_whatever_happens_nothing_is_lost_and_nothing_settled_comes_again(seed: int, clock: ManualClock) -> None:
    """Restarts, lost answers and refused writes at any time: all is delivered, nothing after its ack succeeded."""
    store, run = await filled(30), Run(seed, clock)
    if seed % 2:
        store.segment_size_bytes = 3_000
    for _ in range(4):
        async with delivering(store, clock) as owner:
            engine = await engine_of(owner)
            await engine.set_policy(GROUP, Policy(is_ordered=bool(seed % 3), attempts_max=1_000))
            for _ in range(25):
                try:
                    await run.step(store, owner)
                except LOST:
                    continue
    async with delivering(store, clock) as owner:
        store.lost_answers = store.refused_writes = 0
        await _drain(run, owner)
    everything = {f"m{number}" for number in range(30)}
    assert run.acked | run.maybe == everything
    assert set(run.got) == everything


@pytest.mark.parametrize("seed", range(100, 104))
async def test_many_at_once_share_everything(seed: int, clock: ManualClock) -> None:
    """Consumers receive, settle and are late at the same time, over a slow index: each message is settled."""
    store, run = await filled(40), Run(seed, clock)
    store.pull_delay_s = 0.003

    async def work(owner: JournalOwner) -> None:
        for _ in range(25):
            try:
                await run.step(store, owner)
            except LOST:
                continue
            await asyncio.sleep(run.chance.choice([0, 0.001, 0.004]))

    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy(is_ordered=bool(seed % 2), attempts_max=1_000))
        await asyncio.gather(*(work(owner) for _ in range(4)))
        store.lost_answers = store.refused_writes = 0
        store.pull_delay_s = 0.0
        await _drain(run, owner)
    everything = {f"m{number}" for number in range(40)}
    assert run.acked | run.maybe == everything
    assert set(run.got) == everything


async def _drain(run: Run, owner: JournalOwner) -> None:
    engine = await engine_of(owner)
    async with asyncio.timeout(LIMIT_S):
        while True:
            run.clock.advance(1_000)
            found = await receive(engine, 10, wait_s=0.02)
            run._see(found)
            await ack(engine, found)
            run.acked |= {one.message for one in found}
            run.maybe |= {one.message for one in found}
            lags = await engine.lags.of(GROUP)
            if not found and all(lag.committed == lag.max_queue_offset for lag in lags):
                return


async def test_a_log_that_follows_denies_no_transaction(clock: ManualClock) -> None:
    """Its Delivery and its log may lack a transaction that the leader has: the caller repeats the call elsewhere."""
    store = MemoryStore()
    async with delivering(store, clock) as owner:
        subject = (await engine_of(owner)).transactions
        store.is_following = True
        with pytest.raises((DependencyUnavailable, JournalLost)):
            await subject.end("x", "p", COMMIT)
