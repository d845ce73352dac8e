# SPDX-License-Identifier: Apache-2.0
"""What a leader holds: answers that are lost, records that others have put, and leases that are over."""

import pytest

from libs.formats.state.replication import Member
from libs.machine.testing.manual_clock import ManualClock
from services.commitlog.engine.elect.coordinator import CoordinatorUnavailable, View
from services.commitlog.engine.elect.election import elected_record
from services.commitlog.engine.elect.lease import SHARE, Lease
from services.commitlog.engine.elect.tenure import ASKING_SHARE, Tenure
from services.commitlog.engine.replicate.ledger import InSync
from services.commitlog.errors import LeaseOver
from tests.support.memory_coordinator import Door, MemoryCoordinator
from tests.unit.services.commitlog.engine.test_election_rules import FACTS, RECORD, A, B, C

LEASE_MS = 5_000


class Reigning:
    """A leader of epoch 7, with a and b in sync."""

    def __init__(self) -> None:
        self.coordinator = MemoryCoordinator()
        self.clock = ManualClock()
        self.door: Door = self.coordinator.door("a/1")

    async def begin(self) -> Tenure:
        """Be elected."""
        view = await self.door.elect(await self.door.read(), RECORD)
        lease = Lease(self.door, self.clock, LEASE_MS, self.clock.monotonic_s(), 100)
        return Tenure(self.door, lease, RECORD, view)

    def lose(self, count: int = 1) -> None:
        """Lose the next answers of what is carried out."""
        answers = iter([True] * count)
        self.door.loses = lambda: next(answers, False)

    @property
    def in_sync(self) -> tuple[Member, ...]:
        """As recorded."""
        record = self.coordinator.there.record
        assert record is not None
        return record.in_sync


async def test_changes() -> None:
    """One is built on the other."""
    reigning = Reigning()
    tenure = await reigning.begin()
    assert tenure.load() == InSync([B], 2, RECORD.floor_physical_offset)
    await tenure.record(InSync([B, C], 2, 200))
    await tenure.record(InSync([C], 2, 300))
    assert reigning.in_sync == (A, C)
    assert tenure.load() == InSync([C], 2, 300)


@pytest.mark.parametrize("replicated", [200, 300])
async def test_an_answer_is_lost(replicated: int) -> None:
    """The change was made; asked for again, also with another floor, it comes to the same, and the lease stays."""
    reigning = Reigning()
    tenure = await reigning.begin()
    reigning.lose()
    with pytest.raises(CoordinatorUnavailable):
        await tenure.record(InSync([B, C], 2, 200))
    try:
        await tenure.record(InSync([B, C], 2, replicated))
    except CoordinatorUnavailable:
        await tenure.record(InSync([B, C], 2, replicated))
    assert reigning.in_sync == (A, B, C)
    assert not tenure.lease.is_lost
    await tenure.record(InSync([B], 2, 400))


async def test_another_leader_has_put_the_same() -> None:
    """It is not taken for a change of this one."""
    reigning = Reigning()
    tenure = await reigning.begin()
    other = reigning.coordinator.door("b/1")
    reigning.coordinator.expire()
    seen = await other.read()
    assert seen.record is not None
    mine = await other.elect(seen, elected_record(seen.record, FACTS, "b:1"))
    assert mine.record is not None
    with pytest.raises(LeaseOver):
        await tenure.record(InSync([B, C], 2, 200))
    assert tenure.lease.is_lost
    assert reigning.coordinator.there == mine


@pytest.mark.parametrize("lost_count", [0, 1])
async def test_a_release(lost_count: int) -> None:
    """It is made once; nothing less than replicated is acknowledged from its beginning on."""
    reigning = Reigning()
    tenure = await reigning.begin()
    tenure.check()
    reigning.lose(lost_count)
    await tenure.release("b", leaves=False)
    there = reigning.coordinator.there
    assert there.record is not None
    assert (there.holder, there.record.leader, there.record.successor) == ("", None, "b")
    with pytest.raises(LeaseOver):
        tenure.check()


async def test_a_release_that_fails() -> None:
    """Whoever asked hears of it, and nothing is acknowledged any more."""
    reigning = Reigning()
    tenure = await reigning.begin()
    reigning.door.is_cut = True
    with pytest.raises(CoordinatorUnavailable):
        await tenure.release("b", leaves=True)
    tenure.hear(B, reigning.clock.monotonic_s())
    assert tenure.left_ms == 0


async def test_a_lease_counts_from_the_sending() -> None:
    """It is over for its holder before it is for anybody else, until it is renewed."""
    reigning = Reigning()
    tenure = await reigning.begin()
    reigning.clock.advance(int(LEASE_MS * SHARE) - 1)
    tenure.check()
    reigning.clock.advance(1)
    with pytest.raises(LeaseOver):
        tenure.check()
    assert reigning.coordinator.there != View(None, "")


async def test_promises_count_from_the_asking() -> None:
    """They last as long as a lease, and the oldest one of all members is the one that counts."""
    reigning = Reigning()
    tenure = await reigning.begin()
    await tenure.record(InSync([B, C], 2, 200))
    start_s = reigning.clock.monotonic_s()
    reigning.clock.advance(LEASE_MS)
    tenure.hear(B, start_s + 3)
    with pytest.raises(LeaseOver):
        tenure.check()
    tenure.hear(C, start_s + 2)
    assert tenure.is_by_promises
    assert tenure.left_ms == 2_000 + int(LEASE_MS * SHARE) - LEASE_MS
    reigning.clock.advance(tenure.left_ms - 1)
    tenure.check()
    reigning.clock.advance(1)
    with pytest.raises(LeaseOver):
        tenure.check()


async def test_who_may_be_in_the_set_by_now_must_promise_too() -> None:
    """A change whose answer is lost may have been made."""
    reigning = Reigning()
    tenure = await reigning.begin()
    reigning.lose(2)
    with pytest.raises(CoordinatorUnavailable):
        await tenure.record(InSync([B, C], 2, 200))
    reigning.clock.advance(LEASE_MS)
    tenure.hear(B, reigning.clock.monotonic_s())
    assert tenure.left_ms == 0
    tenure.hear(C, reigning.clock.monotonic_s())
    assert tenure.left_ms == int(LEASE_MS * SHARE)


async def test_promises_are_asked_for_when_the_lease_is_not_renewed() -> None:
    """Not before, and not by one that takes no appends any more: it would keep others from leading."""
    reigning = Reigning()
    tenure = await reigning.begin()
    assert tenure.lease_ms == 0
    reigning.clock.advance(int(LEASE_MS * (SHARE - ASKING_SHARE)) + 1)
    assert tenure.lease_ms == LEASE_MS
    reigning.clock.advance(LEASE_MS)
    assert tenure.lease_ms == 0
    tenure.hear(B, reigning.clock.monotonic_s())
    assert tenure.lease_ms == LEASE_MS


async def test_alone_there_is_nobody_to_ask() -> None:
    """Nobody else may be elected."""
    reigning = Reigning()
    tenure = await reigning.begin()
    await tenure.record(InSync([], 1, 200))
    reigning.clock.advance(10 * LEASE_MS)
    assert tenure.is_by_promises
