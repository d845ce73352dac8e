# SPDX-License-Identifier: Apache-2.0
"""Elections: who leads when leaders go, come back, or think that they lead."""

import pytest

from libs.log.state.small_files import load_checkpoint
from services.commitlog.engine.statistics import statistics_of
from services.commitlog.engine.write.marks import DURABILITY_LOCAL_DISK, DURABILITY_REPLICATED
from services.commitlog.errors import NotEnoughReplicas, NotLeader
from tests.support.cluster import Cluster
from tests.support.commitlog import DATA_DIR, append, bodies, durability_of, message
from tests.support.patience import eventually


async def test_the_first_leader() -> None:
    """It makes the record; the others follow it, and come in."""
    cluster = Cluster()
    async with cluster.running() as leader:
        assert leader.name == "a"
        await eventually(lambda: len(cluster.coordinator.there.record.in_sync) == 3)
        batch = await append(leader.log, message(b"one"), durability=DURABILITY_REPLICATED)
        assert await durability_of(leader.log, batch) == DURABILITY_REPLICATED


async def test_a_leader_dies() -> None:
    """Another one leads in the next epoch with all that was replicated, and the old one follows when it is back."""
    cluster = Cluster(role="sync_master")
    async with cluster.running() as leader:
        await eventually(lambda: len(cluster.coordinator.there.record.in_sync) == 3)
        await append(leader.log, message(b"one"))
        await leader.kill()
        cluster.coordinator.expire()
        await eventually(lambda: cluster.leader is not None)
        new = cluster.leader
        assert new.log.epochs.number == 2
        await leader.start()
        await eventually(lambda: len(cluster.coordinator.there.record.in_sync) == 3)
        await append(new.log, message(b"two"))
        await eventually(lambda: bodies(leader.log) == [b"one", b"two"])


async def test_a_leader_that_slept() -> None:
    """Whatever it is asked for after its lease: it does not lead, and has written nothing."""
    cluster = Cluster()
    async with cluster.running() as leader:
        end = (await append(leader.log, message(b"one"))).end_physical_offset
        leader.machine.clock.advance(10_000)
        with pytest.raises(NotLeader):
            await append(leader.log, message(b"two"))
        assert leader.log.marks.wrote.value == end


async def test_what_alarms_are_told() -> None:
    """Who leads, how many are in sync and must be, what was refused for want of them, and that a log was cut."""
    cluster = Cluster(role="sync_master", min_in_sync_replicas=2, replica_lag_ms_max=1_000)
    async with cluster.running() as leader:
        await eventually(lambda: len(cluster.coordinator.there.record.in_sync) == 3)
        told = statistics_of(leader.log)
        assert (told.is_leader, told.in_sync_count, told.live_in_sync_count, told.min_in_sync_count) == (1, 3, 3, 2)
        follower = next(node for node in cluster.nodes if node is not leader)
        told = statistics_of(follower.log)
        assert (told.is_leader, told.is_out, told.in_sync_count, told.min_in_sync_count) == (0, 0, 0, 0)
        others = [node for node in cluster.nodes if node is not leader]
        for node in others:
            await node.kill()
        await eventually(lambda: statistics_of(leader.log).live_in_sync_count == 1)
        with pytest.raises(NotEnoughReplicas):
            await append(leader.log, message(b"refused"))
        await append(leader.log, message(b"alone"), durability=DURABILITY_LOCAL_DISK)
        leader.machine.clock.advance(500)
        await eventually(lambda: statistics_of(leader.log).in_sync_lag_ms >= 500)
        assert statistics_of(leader.log).not_enough_replicas_total == 1
        await leader.kill()
        for node in others:
            await node.start()
        cluster.coordinator.expire()
        new = await cluster.led()
        await eventually(lambda: statistics_of(new.log).live_in_sync_count == 2)
        await append(new.log, message(b"instead"))
        await leader.start()
        await eventually(lambda: leader.log is not None and bodies(leader.log) == [b"instead"])
        await eventually(lambda: not leader.roles.is_changing)
        assert leader.roles.statistics().cuts_total == 1


async def test_a_new_leader_shows_what_it_showed() -> None:
    """A copy of a synchronous master that was killed shows, elected and alone, what its checkpoint knew."""
    cluster = Cluster(role="sync_master", min_in_sync_replicas=2, checkpoint_interval_ms=10)
    async with cluster.running() as leader:
        await eventually(lambda: len(cluster.coordinator.there.record.in_sync) == 3)
        end = (await append(leader.log, message(b"one"))).end_physical_offset
        node = cluster.at("b:7101")
        await eventually(lambda: node.log.marks.visible.value == end)
        await eventually(lambda: load_checkpoint(node.machine.fs, DATA_DIR).confirmed_physical_offset == end)
        for each in cluster.nodes:
            await each.kill()
        await node.start()
        cluster.coordinator.expire()
        await eventually(lambda: node.leads)
        assert bodies(node.log) == [b"one"]
        for each in cluster.nodes:
            if not each.is_up:
                await each.start()
