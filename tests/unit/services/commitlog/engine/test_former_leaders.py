# SPDX-License-Identifier: Apache-2.0
"""Leaders and followers after logs have parted: a tail is cut for a newer leader, and no older leader is followed."""

import asyncio
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from libs.log.state import small_files
from libs.machine.failpoints import FailpointRaised, armed
from libs.machine.testing.memory_fs import everything_survives, nothing_survives
from libs.segments.errors import OffsetTrimmed
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.replicate.follower import FollowingState
from services.commitlog.engine.start.cut import Cut
from tests.support.commitlog import (
    DATA_DIR,
    Machine,
    append,
    bodies,
    fill,
    message,
    records,
    synced,
)
from tests.support.patience import eventually
from tests.support.replication import Wire, caught_up, same_segments


async def parted(one: Machine, other: Machine, *, count: int = 1) -> tuple[int, int]:
    """A former leader with messages that its follower, which leads by now, does not have: where they part and end."""
    leader = await one.start()
    wire = Wire(leader)
    follower = await other.start(leader=wire.at(), role="slave", replica_id="b")
    first = await append(leader, message(b"one"))
    await caught_up(follower, leader)
    await other.stop(follower)
    for number in range(count):
        last = await append(leader, message(b"lost %d" % number, topic="payments"))
    await one.stop(leader)
    return first.end_physical_offset, last.end_physical_offset


async def test_a_tail_of_its_own() -> None:
    """A former leader cuts the tail that no other member has, keeps a copy, and follows the new leader."""
    one, other = Machine(), Machine()
    start, end = await parted(one, other)
    lost = bytes(one.segment_bytes()[start:end])
    async with other.running() as promoted:
        await append(promoted, message(b"three"))
        wire = Wire(promoted)
        former = await one.start(leader=wire.at(), role="slave", replica_id="a")
        await eventually(lambda: wire.cuts)
        assert former.follower is not None
        assert f"the same up to {start}: the log is cut there" in former.follower.last_error
        assert bodies(former) == [b"one", b"lost 0"]
        await one.stop(former)
        former = await one.start(leader=wire.at(), cut=wire.cuts[0], role="slave", replica_id="a")
        assert former.recovery.truncated_bytes == len(lost)
        assert one.fs.read(Path(former.recovery.truncated_copy_path)) == lost
        await caught_up(former, promoted)
        assert bodies(former) == [b"one", b"three"]
        assert former.epochs.epochs == promoted.epochs.epochs
        assert former.state.table.next_queue_offset(b"payments", 0) == 0
        await one.stop(former)
    assert same_segments(one, other)
    async with one.running() as again:
        batch = await append(again, message(b"four", topic="payments"))
        assert records(again)[-1].queue_offset == 0
        assert batch.end_physical_offset > end


@pytest.mark.parametrize("is_power_cut", [False, True])
@pytest.mark.parametrize("place", ["copy", "checkpoint", "snapshot", "truncate"])
async def test_a_cut_that_is_cut_short(place: str, *, is_power_cut: bool) -> None:
    """After a crash in a cut the log opens whole, and the next handshake asks for the same cut."""
    one, other = Machine(), Machine()
    await parted(one, other, count=3)
    async with other.running() as promoted:
        await append(promoted, message(b"three"))
        wire = Wire(promoted)
        slave: dict[str, Any] = {"leader": wire.at(), "role": "slave", "replica_id": "a"}
        await one.stop(await asked(one, wire, slave))
        with armed(f"cut.after_{place}", "raise"), pytest.raises(FailpointRaised):
            await one.start(cut=wire.cuts.pop(), **slave)
        one.fs.crash(nothing_survives if is_power_cut else everything_survives)
        if place == "truncate":
            former = await one.start(**slave)
        else:
            await one.stop(await asked(one, wire, slave))
            former = await one.start(cut=wire.cuts.pop(), **slave)
        await caught_up(former, promoted)
        assert bodies(former) == [b"one", b"three"]
        await one.stop(former)
    assert same_segments(one, other)


async def asked(machine: Machine, wire: Wire, slave: dict[str, Any]) -> OpenLog:
    """Start, and wait until it asks for a cut."""
    wire.cuts.clear()
    log = await machine.start(**slave)
    await eventually(lambda: wire.cuts)
    return log


async def test_a_tail_that_is_not_cut() -> None:
    """A tail stays if it is too large for a copy or no newer leader gave it up, and a person decides."""
    one, other = Machine(), Machine()
    start, _ = await parted(one, other)
    async with other.running() as promoted:
        wire = Wire(promoted)
        former = await one.start(leader=wire.at(), role="slave", replica_id="a", cut_bytes_max=10)
        following = former.follower
        assert following is not None
        await eventually(lambda: following.state is FollowingState.OUT)
        assert f"the same up to {start}: these are more than cut_bytes_max, 10" in following.last_error
        await one.stop(former)
    copy = Machine()
    copy.fs = one.fs.after_crash(everything_survives)
    async with one.running() as log, copy.running() as older:  # both continued in an epoch of their own
        await append(log, message(b"more"))
        await append(older, message(b"other"))
        await append(older, message(b"other"))
        older_leads = older.epochs.number < log.epochs.number
    leads, follows = (copy, one) if older_leads else (one, copy)
    before = bytes(follows.segment_bytes())
    async with leads.running() as log:
        wire = Wire(log)
        stranger = await follows.start(leader=wire.at(), role="slave", replica_id="c")
        following = stranger.follower
        assert following is not None
        await eventually(lambda: following.state is FollowingState.OUT)
        assert re.search(r"the leader is in epoch \d+, and this log knows of epoch \d+", following.last_error)
        await follows.stop(stranger)
    assert (bytes(follows.segment_bytes()), wire.cuts) == (before, [])


