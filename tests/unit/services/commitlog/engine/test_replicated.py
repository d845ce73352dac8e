# SPDX-License-Identifier: Apache-2.0
"""REPLICATED: the disks that it waits for, its refusals, and the changes of the in-sync set meanwhile."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from libs.formats import store_layout
from libs.formats.state.replication import InSyncFile
from libs.log.errors import ReplicaFileDamaged
from libs.machine.testing.memory_fs import MemoryFs, everything_survives, nothing_survives
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.replicate.follower import FollowingState
from services.commitlog.engine.write.marks import DURABILITY_LOCAL_DISK, DURABILITY_MEMORY, DURABILITY_REPLICATED
from services.commitlog.errors import NotEnoughReplicas
from tests.support.commitlog import BORN_HOST, DATA_DIR, Machine, append, bodies, durability_of, message, request
from tests.support.patience import eventually
from tests.support.replication import Wire, caught_up, same_segments

SLAVE: dict[str, Any] = {"role": "slave", "replica_id": "b", "reconnect_ms_max": 100}
NEVER = 3_600_000


def machine(**changes: Any) -> Machine:
    """A machine that syncs only for callers that ask for it."""
    return Machine(
        **{"role": "async_master", "flush_interval_ms": NEVER, "flush_thorough_interval_ms": NEVER, **changes}
    )


@contextlib.asynccontextmanager
async def in_sync(one: Machine, other: Machine) -> AsyncIterator[tuple[OpenLog, OpenLog, Wire]]:
    """A leader, and a follower that is in its in-sync set."""
    leader = await one.start()
    wire = Wire(leader)
    follower = await other.start(leader=wire.at(), **SLAVE)
    await eventually(lambda: leader.in_sync is not None and leader.in_sync.set.live_count == 2)
    try:
        yield leader, follower, wire
    finally:
        await other.stop(follower)
        await one.stop(leader)
    assert one.failures == other.failures == []


async def append_replicated(log: OpenLog, body: bytes) -> int:
    """Append a message. Returns the durability of the acknowledgement."""
    batch = await log.pipeline.append(request(message(body), durability=DURABILITY_REPLICATED), BORN_HOST)
    return await durability_of(log, batch)


async def test_both_disks_have_it() -> None:
    """A REPLICATED message is on both disks, even if no other caller asks for a sync."""
    one, other = machine(), machine()
    async with in_sync(one, other) as (leader, follower, _):
        for number in range(20):
            assert await append_replicated(leader, b"%d" % number) == DURABILITY_REPLICATED
            assert follower.marks.flushed.value == leader.marks.flushed.value == leader.marks.wrote.value
        assert (leader.replicated_physical_offset, leader.in_sync.replica_ids) == (leader.marks.wrote.value, ["", "b"])
        end = leader.marks.wrote.value
        assert await durability_of(leader, await append(leader, message(b"quick"))) == DURABILITY_MEMORY
        assert follower.marks.flushed.value == end
    other.fs.crash(nothing_survives)
    one.fs.crash(nothing_survives)
    async with other.running() as promoted:
        assert bodies(promoted)[:20] == [b"%d" % number for number in range(20)]


async def test_who_syncs_seldom_comes_in() -> None:
    """A follower that has all data but no reason to sync is asked for a sync, so that it joins."""
    one, other = machine(), machine()
    async with one.running() as leader:
        await append(leader, message(b"alone"), durability=DURABILITY_LOCAL_DISK)
    async with in_sync(one, other) as (leader, follower, _):
        assert follower.marks.flushed.value == leader.marks.wrote.value > 0


async def test_a_follower_joins_with_its_first_acknowledgement() -> None:
    """A follower counts once it has the leader's epoch: a follower that only connects may turn out to differ."""
    one, other = machine(), machine()
    async with one.running() as leader:
        wire = Wire(leader)
        wire.can_acknowledge.clear()
        follower = await other.start(leader=wire.at(), **SLAVE)
        following, keeper = follower.follower, leader.in_sync
        assert following is not None
        assert keeper is not None
        await eventually(lambda: following.state is FollowingState.FOLLOWING)
        assert [replica.replica_id for replica in leader.replicas.connected] == ["b"]
        assert (keeper.set.live_count, keeper.replica_ids) == (1, [""])
        wire.can_acknowledge.set()
        await eventually(lambda: keeper.set.live_count == 2)
        assert follower.epochs.number == leader.epochs.number
        await other.stop(follower)
    assert one.failures == other.failures == []


