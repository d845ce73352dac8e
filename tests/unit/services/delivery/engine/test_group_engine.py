# SPDX-License-Identifier: Apache-2.0
"""GroupEngine over a log and an index in memory."""

import asyncio
from collections.abc import Sequence

import pytest

from libs.formats.records.delivery_record import Policy
from libs.machine.testing.manual_clock import ManualClock
from libs.requests.errors import TopicNotFound, WindowFull
from services.delivery.engine.own.counters import Counters
from services.delivery.engine.own.group_engine import STORE_INTERVAL_S, GroupEngine
from services.delivery.engine.own.journal_owner import REPLAY_WAIT_S
from services.delivery.engine.ports.messages import Wanted
from services.delivery.engine.receive.batch import Delivered
from services.delivery.engine.receive.settling import SettleOutcome, SettleRequest
from services.delivery.engine.state.handle import Handle
from services.delivery.errors import BadHandle, GroupNotFound, HandleOutdated, NotOwner
from tests.support.memory_delivery import MemoryStore, delivering, engine_of
from tests.support.patience import LIMIT_S, eventually

GROUP, TOPIC = "g", "t"


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


async def filled(*messages: str, keys: Sequence[int] = ()) -> MemoryStore:
    store = MemoryStore(queue_count=1)
    store.queues(TOPIC)
    for index, message in enumerate(messages):
        await store.append(TOPIC, message, key=keys[index] if keys else 0)
    return store


async def receive(
    engine: GroupEngine, count: int = 10, *, invisible_ms: int | None = None, tags: str = "*", wait_s: float = LIMIT_S
) -> list[Delivered]:
    return await engine.receive(
        GROUP, TOPIC, count=count, invisible_ms=invisible_ms, wanted=Wanted(tags), wait_s=wait_s
    )


def texts(delivered: Sequence[Delivered]) -> list[str]:
    return [one.message for one in delivered]


async def settle(
    engine: GroupEngine, verb: str, *delivered: Delivered, delay_ms: int | None = None
) -> list[SettleOutcome]:
    return await engine.settling.settle([SettleRequest(one.handle, verb, delay_ms) for one in delivered])  # type: ignore[arg-type]


async def test_messages_are_delivered_once_and_settled(clock: ManualClock) -> None:
    """A message has a single consumer at a time, and is not delivered again once it is settled."""
    store = await filled("a", "b", "c")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        first = await receive(engine, 2)
        second = await receive(engine)
        assert (texts(first), texts(second)) == (["a", "b"], ["c"])
        assert [one.attempt for one in first] == [1, 1]
        assert await settle(engine, "ack", *first, *second) == [SettleOutcome()] * 3
        assert await receive(engine, wait_s=0) == []
        (lag,) = await engine.lags.of(GROUP)
        assert (lag.committed, lag.next, lag.max_queue_offset, lag.flight_count) == (3, 3, 3, 0)


async def test_what_is_not_settled_comes_again_with_another_handle(clock: ManualClock) -> None:
    """After its time a message is delivered again, and the handle of the former delivery is outdated."""
    store = await filled("a", "b")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        (a, b) = await receive(engine, invisible_ms=1_000)
        await settle(engine, "ack", b)
        clock.advance(999)
        assert await receive(engine, wait_s=0) == []
        clock.advance(1)
        (again,) = await receive(engine)
        assert (again.message, again.attempt) == ("a", 2)
        (outcome,) = await settle(engine, "ack", a)
        assert isinstance(outcome.error, HandleOutdated)
        assert (await settle(engine, "ack", again))[0].error is None
        assert isinstance((await settle(engine, "ack", a))[0].error, HandleOutdated), (
            "another delivery was acknowledged"
        )


async def test_an_expired_message_can_be_settled_until_it_is_delivered_again(clock: ManualClock) -> None:
    """A late consumer settles its message if no other consumer has it."""
    store = await filled("a")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        (a,) = await receive(engine, invisible_ms=1)
        clock.advance(1_000)
        assert (await settle(engine, "ack", a))[0].error is None
        assert await receive(engine, wait_s=0) == []


