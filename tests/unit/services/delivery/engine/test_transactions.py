# SPDX-License-Identifier: Apache-2.0
"""Transactions over a log and an index in memory: their ends, the checks, and the state after a crash."""

import asyncio
import contextlib

import pytest

from libs.formats.records.transaction_record import COMMIT, PARKED, RENEWED, ROLLBACK, Ended, Half
from libs.formats.state.system_topics import CHECKED_TOPIC, HALF_TOPIC
from libs.machine.testing.manual_clock import ManualClock
from libs.requests.errors import BadArgument, DependencyUnavailable, WindowFull
from services.delivery.engine.own.counters import Counters
from services.delivery.engine.transactions import table, transactions
from services.delivery.errors import TransactionEnded, TransactionNotFound, TransactionRefused
from tests.support.memory_delivery import MemoryStore, delivering
from tests.support.memory_transactions import Record
from tests.support.patience import LIMIT_S, eventually
from tests.support.transaction_calls import FIRST_MS, INTERVAL_MS, asked, of, seen


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture(autouse=True)
def patiently(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waits for the index are long, except in tests about these waits."""
    monkeypatch.setattr(transactions, "INDEXED_WAIT_S", LIMIT_S)


async def test_a_message_is_seen_when_it_is_committed(clock: ManualClock) -> None:
    """Consumers see a message only after its commit, never after a rollback; a repeated end has the same answer."""
    store = MemoryStore()
    async with delivering(store, clock) as owner:
        subject = await of(owner)
        await store.transactions.begin("a")
        offset_id = await store.transactions.begin("b")
        assert seen(store) == []
        assert await subject.end("a", "p", COMMIT) is False
        assert await subject.end(offset_id, "", ROLLBACK) is False
        assert seen(store) == ["a"]
        assert await subject.end("a", "p", COMMIT) is True
        assert await subject.end("b", "p", ROLLBACK) is True
        assert await subject.end(offset_id, "p", ROLLBACK) is True
        for name, how, before in (("a", ROLLBACK, COMMIT), ("b", COMMIT, ROLLBACK)):
            with pytest.raises(TransactionEnded) as refused:
                await subject.end(name, "p", how)
            assert refused.value.ended_as == before
        assert seen(store) == ["a"]


async def test_what_ended_is_known_to_the_next_process_and_long_after(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer is the same after a restart, whether the end is read again or looked up by its key."""
    store = MemoryStore()
    async with delivering(store, clock) as owner:
        subject = await of(owner)
        await store.transactions.begin("a")
        await subject.end("a", "p", COMMIT)
        await subject.run_maintenance()
    assert store.transactions.stored == (1, 1)
    async with delivering(store, clock) as owner:
        subject = await of(owner)
        assert subject.table.how_ended("a") == COMMIT
        await store.transactions.begin("a")  # it came late
        await eventually(lambda: subject.table.read_to == 2)
        await subject.run_maintenance()
    monkeypatch.setattr(table, "ENDED_COUNT_MAX", 0)
    async with delivering(store, clock) as owner:
        subject = await of(owner)
        assert subject.table.how_ended("a") is None
        assert await subject.end("a", "p", COMMIT) is True
        with pytest.raises(TransactionEnded):
            await subject.end("a", "p", ROLLBACK)
        store.transactions.forgets_ends = True
        with pytest.raises(TransactionNotFound):
            await subject.end("a", "p", COMMIT)
    assert seen(store) == ["a"]


async def test_ends_of_one_moment_agree(clock: ManualClock) -> None:
    """If many ends come at once, the first is valid, and contrary ends fail with TransactionEnded."""
    store = MemoryStore()
    async with delivering(store, clock) as owner:
        subject = await of(owner)
        await store.transactions.begin("a")
        store.write_delay_s = 0.01
        ends = (subject.end("a", "p", how) for how in (COMMIT, COMMIT, ROLLBACK))
        first, second, third = await asyncio.gather(*ends, return_exceptions=True)
        assert (first, second, type(third)) == (False, True, TransactionEnded)
    assert seen(store) == ["a"]


async def test_an_end_whose_caller_goes_happens_once(clock: ManualClock) -> None:
    """A caller that does not wait for the log leaves nothing half done: the next end is a repetition."""
    store = MemoryStore()
    async with delivering(store, clock) as owner:
        subject = await of(owner)
        await store.transactions.begin("a")
        store.write_delay_s = 0.05
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.02):
                await subject.end("a", "p", COMMIT)
        assert await subject.end("a", "p", COMMIT) is True
    assert seen(store) == ["a"]