async def test_too_few() -> None:
    """Too few members: nothing is written, no message, queue offset or topic; less durable batches are accepted."""
    one, other = machine(), machine(flush_interval_ms=5, flush_pages_min=0)
    async with one.running() as leader:
        await refused(leader)
        await append(leader, message(b"alone"), durability=DURABILITY_LOCAL_DISK)
    async with in_sync(one, other) as (leader, follower, wire):
        assert await append_replicated(leader, b"two") == DURABILITY_REPLICATED
        wire.leader = None
        await eventually(lambda: leader.in_sync.set.live_count == 1)
        await refused(leader)
        wire.leader = leader
        await eventually(lambda: leader.in_sync.set.live_count == 2)
        assert await append_replicated(leader, b"three") == DURABILITY_REPLICATED
        assert bodies(follower) == [b"alone", b"two", b"three"]


async def refused(log: OpenLog) -> None:
    """An append as replicated changes nothing."""
    end, counters = log.marks.wrote.value, sorted(log.state.table.frozen_counters())
    for topic in ("orders", "unknown"):
        with pytest.raises(NotEnoughReplicas, match="1 of the in-sync set are connected, this log included, and 2"):
            await log.pipeline.append(request(message(topic=topic), durability=DURABILITY_REPLICATED), BORN_HOST)
    assert (log.marks.wrote.value, sorted(log.state.table.frozen_counters())) == (end, counters)
    assert log.topics.find("unknown") is None


async def test_a_synchronous_master() -> None:
    """A synchronous master waits for REPLICATED by default, and hides messages that only its disk has."""
    one, other = machine(role="sync_master"), machine()
    async with in_sync(one, other) as (leader, _, wire):
        batch = await leader.pipeline.append(request(message(b"one")), BORN_HOST)
        assert await durability_of(leader, batch) == DURABILITY_REPLICATED
        assert bodies(leader) == [b"one"]
        wire.leader = None
        await eventually(lambda: leader.in_sync.set.live_count == 1)
        with pytest.raises(NotEnoughReplicas):
            await append(leader, message(b"two"))
        await append(leader, message(b"quick"), durability=DURABILITY_LOCAL_DISK)
        assert bodies(leader) == [b"one"]
        wire.leader = leader
        await eventually(lambda: bodies(leader) == [b"one", b"quick"])


async def test_who_is_recorded_counts_after_a_restart() -> None:
    """A leader that comes back alone shows no more messages than before, and refuses appends as REPLICATED."""
    one, other = machine(role="sync_master"), machine()
    async with in_sync(one, other) as (leader, follower, wire):
        await append(leader, message(b"one"))
        wire.leader = None
        await append(leader, message(b"two"), durability=DURABILITY_LOCAL_DISK)
    leader = await one.start()
    assert leader.in_sync is not None
    assert (leader.in_sync.set.size, leader.in_sync.set.live_count, bodies(leader)) == (2, 1, [b"one"])
    with pytest.raises(NotEnoughReplicas):
        await append(leader, message(b"three"))
    wire.leader = leader
    follower = await other.start(leader=wire.at(), **SLAVE)
    await eventually(lambda: bodies(leader) == [b"one", b"two"])
    await caught_up(follower, leader)
    await other.stop(follower)
    await one.stop(leader)
    assert same_segments(one, other)


async def test_alone_where_one_is_enough() -> None:
    """With min_in_sync_replicas 1 a synchronous master continues without a late member, and answers LOCAL_DISK."""
    one, other = machine(role="sync_master", min_in_sync_replicas=1), machine()
    async with in_sync(one, other) as (leader, _, wire):
        await append(leader, message(b"one"))
        wire.leader = None
        await eventually(lambda: leader.in_sync.set.live_count == 1)
        batch = await leader.pipeline.append(request(message(b"two")), BORN_HOST)
        one.clock.advance(60_000)
        await eventually(lambda: leader.in_sync.set.size == 1)
        assert await durability_of(leader, batch) == DURABILITY_LOCAL_DISK
        await refused(leader)
        assert bodies(leader) == [b"one", b"two"]
        wire.leader = leader
        await eventually(lambda: leader.in_sync.set.live_count == 2)
        assert await append_replicated(leader, b"three") == DURABILITY_REPLICATED


