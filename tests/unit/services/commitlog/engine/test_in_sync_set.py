# SPDX-License-Identifier: Apache-2.0
"""InSyncSet: replicated data is on the disk of every member that is, or may be, recorded."""

import random

import pytest

from libs.formats.state.replication import Member
from services.commitlog.engine.replicate.in_sync_set import InSyncSet, LagLimits

B, C, D = (Member(name, name * 32) for name in "bcd")
NEW_B = Member("b", "e" * 32)
LIMITS = LagLimits(time_ms=10_000, size_bytes=1 << 20)


def set_of(*others: Member, min_in_sync: int = 1, setting: int = 2, epoch_start: int = 0) -> InSyncSet:
    """The set of a leader that has just begun, at time 0."""
    return InSyncSet(
        others,
        min_in_sync=min_in_sync,
        min_in_sync_setting=setting,
        limits=LIMITS,
        epoch_start_physical_offset=epoch_start,
        now_ms=0,
    )


def recorded(group: InSyncSet, replicated: int, end: int, now_ms: int) -> frozenset[Member]:
    """The members after a look whose proposal is recorded."""
    proposed = group.look(replicated, end, now_ms)
    if proposed is not None:
        group.decide(group.min_in_sync_with(proposed))
    return group.others


def test_who_lacks_topics_stays_outside() -> None:
    """A joining member needs all topics that the set has, or may have; recorded members count before that, too."""
    group = set_of(B)
    group.join(B, 100, 0)
    assert not group.has_topics(1)
    group.hear_topics(B, 1)
    assert group.has_topics(1)
    group.join(C, 100, 0)
    assert recorded(group, 100, 100, 1) == {B}
    group.hear_topics(C, 1)
    assert recorded(group, 100, 100, 2) == {B, C}
    group.hear_topics(B, 2)
    assert not group.has_topics(2)
    group.leave(C, 3)
    assert group.has_topics(1)


def test_all_recorded_count_connected_or_not() -> None:
    """A new leader knows nothing of the others' disks, and their bytes still count after they disconnect."""
    group = set_of(B, C)
    assert group.replicated(100) == 0
    group.join(B, 90, 0)
    group.join(C, 50, 0)
    assert (group.replicated(100), group.replicated(40), group.live_count) == (50, 40, 3)
    group.leave(C, 1)
    group.hear(B, 100)
    assert (group.replicated(100), group.live_count) == (50, 2)


def test_who_has_all_comes_in() -> None:
    """A follower with all replicated data and the start of the epoch joins; until that is recorded both sets count."""
    group = set_of(epoch_start=70)
    group.join(B, 60, 0)
    assert group.look(50, 100, 0) is None
    group.hear(B, 69)
    assert group.look(50, 69, 1) is None
    group.hear(B, 80)
    proposed = group.look(80, 80, 2)
    assert proposed == {B}
    assert (group.min_in_sync_with(proposed), group.size, group.replicated(100)) == (2, 1, 80)
    assert group.look(80, 100, 3) == proposed
    group.decide(2)
    assert (group.others, group.size, group.min_in_sync, group.replicated(100)) == ({B}, 2, 2, 80)


def test_what_is_replicated_waits_for_who_is_near() -> None:
    """The replicated offset waits for a follower that has almost caught up until the follower is recorded.

    Under load, a leader that is alone is otherwise always ahead.
    """
    group = set_of()
    group.join(B, 0, 0)
    group.look(1, 1, 0)
    for now_ms in (500, 1_000, 1_500):
        group.hear(B, max(now_ms - 500, 1))
        assert group.look(now_ms, now_ms, now_ms) is None
    assert (group.replicated(2_000), group.hurried) == (1_000, {B})
    group.hear(B, 1_500)
    assert group.look(1_500, 2_100, 1_600) == {B}
    assert group.replicated(2_100) == 1_500
    group.leave(B, 1_700)
    assert group.replicated(2_100) == 1_500


def test_what_is_replicated_does_not_wait_for_long() -> None:
    """The replicated offset waits only a limited time for a follower that cannot keep up."""
    group = set_of()
    group.join(B, 0, 0)
    group.look(1, 1, 0)
    group.hear(B, 1)
    group.look(500, 500, 500)
    assert group.replicated(600) == 1
    group.look(1_600, 1_600, 1_600)
    assert group.replicated(3_000) == 3_000


def test_who_is_recorded_has_time_to_come_back() -> None:
    """A new leader does not know the others' disks, and this alone makes no member late."""
    group = set_of(B, C, min_in_sync=2)
    far = 10 * LIMITS.size_bytes
    assert recorded(group, 0, far, 9_000) == {B, C}
    group.join(C, 5, 9_001)
    assert recorded(group, 0, far, 9_002) == {B}