async def test_nack_gives_back_by_delay_or_policy(clock: ManualClock) -> None:
    """A message is delivered again after the consumer's delay, or after the policy's delay for the attempt."""
    store = await filled("a")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy(backoffs_ms=(100, 500)))
        (a,) = await receive(engine)
        await settle(engine, "nack", a, delay_ms=0)
        (a,) = await receive(engine)
        await settle(engine, "nack", a)  # the second attempt: 500 ms
        clock.advance(499)
        assert await receive(engine, wait_s=0) == []
        clock.advance(1)
        (a,) = await receive(engine)
        assert a.attempt == 3


async def test_extend_gives_a_new_handle_and_more_time(clock: ManualClock) -> None:
    """A consumer that extends a delivery keeps the message, and only the new handle is valid."""
    store = await filled("a")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        (a,) = await receive(engine, invisible_ms=10)
        (outcome,) = await settle(engine, "extend", a, delay_ms=1_000)
        clock.advance(999)
        assert await receive(engine, wait_s=0) == []
        assert isinstance((await settle(engine, "ack", a))[0].error, HandleOutdated)
        (done,) = await engine.settling.settle([SettleRequest(outcome.handle, "ack")])
        assert done.error is None


async def test_a_message_that_was_given_back_too_often_goes_to_the_dead_letters_once(clock: ManualClock) -> None:
    """A failing message is tried as often as the policy says, becomes a dead letter once, and holds up no other."""
    store = await filled("poison", "b")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy(attempts_max=2))
        for _ in range(2):
            poison = (await receive(engine, 1))[0]
            assert poison.message == "poison"
            await settle(engine, "nack", poison, delay_ms=0)
        (b,) = await receive(engine)
        assert b.message == "b"
        await settle(engine, "ack", b)
        assert [one.message for one in store.queues("%DLQ%g")[0]] == ["poison"]
        (lag,) = await engine.lags.of(GROUP)
        assert lag.committed == 2


async def test_terminated_messages_are_no_dead_letters(clock: ManualClock) -> None:
    """A terminated message is settled, and nothing more."""
    store = await filled("a")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await settle(engine, "terminate", *await receive(engine))
        assert store.queues("%DLQ%g")[0] == []
        assert (await engine.lags.of(GROUP))[0].committed == 1


async def test_messages_of_an_ordering_key_come_one_after_the_other(clock: ManualClock) -> None:
    """The next message of a key waits until the message before is settled; other keys do not wait."""
    store = await filled("a1", "b1", "a2", "b2", "a3", keys=(1, 2, 1, 2, 1))
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy(is_ordered=True))
        first = await receive(engine)
        assert texts(first) == ["a1", "b1"]
        assert await receive(engine, wait_s=0) == []
        await settle(engine, "nack", first[0], delay_ms=100)
        await settle(engine, "ack", first[1])
        (b2,) = await receive(engine)
        assert b2.message == "b2"  # the other key is not held up
        clock.advance(100)
        (a1,) = await receive(engine)
        assert (a1.message, a1.attempt) == ("a1", 2)
        await settle(engine, "ack", a1)
        (a2,) = await receive(engine)
        await settle(engine, "ack", a2)
        assert texts(await receive(engine)) == ["a3"]


async def test_a_filter_passes_over_what_it_does_not_want(clock: ManualClock) -> None:
    """Messages that a filter does not let through are settled, so that the group goes on."""
    store = await filled("x1", "a1", "x2", "a2", "x3")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        found = await receive(engine, tags="a")
        assert texts(found) == ["a1", "a2"]
        await settle(engine, "ack", *found)
        assert await receive(engine, tags="a", wait_s=0) == []
        await engine.run_maintenance()
        assert (await engine.lags.of(GROUP))[0].committed == 5


async def test_a_receive_waits_for_a_message(clock: ManualClock) -> None:
    """A receive returns when a message is appended."""
    store = await filled()
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        waiting = asyncio.create_task(receive(engine, wait_s=LIMIT_S))
        await asyncio.sleep(0.05)
        await store.append(TOPIC, "late")
        assert texts(await waiting) == ["late"]