async def test_a_disk_that_hangs() -> None:
    """After the time-out the answer has the durability that is known; the batch stays."""
    one, other = machine(replicate_timeout_ms=1_000), machine()
    async with in_sync(one, other) as (leader, follower, _):
        await follower.flusher.loop.stop()
        batch = await leader.pipeline.append(request(durability=DURABILITY_REPLICATED), BORN_HOST)
        assert await durability_of(leader, batch) == DURABILITY_LOCAL_DISK
        await follower.flusher.run()
        await eventually(lambda: leader.marks.replicated.value == batch.end_physical_offset)


async def test_a_replaced_disk_is_another_member() -> None:
    """A replaced disk under the same name is a new member: it catches up first, and takes the old member's place."""
    one, other = machine(role="sync_master"), machine()
    async with in_sync(one, other) as (leader, _, wire):
        await append(leader, message(b"one"))
        wire.leader = None
    other.fs = MemoryFs()
    leader = await one.start()
    assert leader.in_sync is not None
    wire.leader = leader
    before = leader.in_sync.set.others
    wire.change = lambda step: step
    follower = await other.start(leader=wire.at(), **SLAVE)
    await eventually(lambda: follower.marks.wrote.value == leader.marks.wrote.value)
    await follower.marks.flushed.soon(follower.marks.wrote.value)
    await eventually(lambda: leader.in_sync is not None and len(leader.in_sync.set.others) == 2)
    one.clock.advance(60_000)
    await eventually(lambda: leader.in_sync is not None and leader.in_sync.set.size == 2)
    assert not before & leader.in_sync.set.others
    await append(leader, message(b"two"))
    await other.stop(follower)
    await one.stop(leader)


async def test_another_disk_under_a_name_that_is_connected() -> None:
    """A second log under the name of a connected member is refused."""
    one, other, third = machine(), machine(), machine()
    async with in_sync(one, other) as (leader, _, wire):
        stranger = await third.start(leader=wire.at(), **SLAVE)
        following = stranger.follower
        assert following is not None
        await eventually(lambda: "another log follows under this name" in following.last_error)
        assert leader.in_sync.set.live_count == 2
        await third.stop(stranger)


@pytest.mark.parametrize("of_leader", [False, True])
async def test_a_copy_of_a_directory(*, of_leader: bool) -> None:
    """A copy of a member's directory is refused, because it would count as its original.

    Without the file that names the member it is accepted as a follower.
    """
    one, other, copy = machine(), machine(), machine()
    async with in_sync(one, other) as (leader, _, wire):
        original = one if of_leader else other
        for path, data in original.files().items():
            copy.fs.make_directory(path.parent)
            copy.fs.write_atomic(path, data)
        copied = await copy.start(leader=wire.at(), **{**SLAVE, "replica_id": "c"})
        following = copied.follower
        assert following is not None
        await eventually(lambda: "another member has this store" in following.last_error)
        assert [replica.replica_id for replica in leader.replicas.connected] == ["b"]
        await copy.stop(copied)
        copy.fs.remove(DATA_DIR / store_layout.REPLICA)
        copied = await copy.start(leader=wire.at(), **{**SLAVE, "replica_id": "c"})
        await eventually(lambda: len(leader.replicas.connected) == 2)
        await caught_up(copied, leader)
        await copy.stop(copied)


async def test_the_file() -> None:
    """The in-sync file is written before a change counts, names both members, and is removed when the log follows.

    A damaged file is treated as no file.
    """
    one, other = machine(), machine()
    async with in_sync(one, other) as (leader, follower, wire):
        file = InSyncFile.decode(one.fs.read(DATA_DIR / store_layout.IN_SYNC))
        assert [each.replica_id for each in (file.leader, *file.others)] == ["", "b"]
        assert (file.history_id, file.min_in_sync) == (leader.epochs.history_id, 2)
        assert (file.leader.store_id, file.others[0].store_id) == (leader.identity.store_id, follower.identity.store_id)
        await append_replicated(leader, b"one")
    async with other.running() as promoted:
        assert promoted.in_sync is not None
        assert promoted.in_sync.set.size == 1
        wire = Wire(promoted)
        former = await one.start(leader=wire.at(), **SLAVE)
        assert not one.exists(store_layout.IN_SYNC)
        await caught_up(former, promoted)
        await one.stop(former)
    path = DATA_DIR / store_layout.IN_SYNC
    async with in_sync(one, other):
        pass
    one.fs.write_atomic(path, b"x" + one.fs.read(path)[1:])
    async with one.running() as leader:
        assert leader.in_sync is not None
        assert leader.in_sync.set.size == 1