async def test_a_trimmed_tail_without_a_common_epoch() -> None:
    """A log that has only bytes that its leader lacks is not cut, also if it has deleted the common epochs."""
    one, other = Machine(), Machine()
    leader = await one.start()
    follower = await other.start(leader=Wire(leader).at(), role="slave", replica_id="b")
    await caught_up(follower, leader)
    await other.stop(follower)
    await append(leader, message(b"lost"))
    await one.kill(leader, everything_survives)
    async with one.running() as again:  # in an epoch that the other log does not know
        await fill(again, 3, durability=1)
        await synced(again)
        (deleted,) = await again.segments.delete([0], allow_unindexed=True)
        assert deleted.refusal is None
        (epoch,) = again.epochs.epochs
        first = again.chain.min_physical_offset
    async with other.running() as promoted:
        assert epoch.number not in {each.number for each in promoted.epochs.epochs}
        assert epoch.number < promoted.epochs.number
        wire = Wire(promoted)
        former = await one.start(leader=wire.at(), role="slave", replica_id="a")
        following = former.follower
        assert following is not None
        await eventually(lambda: following.state is FollowingState.OUT)
        assert "the same up to 0: these are all that it has" in following.last_error
        assert wire.cuts == []
        await one.stop(former)
    with pytest.raises(OffsetTrimmed):  # as for segments that were deleted after the request
        await one.start(leader=wire.at(), cut=Cut(0, [epoch]), role="slave", replica_id="a")
    former = await one.start(leader=wire.at(), role="slave", replica_id="a")
    assert former.chain.min_physical_offset == first
    await one.stop(former)


@pytest.mark.parametrize("who", ["leader", "follower"])
async def test_an_old_leader_is_not_followed(who: str) -> None:
    """A promise to a newer leader excludes an older leader on either side, after a power cut too.

    The member that promised then leads in a newer epoch.
    """
    one, other = Machine(), Machine()
    async with one.running() as leader:
        await append(leader, message(b"one"))
        wire = Wire(leader)
        slave: dict[str, Any] = {"leader": wire.at(), "role": "slave", "replica_id": "b"}
        follower = await other.start(**slave)
        await caught_up(follower, leader)
        assert promised(other) == leader.epochs.number == 1
        await follower.identity.promise(9)
        await other.kill(follower, nothing_survives)
        if who == "follower":
            wire.say = partial(replace, promised_epoch=0)  # as from a follower that the leader accepts
        follower = await other.start(**slave)
        following = follower.follower
        assert following is not None
        await eventually(lambda: following.state is FollowingState.OUT)
        assert following.last_error == "the leader is in epoch 1, and this log knows of epoch 9"
        assert (wire.cuts, leader.in_sync.set.live_count if leader.in_sync else 0) == ([], 1)
        await other.stop(follower)
    async with other.running() as promoted:
        assert promised(other) == promoted.epochs.number > 9


async def test_an_epoch_is_promised_before_its_cut() -> None:
    """A log that asks for a cut returns to no older leader any more."""
    one, other = Machine(), Machine()
    await parted(one, other)
    async with other.running() as promoted:
        found: list[int] = []
        leader = replace(Wire(promoted).at(), cut=lambda _: found.append(promised(one)))
        former = await one.start(leader=leader, role="slave", replica_id="a")
        await eventually(lambda: found)
        await one.stop(former)
        assert found[0] == promoted.epochs.number


async def test_what_is_noted_at_once_is_all_kept() -> None:
    """A promise and the replicated offset share a file, and neither overwrites the other."""
    one, other = Machine(), Machine()
    async with one.running() as leader:
        await append(leader, message(b"one"))
        wire = Wire(leader)
        follower = await other.start(leader=wire.at(), role="slave", replica_id="b")
        await caught_up(follower, leader)
        for epoch in range(10, 20):
            follower.identity.note_replicated(epoch)
            await asyncio.gather(follower.identity.promise(epoch), follower.identity.save())
            file = small_files.load_replica(other.fs.after_crash(nothing_survives), DATA_DIR)
            assert file is not None
            assert (file.promised_epoch, file.replicated_physical_offset) == (epoch, epoch)
        await other.stop(follower)


def promised(machine: Machine) -> int:
    """The promised epoch on the disk."""
    file = small_files.load_replica(machine.fs.after_crash(nothing_survives), DATA_DIR)
    assert file is not None
    return file.promised_epoch