async def test_a_receiver_that_goes_while_it_is_answered_got_nothing(clock: ManualClock) -> None:
    """A message that was chosen for a caller that is gone is delivered to the next caller, as a first attempt."""
    store = await filled("a")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        assert await engine.receive(GROUP, TOPIC, count=1, invisible_ms=1, wanted=Wanted("b"), wait_s=0.05) == []
        await engine.move(GROUP, TOPIC, {0: 0})
        store.write_delay_s = 0.2
        receiving = asyncio.create_task(receive(engine, wait_s=LIMIT_S))
        await eventually(lambda: engine.groups.open_count > 0)
        receiving.cancel()
        (again,) = await receive(engine, wait_s=LIMIT_S)
        assert (again.message, again.attempt) == ("a", 1)
        await settle(engine, "ack", again)
        counters = Counters(owner).groups()
        assert (counters.is_owner, counters.groups_known, counters.messages_open) == (1, 1, 0)
        assert (counters.received_total, counters.settled_total, counters.taken_over_total) == (1, 1, 1)


async def test_a_paused_group_receives_nothing(clock: ManualClock) -> None:
    """A pause holds all messages back until it ends."""
    store = await filled("a")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy(GROUP, Policy(is_paused=True))
        waiting = asyncio.create_task(receive(engine, wait_s=LIMIT_S))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        await engine.set_policy(GROUP, Policy())
        assert texts(await waiting) == ["a"]


async def test_groups_begin_where_they_committed_or_at_an_end(clock: ManualClock) -> None:
    """A group continues at its committed offset; a new group begins at the beginning or the end, as its policy says."""
    store = await filled("a", "b", "c")
    store.offsets["committed"][TOPIC, 0] = 2
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy("from_end", Policy(from_end=True))
        seen = {}
        for group, wait_s in (("committed", LIMIT_S), ("from_end", 0.05), ("new", LIMIT_S)):
            found = await engine.receive(group, TOPIC, count=9, invisible_ms=None, wanted=Wanted("*"), wait_s=wait_s)
            seen[group] = texts(found)
        assert seen == {"committed": ["c"], "from_end": [], "new": ["a", "b", "c"]}


async def test_a_moved_group_reads_again(clock: ManualClock) -> None:
    """A move settles messages in flight, and delivery continues at the new offset."""
    store = await filled("a", "b", "c")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        (a, *_) = await receive(engine)
        await engine.move(GROUP, TOPIC, {0: 1})
        assert texts(await receive(engine)) == ["b", "c"]
        assert isinstance((await settle(engine, "ack", a))[0].error, HandleOutdated)


async def test_what_is_gone_from_the_log_is_settled(clock: ManualClock) -> None:
    """A message that retention removed holds up no other message."""
    store = await filled("a", "b")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await receive(engine, invisible_ms=1)
        store.min_offsets[TOPIC, 0] = 1
        clock.advance(10)
        assert texts(await receive(engine)) == ["b"]
        assert (await engine.lags.of(GROUP))[0].committed == 1


async def test_an_index_that_is_behind_settles_nothing_and_brings_nothing_back(clock: ManualClock) -> None:
    """While the index is built again, no message counts as gone, and no settled message is delivered again."""
    store = await filled("a", "b", "c")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        (a, _, _) = await receive(engine, invisible_ms=1)
        await settle(engine, "ack", a)
        clock.advance(10)
        store.indexed_count = 1
        await store.append(TOPIC, "d")
        assert await receive(engine, wait_s=0.5) == []
        assert (await engine.lags.of(GROUP))[0].waiting_count == 2
        store.indexed_count = None
        assert sorted(texts(await receive(engine, wait_s=LIMIT_S))) == ["b", "c"]
        assert texts(await receive(engine, wait_s=LIMIT_S)) == ["d"]


async def test_a_receive_has_a_size(clock: ManualClock) -> None:
    """For any number of messages, new or again, an answer has at most 8 MiB and a message."""
    store = await filled()
    for number in range(6):
        await store.append(TOPIC, f"large{number}", size_bytes=3 << 20)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        got: list[Delivered] = []
        while len(got) < 6:
            some = await receive(engine, invisible_ms=1, wait_s=LIMIT_S)
            assert 1 <= len(some) <= 3
            got += some
        clock.advance(10)
        assert len(await receive(engine, invisible_ms=60_000)) == 3
        assert len(await receive(engine, invisible_ms=60_000)) == 3