async def test_producers_are_asked_in_time_and_not_for_ever(clock: ManualClock) -> None:
    """First after six seconds, then each 30 s, each time a single member of the group; in the end it is parked."""
    store = MemoryStore()
    async with delivering(store, clock, transaction_check_count_max=2) as owner:
        subject = await of(owner)
        await store.transactions.begin("a", has_id=False)
        await eventually(lambda: subject.table.count == 1)
        clock.advance(FIRST_MS - 1)
        await subject.run_maintenance()
        assert await asked(subject, wait_s=0) == []
        clock.advance(1)
        await subject.run_maintenance()
        assert await asked(subject, "other", wait_s=0) == []
        (name,) = await asked(subject)
        assert await asked(subject, wait_s=0) == []  # a single producer was asked
        assert name == f"{0:032X}"
        clock.advance(INTERVAL_MS)
        await subject.run_maintenance()
        assert await asked(subject) == [name]
        clock.advance(INTERVAL_MS)
        await subject.run_maintenance()
        assert subject.table.count == 0
        with pytest.raises(TransactionEnded) as refused:
            await subject.end(name, "p", COMMIT)
        assert refused.value.ended_as == PARKED
    assert seen(store) == []
    assert seen(store, "TRANS_CHECK_MAX_TIME_TOPIC") == ["a"]
    assert [one.how for one in store.transactions.ended] == [RENEWED, RENEWED, PARKED]


async def test_a_message_may_want_other_times(clock: ManualClock) -> None:
    """Its immunity time overrides the setting."""
    store = MemoryStore()
    async with delivering(store, clock) as owner:
        subject = await of(owner)
        await store.transactions.begin("a", CHECK_IMMUNITY_TIME_IN_SECONDS="60")
        await eventually(lambda: subject.table.count == 1)
        clock.advance(59_999)
        await subject.run_maintenance()
        assert await asked(subject, wait_s=0) == []
        clock.advance(1)
        await subject.run_maintenance()
        assert await asked(subject) == ["a"]
        assert await subject.end("a", "p", COMMIT) is False  # while it was appended again
    assert seen(store) == ["a"]


async def test_a_restart_goes_on_with_the_checks(clock: ManualClock) -> None:
    """The log has the number of checks and the producer group, so the next process asks again."""
    store = MemoryStore()
    async with delivering(store, clock) as owner:
        subject = await of(owner)
        await store.transactions.begin("a")
        await eventually(lambda: subject.table.count == 1)
        clock.advance(FIRST_MS)
        await subject.run_maintenance()
        await asked(subject)
        await subject.run_maintenance()
    assert store.transactions.stored == (1, 1)
    store.transactions.gone_count = 1  # the first half message is not needed any more
    async with delivering(store, clock) as owner:
        subject = await of(owner)
        assert [one.half.check_count for one in subject.table.all()] == [1]
        assert await asked(subject) == ["a"]
        assert await subject.end(f"{0:032X}", "p", COMMIT) is False
    assert seen(store) == ["a"]


async def test_a_message_that_is_sent_twice_is_one(clock: ManualClock) -> None:
    """A producer that repeats its send has a single transaction; a copy after its end is never seen."""
    store = MemoryStore()
    async with delivering(store, clock) as owner:
        subject = await of(owner)
        await store.transactions.begin("a")
        await store.transactions.begin("a")
        await eventually(lambda: subject.table.read_to == 2)
        assert subject.table.count == 1
        await subject.end("a", "p", COMMIT)
        await store.transactions.begin("a")
        await eventually(lambda: subject.table.read_to == 3)
        await eventually(lambda: subject.table.floors() == (3, 3))  # by the maintenance of the ownership alone
    async with delivering(store, clock) as owner:
        assert (await of(owner)).table.count == 0
    assert seen(store) == ["a"]
    assert {offset for one in store.transactions.ended for offset in one.half_offsets} == {0, 1, 2}