async def test_no_cut_below_what_others_had() -> None:
    """A former leader that has more data than a leader which was started by mistake keeps it."""
    one, other, late = machine(), machine(), machine(flush_interval_ms=5, flush_pages_min=0)
    async with in_sync(one, other) as (leader, _, wire):
        await append_replicated(leader, b"one")
        stale = await late.start(leader=wire.at(), **{**SLAVE, "replica_id": "c"})
        await caught_up(stale, leader)
        await late.stop(stale)
        await eventually(lambda: leader.in_sync.set.live_count == 2)
        one.clock.advance(60_000)
        await eventually(lambda: leader.in_sync.set.size == 2)
        assert await append_replicated(leader, b"two") == DURABILITY_REPLICATED
    async with late.running() as promoted:
        await append(promoted, message(b"other"))
        wire = Wire(promoted)
        former = await one.start(leader=wire.at(), **SLAVE)
        following = former.follower
        assert following is not None
        await eventually(lambda: following.state is FollowingState.OUT)
        assert "it is the leader that lacks something" in following.last_error
        assert wire.cuts == []
        await one.stop(former)


async def test_many_at_once() -> None:
    """Batches of many callers share syncs on both sides, and are acknowledged in order."""
    one, other = machine(role="sync_master"), machine()
    async with in_sync(one, other) as (leader, follower, _):
        done: list[int] = []

        async def caller(number: int) -> None:
            for _ in range(10):
                batch = await leader.pipeline.append(request(message(b"%d" % number)), BORN_HOST)
                assert await durability_of(leader, batch) == DURABILITY_REPLICATED
                assert batch.end_physical_offset <= follower.marks.flushed.value
                done.append(batch.end_physical_offset)

        await asyncio.gather(*map(caller, range(30)))
        assert len(done) == 300
        assert leader.flusher.work_count < 150


async def test_a_damaged_replica_file() -> None:
    """With a damaged replica file the log does not start, and its directory is free for the next attempt.

    The file is needed to know whether the log may lead.
    """
    one, other = machine(), machine()
    async with in_sync(one, other):
        pass
    path = DATA_DIR / store_layout.REPLICA
    whole = one.fs.read(path)
    one.fs.write_atomic(path, b"x" + whole[1:])
    before = one.files()
    with pytest.raises(ReplicaFileDamaged, match="replica"):
        await one.start()
    assert {name: data for name, data in one.files().items() if name.name != "abort"} == {
        name: data for name, data in before.items() if name.name != "abort"
    }
    one.fs.write_atomic(path, whole)
    async with one.running() as leader:
        assert leader.in_sync is not None
        assert leader.in_sync.set.size == 2


async def test_what_one_disk_confirmed_is_not_replicated() -> None:
    """A new synchronous master shows messages that only its disk had once the others have them, after a kill, too."""
    one, other = machine(flush_interval_ms=5, flush_pages_min=0), machine(flush_interval_ms=5, flush_pages_min=0)
    async with in_sync(one, other) as (leader, _, wire):
        await append_replicated(leader, b"both")
        wire.leader = None
        await append(leader, message(b"one"), durability=DURABILITY_LOCAL_DISK)
        assert bodies(leader) == [b"both", b"one"]
    for survives in (everything_survives, nothing_survives):
        leader = await one.start(role="sync_master")
        assert bodies(leader) == [b"both"]
        await one.kill(leader, survives)
    leader = await one.start(role="sync_master")
    wire.leader = leader
    follower = await other.start(leader=wire.at(), **SLAVE)
    await eventually(lambda: bodies(leader) == [b"both", b"one"])
    await one.process(leader).log.checkpoint.save()  # type: ignore[union-attr]
    await one.kill(leader, nothing_survives)
    await other.stop(follower)
    async with one.running(role="sync_master") as leader:
        assert bodies(leader) == [b"both", b"one"]