async def test_too_much_in_flight_is_refused(clock: ManualClock) -> None:
    """The memory for messages in flight has a limit, which is named."""
    store = await filled("a", "b", "c")
    async with delivering(store, clock, open_count_max=2) as owner:
        engine = await engine_of(owner)
        found = await receive(engine, 2)
        with pytest.raises(WindowFull, match="2"):
            await receive(engine)
        await settle(engine, "ack", found[0])
        assert texts(await receive(engine)) == ["c"]


async def test_a_queue_with_too_much_in_flight_gives_nothing_new(clock: ManualClock) -> None:
    """A single queue has at most queue_open_count_max messages in flight."""
    store = await filled("a", "b", "c")
    async with delivering(store, clock, queue_open_count_max=2) as owner:
        engine = await engine_of(owner)
        (a, b) = await receive(engine)
        assert (a.message, b.message) == ("a", "b")
        assert await receive(engine, wait_s=0) == []
        await settle(engine, "ack", a)
        assert texts(await receive(engine)) == ["c"]


async def test_bad_requests_are_told(clock: ManualClock) -> None:
    """Unknown topics, unknown groups and bad handles have different errors."""
    store = await filled("a")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        with pytest.raises(TopicNotFound, match="none"):
            await engine.receive(GROUP, "none", count=1, invisible_ms=None, wanted=Wanted("*"), wait_s=0)
        with pytest.raises(GroupNotFound, match="nobody"):
            await engine.lags.of("nobody")
        for text in ("", "x" * 2_000, "é", "AAAA", Handle("g", "t", 0, 0, 0).encode()[:-2]):
            assert isinstance((await engine.settling.settle([SettleRequest(text, "ack")]))[0].error, BadHandle)
        unknown = Handle("g", "t", 0, 0, 0).encode()
        assert isinstance((await engine.settling.settle([SettleRequest(unknown, "ack")]))[0].error, HandleOutdated)


async def test_a_deleted_group_begins_anew(clock: ManualClock) -> None:
    """Nothing is left of a deleted group."""
    store = await filled("a")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await receive(engine)
        await engine.set_policy(GROUP, None)
        assert engine.groups.names() == []
        assert texts(await receive(engine)) == ["a"]


async def test_nobody_delivers_while_the_log_follows(clock: ManualClock) -> None:
    """Deliveries begin when the log leads; before that, calls fail with the reason at once."""
    store = await filled("a")
    store.is_following = True
    async with delivering(store, clock) as owner:
        for _ in range(2):
            with pytest.raises(NotOwner, match="another"):
                async with asyncio.timeout(REPLAY_WAIT_S / 2):
                    await owner.engine()
        store.is_following = False
        assert texts(await receive(await engine_of(owner))) == ["a"]


async def test_what_is_read_ahead_has_a_bound_over_all_groups(clock: ManualClock) -> None:
    """Groups that receive few large messages hold no more than the bound together, and each gets all its messages."""
    store = await filled()
    for number in range(20):
        await store.append(TOPIC, f"m{number}", size_bytes=100 << 10)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        ahead = engine.subscriptions.read_ahead
        ahead.size_bytes_max = 1 << 20
        for number in range(30):
            place = f"g{number}", TOPIC
            found = await engine.receive(*place, count=1, invisible_ms=None, wanted=Wanted(), wait_s=LIMIT_S)
            assert texts(found) == ["m0"]
        most = ahead.size_bytes_max + 30 * (100 << 10) + (1 << 20)
        assert ahead.size_bytes <= most
        await engine.run_maintenance()
        assert not ahead.is_enough
        for number in range(30):
            rest: list[str] = []
            while len(rest) < 19:
                place = f"g{number}", TOPIC
                found = await engine.receive(*place, count=5, invisible_ms=None, wanted=Wanted(), wait_s=LIMIT_S)
                rest += texts(found)
            assert rest == [f"m{count}" for count in range(1, 20)]


