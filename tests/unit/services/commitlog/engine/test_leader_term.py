# SPDX-License-Identifier: Apache-2.0
"""The tenure of a leader: lost answers, records that other members wrote, and leases that are over."""

import pytest

from libs.formats.state.replication import Member
from libs.machine.testing.manual_clock import ManualClock
from services.commitlog.engine.elect.coordinator import CoordinatorUnavailable, View
from services.commitlog.engine.elect.election import elected_record
from services.commitlog.engine.elect.leader_term import ASKING_SHARE, LeaderTerm
from services.commitlog.engine.elect.lease import SHARE, Lease
from services.commitlog.engine.replicate.ledger import InSync
from services.commitlog.errors import LeaseOver
from tests.support.memory_coordinator import Door, MemoryCoordinator
from tests.unit.services.commitlog.engine.test_election_rules import FACTS, RECORD, A, B, C

LEASE_MS = 5_000


class Leader:
    """A leader of epoch 7, with a and b in sync."""

    def __init__(self) -> None:
        self.coordinator = MemoryCoordinator()
        self.clock = ManualClock()
        self.door: Door = self.coordinator.door("a/1")

    async def begin(self) -> LeaderTerm:
        """Be elected."""
        view = await self.door.elect(await self.door.read(), RECORD)
        lease = Lease(self.door, self.clock, LEASE_MS, self.clock.monotonic_s(), 100)
        return LeaderTerm(self.door, lease, RECORD, view)

    def lose(self, count: int = 1) -> None:
        """Lose the answers of the next changes that are carried out."""
        answers = iter([True] * count)
        self.door.loses = lambda: next(answers, False)

    @property
    def in_sync(self) -> tuple[Member, ...]:
        """The recorded members."""
        record = self.coordinator.there.record
        assert record is not None
        return record.in_sync


async def test_changes() -> None:
    """Each change of the record is based on the change before it."""
    leader = Leader()
    term = await leader.begin()
    assert term.load() == InSync([B], 2, RECORD.floor_physical_offset)
    await term.record(InSync([B, C], 2, 200))
    await term.record(InSync([C], 2, 300))
    assert leader.in_sync == (A, C)
    assert term.load() == InSync([C], 2, 300)


@pytest.mark.parametrize("replicated", [200, 300])
async def test_an_answer_is_lost(replicated: int) -> None:
    """A change with a lost answer may be repeated, also with another floor, and the lease stays."""
    leader = Leader()
    term = await leader.begin()
    leader.lose()
    with pytest.raises(CoordinatorUnavailable):
        await term.record(InSync([B, C], 2, 200))
    try:
        await term.record(InSync([B, C], 2, replicated))
    except CoordinatorUnavailable:
        await term.record(InSync([B, C], 2, replicated))
    assert leader.in_sync == (A, B, C)
    assert not term.lease.is_lost
    await term.record(InSync([B], 2, 400))


async def test_another_leader_has_put_the_same() -> None:
    """An equal record that another leader wrote is not taken for this leader's change."""
    leader = Leader()
    term = await leader.begin()
    other = leader.coordinator.door("b/1")
    leader.coordinator.expire()
    seen = await other.read()
    assert seen.record is not None
    mine = await other.elect(seen, elected_record(seen.record, FACTS, "b:1"))
    assert mine.record is not None
    with pytest.raises(LeaseOver):
        await term.record(InSync([B, C], 2, 200))
    assert term.lease.is_lost
    assert leader.coordinator.there == mine


@pytest.mark.parametrize("lost_count", [0, 1])
async def test_a_release(lost_count: int) -> None:
    """A release is made once; from its beginning on only replicated batches are acknowledged."""
    leader = Leader()
    term = await leader.begin()
    term.check()
    leader.lose(lost_count)
    await term.release("b", leaves=False)
    there = leader.coordinator.there
    assert there.record is not None
    assert (there.holder, there.record.leader, there.record.successor) == ("", None, "b")
    with pytest.raises(LeaseOver):
        term.check()


async def test_a_release_that_fails() -> None:
    """A failed release raises for its caller, and nothing is acknowledged any more."""
    leader = Leader()
    term = await leader.begin()
    leader.door.is_cut = True
    with pytest.raises(CoordinatorUnavailable):
        await term.release("b", leaves=True)
    term.hear(B, leader.clock.monotonic_s())
    assert term.left_ms == 0


async def test_a_lease_counts_from_the_sending() -> None:
    """A lease is over for its holder before it is over for any other member, until it is renewed."""
    leader = Leader()
    term = await leader.begin()
    leader.clock.advance(int(LEASE_MS * SHARE) - 1)
    term.check()
    leader.clock.advance(1)
    with pytest.raises(LeaseOver):
        term.check()
    assert leader.coordinator.there != View(None, "")


async def test_promises_count_from_the_asking() -> None:
    """Promises last as long as a lease from the time of asking, and the oldest promise of all members counts."""
    leader = Leader()
    term = await leader.begin()
    await term.record(InSync([B, C], 2, 200))
    start_s = leader.clock.monotonic_s()
    leader.clock.advance(LEASE_MS)
    term.hear(B, start_s + 3)
    with pytest.raises(LeaseOver):
        term.check()
    term.hear(C, start_s + 2)
    assert term.is_by_promises
    assert term.left_ms == 2_000 + int(LEASE_MS * SHARE) - LEASE_MS
    leader.clock.advance(term.left_ms - 1)
    term.check()
    leader.clock.advance(1)
    with pytest.raises(LeaseOver):
        term.check()


async def test_who_may_be_in_the_set_by_now_must_promise_too() -> None:
    """After a lost answer the members of the unconfirmed set must promise, too."""
    leader = Leader()
    term = await leader.begin()
    leader.lose(2)
    with pytest.raises(CoordinatorUnavailable):
        await term.record(InSync([B, C], 2, 200))
    leader.clock.advance(LEASE_MS)
    term.hear(B, leader.clock.monotonic_s())
    assert term.left_ms == 0
    term.hear(C, leader.clock.monotonic_s())
    assert term.left_ms == int(LEASE_MS * SHARE)


async def test_promises_are_asked_for_when_the_lease_is_not_renewed() -> None:
    """A leader asks for promises only once its lease is not renewed, and only while it accepts appends.

    Otherwise a promise would prevent the election of another member.
    """
    leader = Leader()
    term = await leader.begin()
    assert term.lease_ms == 0
    leader.clock.advance(int(LEASE_MS * (SHARE - ASKING_SHARE)) + 1)
    assert term.lease_ms == LEASE_MS
    leader.clock.advance(LEASE_MS)
    assert term.lease_ms == 0
    term.hear(B, leader.clock.monotonic_s())
    assert term.lease_ms == LEASE_MS


async def test_alone_there_is_nobody_to_ask() -> None:
    """A leader alone in the set needs no promises, because no other member may be elected."""
    leader = Leader()
    term = await leader.begin()
    await term.record(InSync([], 1, 200))
    leader.clock.advance(10 * LEASE_MS)
    assert term.is_by_promises