def test_who_syncs_seldom_is_hurried() -> None:
    """A member that syncs seldom is asked for a sync before it is late."""
    group = set_of(B)
    group.join(B, 100, 0)
    assert recorded(group, 100, 100, 0) == {B}
    assert recorded(group, 100, 101, 4_000) == {B}
    assert not group.hurried
    assert recorded(group, 100, 101, 6_000) == {B}
    assert group.hurried == {B}


@pytest.mark.parametrize("why", ["time", "bytes", "gone"])
def test_who_is_late_goes(why: str) -> None:
    """A member leaves the set if it is late in time or in bytes, or is not connected, and not before."""
    group = set_of(B, setting=1)
    group.join(B, 100, 0)
    assert recorded(group, 100, 100, 1) == {B}
    end = 101 if why == "time" else 100 + LIMITS.size_bytes + 1 if why == "bytes" else 100
    if why == "gone":
        group.leave(B, 2)
    assert recorded(group, 100, end, 9_000) == (set() if why == "bytes" else {B})
    assert recorded(group, 100, end, 10_003) == set()
    assert group.replicated(end) == end


def test_an_idle_log_makes_nobody_late() -> None:
    """A member with all data stays in the set while the log is idle."""
    group = set_of(B, setting=1)
    group.join(B, 100, 0)
    for now_ms in range(0, 100_000, 5_000):
        assert recorded(group, 100, 100, now_ms) == {B}


def test_the_set_never_gets_smaller_than_it_had_to_be() -> None:
    """The set never gets smaller than its minimum; members may be exchanged, and the nearest late member stays."""
    group = set_of(B, min_in_sync=2)
    group.join(B, 100, 0)
    group.leave(B, 1)
    assert recorded(group, 100, 100, 20_000) == {B}
    group.join(NEW_B, 100, 20_001)
    assert recorded(group, 100, 100, 20_002) == {NEW_B}
    group = set_of(B, C, min_in_sync=2)
    group.join(B, 70, 0)
    group.join(C, 60, 0)
    group.leave(B, 1)
    group.leave(C, 1)
    assert recorded(group, 60, 100, 20_000) == {B}


def test_a_smaller_setting_lowers_the_size() -> None:
    """A restart with a smaller setting lowers the minimum size of the set."""
    group = set_of(B, min_in_sync=2, setting=1)
    assert recorded(group, 0, 0, 20_000) == set()


def test_whoever_is_or_may_be_recorded_has_all_that_is_replicated(subtests: pytest.Subtests) -> None:
    """Every member that is or may be recorded has all replicated data, so that any of them may lead next.

    The set keeps its minimum size.
    """
    for seed in range(300):
        with subtests.test(f"seed {seed}"):
            _check_a_history(random.Random(seed))


def _check_a_history(chance: random.Random) -> None:
    setting = chance.choice((1, 2, 3))
    group = set_of(setting=setting)
    disks = dict.fromkeys((B, C, D, NEW_B), 0)
    own = end = replicated = now_ms = 0
    live: set[Member] = set()
    least = 1
    for _ in range(300):
        now_ms += chance.choice((1, 100, 5_000))
        member = chance.choice(list(disks))
        match chance.choice(
            ("append", "append", "sync", "member syncs", "member syncs", "join", "leave", "look", "look")
        ):
            case "append":
                end += chance.choice((1, 1_000, LIMITS.size_bytes))
            case "sync":
                own = chance.randint(own, end)
            case "member syncs" if member in live:
                disks[member] = chance.choice((end, chance.randint(disks[member], end)))
                group.hear(member, disks[member])
            case "join" if member not in live:
                group.join(member, disks[member], now_ms)
                live.add(member)
            case "leave" if member in live:
                group.leave(member, now_ms)
                live.remove(member)
            case "look":
                proposed = group.look(replicated, end, now_ms)
                if proposed is not None:
                    own = chance.randint(own, end)  # meanwhile
                    replicated = max(replicated, group.replicated(own))
                    assert all(disks[one] >= replicated for one in group.others | proposed)
                    if chance.random() < 0.7:
                        group.decide(group.min_in_sync_with(proposed))
                        least = setting if group.size >= setting else least
                        assert group.size >= least
        replicated = max(replicated, group.replicated(own))
        assert replicated <= own
        assert all(disks[one] >= replicated for one in group.others)


def test_who_stops_in_order_goes_at_once() -> None:
    """A member that stops in order leaves at once if enough others are in the set.

    It does not join again over the same connection, and joins when it is back.
    """
    group = set_of(B, C, min_in_sync=2)
    for member in (B, C):
        group.join(member, 100, 0)
    group.let_go(B)
    assert recorded(group, 100, 100, 1) == {C}
    assert recorded(group, 100, 100, 2) == {C}
    group.let_go(C)
    assert recorded(group, 100, 100, 3) == {C}
    group.leave(B, 4)
    group.join(B, 100, 5)
    assert recorded(group, 100, 100, 6) == {B}