async def test_groups_have_a_bound(clock: ManualClock) -> None:
    """Further groups are refused, with a receive or a policy, until other groups are deleted."""
    store = await filled("a", "b")
    async with delivering(store, clock, group_queue_count_max=2) as owner:
        engine = await engine_of(owner)
        await engine.set_policy("other", Policy())
        assert len(await receive(engine, 1)) == 1
        with pytest.raises(WindowFull):
            await engine.set_policy("third", Policy())
        with pytest.raises(WindowFull):
            await engine.receive("third", TOPIC, count=1, invisible_ms=None, wanted=Wanted(), wait_s=0)
        await engine.set_policy("other", Policy(attempts_max=3))
        assert len(await receive(engine, 1)) == 1
        await engine.set_policy("other", None)
        await engine.set_policy("third", Policy())


async def test_a_message_is_buried_exactly_once(clock: ManualClock) -> None:
    """The letter is appended together with the event that settles it, once for any number of requests."""
    store = await filled("a", "b", "c")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        (a, b, c) = await receive(engine)
        outcomes = await settle(engine, "bury", a, a, b)
        assert outcomes == [SettleOutcome()] * 3
        both = await asyncio.gather(settle(engine, "bury", c), settle(engine, "bury", c))
        assert both == [[SettleOutcome()]] * 2
        letters = [found.message for queue in store.queues(f"%DLQ%{GROUP}") for found in queue]
        assert letters == ["a", "b", "c"]
        clock.advance(3_600_000)
        assert await receive(engine, wait_s=0) == []


async def test_who_buries_what_was_delivered_again_meanwhile_is_too_late(clock: ManualClock) -> None:
    """Then the message belongs to another consumer, which may still process it."""
    store = await filled("a")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        (first,) = await receive(engine, invisible_ms=1_000)
        clock.advance(1_000)
        (again,) = await receive(engine)
        assert isinstance((await settle(engine, "bury", first))[0].error, HandleOutdated)
        assert not any(store.queues(f"%DLQ%{GROUP}"))
        assert (await settle(engine, "ack", again))[0].error is None


async def test_an_extension_may_keep_the_handle(clock: ManualClock) -> None:
    """Also if the request is repeated: the message is delivered again once, and then the handle is outdated."""
    store = await filled("a")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        (one,) = await receive(engine, invisible_ms=1_000)
        settle_request = SettleRequest(one.handle, "extend", 5_000, keeps_handle=True)
        assert [outcome.handle for outcome in await engine.settling.settle([settle_request, settle_request])] == [
            one.handle
        ] * 2
        clock.advance(4_999)
        assert await receive(engine, wait_s=0) == []
        clock.advance(1)
        (again,) = await receive(engine)
        assert (again.message, again.attempt) == ("a", 2)
        assert isinstance((await settle(engine, "ack", one))[0].error, HandleOutdated)


async def test_a_group_that_rocketmq_knew_goes_on_by_its_settings(clock: ManualClock) -> None:
    """A group without a policy begins with the policy in the index, and the journal has it from then on."""
    store = await filled("a")
    store.policies[GROUP] = Policy(attempts_max=2, is_ordered=True)
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await receive(engine)
        assert engine.groups.policy(GROUP) == Policy(attempts_max=2, is_ordered=True)
    store.policies.clear()
    async with delivering(store, clock) as owner:
        assert (await engine_of(owner)).groups.policy(GROUP) == Policy(attempts_max=2, is_ordered=True)


async def test_policies_are_kept_for_rocketmq(clock: ManualClock) -> None:
    """Changes and deletions of policies are published to the index; a new process publishes all policies again."""
    store = await filled("a")
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        await engine.set_policy("one", Policy(attempts_max=1))
        await engine.set_policy("two", Policy(attempts_max=2))
        clock.advance(int(STORE_INTERVAL_S * 1000))
        await engine.run_maintenance()
        assert store.policies == {"one": Policy(attempts_max=1), "two": Policy(attempts_max=2)}
        await engine.set_policy("one", None)
        await engine.set_policy("two", Policy(is_paused=True))
        clock.advance(int(STORE_INTERVAL_S * 1000))
        await engine.run_maintenance()
        assert store.policies == {"two": Policy(is_paused=True)}
    store.policies.clear()
    async with delivering(store, clock) as owner:
        engine = await engine_of(owner)
        clock.advance(int(STORE_INTERVAL_S * 1000))
        await engine.run_maintenance()
        assert store.policies == {"two": Policy(is_paused=True)}