async def test_an_old_message_is_kept_from_retention(clock: ManualClock) -> None:
    """A half message in a segment that is not active any more is appended again, without a check."""
    store = MemoryStore()
    store.segment_size_bytes = 100_000
    async with delivering(store, clock) as owner:
        subject = await of(owner)
        await store.transactions.begin("a", CHECK_IMMUNITY_TIME_IN_SECONDS="600")
        await eventually(lambda: subject.table.count == 1)
        due_ms = subject.table.all()[0].due_ms
        store.end += 100_000
        await subject.run_maintenance()
        await eventually(lambda: subject.table.all()[0].half.queue_offset == 1)
        store.transactions.gone_count = 1
        (one,) = subject.table.all()
        assert (one.half.check_count, one.due_ms) == (0, due_ms)
        assert await asked(subject, wait_s=0) == []
        await subject.end("a", "p", COMMIT)
    assert seen(store) == ["a"]


async def test_an_open_transaction_needs_nobody_who_calls(clock: ManualClock) -> None:
    """A process that finds a half message begins without a call, so retention does not remove the half message."""
    store = MemoryStore()
    store.segment_size_bytes = 100_000
    await store.transactions.begin("a", CHECK_IMMUNITY_TIME_IN_SECONDS="600")
    store.end += 100_000
    async with delivering(store, clock):
        await eventually(lambda: len(store.transactions.records) == 2)


async def test_an_index_that_fails_once_forgets_nobody(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Producers are also asked about transactions that were due together with a message that could not be read."""
    monkeypatch.setattr(transactions, "TEND_SIZE_BYTES", 100)
    store = MemoryStore()
    async with delivering(store, clock) as owner:
        subject = await of(owner)
        for name in ("a", "b", "c"):
            await store.transactions.begin(name)
        await eventually(lambda: subject.table.count == 3)
        message = store.transactions.message

        async def fails(_: Half) -> Record:
            raise DependencyUnavailable("indexer", "it is away")

        store.transactions.message = fails  # type: ignore[method-assign]
        clock.advance(FIRST_MS)
        with pytest.raises(DependencyUnavailable):
            await subject.run_maintenance()
        store.transactions.message = message  # type: ignore[method-assign]
        clock.advance(transactions.AGAIN_MS)
        await subject.run_maintenance()
        await eventually(lambda: subject.table.read_to == 6)
        assert sorted(await asked(subject)) == ["a", "b", "c"]


async def test_an_end_does_not_wait_for_ever_for_what_was_appended_again(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its caller gets the error that the index is behind, and the end has no later effect."""
    store = MemoryStore()
    async with delivering(store, clock) as owner:
        subject = await of(owner)
        await store.transactions.begin("a")
        await eventually(lambda: subject.table.count == 1)
        store.transactions.seen_count = 1
        clock.advance(FIRST_MS)
        await subject.run_maintenance()
        monkeypatch.setattr(transactions, "INDEXED_WAIT_S", 0.3)
        with pytest.raises(DependencyUnavailable, match="transaction a"):
            await subject.end("a", "p", COMMIT)
        store.transactions.seen_count = None
        await store.tell()
        monkeypatch.setattr(transactions, "INDEXED_WAIT_S", LIMIT_S)
        assert await subject.end("a", "p", COMMIT) is False


async def test_a_message_that_is_gone_is_rolled_back(clock: ManualClock) -> None:
    """A half message that is gone from the log can't be committed."""
    store = MemoryStore()
    async with delivering(store, clock) as owner:
        subject = await of(owner)
        await store.transactions.begin("a")
        await eventually(lambda: subject.table.count == 1)
        store.transactions.gone_count = 1
        with pytest.raises(TransactionNotFound):
            await subject.end("a", "p", COMMIT)
        assert subject.table.count == 0


async def test_a_log_that_does_not_take_it_leaves_it_open_and_others_go_on(clock: ManualClock) -> None:
    """Only the producer of a message to a topic that is gone gets the error."""
    store = MemoryStore()
    store.transactions.refused_topics.add("gone")
    async with delivering(store, clock) as owner:
        subject = await of(owner)
        await store.transactions.begin("a", topic="gone")
        await store.transactions.begin("b")
        await eventually(lambda: subject.table.count == 2)
        refused, done = await asyncio.gather(
            subject.end("a", "p", COMMIT), subject.end("b", "p", COMMIT), return_exceptions=True
        )
        assert isinstance(refused, TransactionRefused)
        assert done is False
        assert owner.began_count == 1
        assert [one.half.id for one in subject.table.all()] == ["a"]
        assert await subject.end("a", "p", ROLLBACK) is False
    assert seen(store) == ["b"]


async def test_a_half_message_without_room_is_parked(clock: ManualClock) -> None:
    """An older version stored it so large that it can't be appended again: no producer is asked, and it is parked."""
    store = MemoryStore()
    store.transactions.refused_topics.add(HALF_TOPIC)
    async with delivering(store, clock) as owner:
        subject = await of(owner)
        await store.transactions.begin("a")
        await eventually(lambda: subject.table.count == 1)
        await eventually(lambda: subject.table.count == 0 or (clock.advance(1_000), False)[1])
        counters = Counters(owner).transactions()
    assert (counters.parked_total, counters.checked_total) == (1, 0)
    assert seen(store, CHECKED_TOPIC) == ["a"]


async def test_what_is_wrong_is_named(clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another group, an unknown id, an index that is behind, too many that are open."""
    store = MemoryStore()
    async with delivering(store, clock, transaction_count_max=1) as owner:
        subject = await of(owner)
        await store.transactions.begin("a")
        with pytest.raises(BadArgument) as refused:
            await subject.end("a", "q", COMMIT)
        assert refused.value.field == "producer_group"
        with pytest.raises(TransactionNotFound):
            await subject.end("never", "p", COMMIT)
        await store.transactions.begin("b")
        with pytest.raises(WindowFull, match="transactions that are open"):
            await subject.end("b", "p", COMMIT)
        await subject.end("a", "p", ROLLBACK)
        await subject.end("b", "p", COMMIT)
        store.transactions.seen_count = 2
        await store.transactions.begin("c")
        monkeypatch.setattr(transactions, "INDEXED_WAIT_S", 0.3)
        with pytest.raises(DependencyUnavailable):
            await subject.end("c", "p", COMMIT)
        store.transactions.seen_count = None
        await store.tell()
        monkeypatch.setattr(transactions, "INDEXED_WAIT_S", LIMIT_S)
        await subject.end("c", "p", COMMIT)
    assert seen(store) == ["b", "c"]


async def test_what_rocketmq_ended_is_ended(clock: ManualClock) -> None:
    """Its end records do not say how; a half message that RocketMQ appended again is the same transaction."""
    store = MemoryStore()
    store.transactions.now_ms = clock.now_ms
    await store.transactions.begin("a")
    await store.transactions.begin("a", TRAN_PREPARED_QUEUE_OFFSET="0", TRANSACTION_CHECK_TIMES="1")
    await store.transactions.begin("b")
    store.transactions.ended.append(Ended(0, (0,), (), ""))
    async with delivering(store, clock) as owner:
        subject = await of(owner)
        assert [one.half.id for one in subject.table.all()] == ["b"]
        with pytest.raises(TransactionEnded) as refused:
            await subject.end("a", "p", COMMIT)
        assert refused.value.ended_as == "unknown"
        await subject.run_maintenance()
    assert {offset for one in store.transactions.ended for offset in one.half_offsets} == {0, 1}
