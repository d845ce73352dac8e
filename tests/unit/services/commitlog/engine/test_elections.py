# SPDX-License-Identifier: Apache-2.0
"""Elections: the leader after leaders stop, come back, or wrongly believe that they lead."""

import asyncio
from functools import partial
from typing import Any

import pytest
from reput.commitlog.v1 import topic_service_pb2 as pb

from libs.formats.config.topics_json import TopicConfig
from libs.formats.state.leadership import LeadershipRecord
from libs.log.state.small_files import load_checkpoint
from libs.requests.errors import TopicNotFound
from services.commitlog.engine.elect.coordinator import CoordinatorUnavailable, View
from services.commitlog.engine.elect.leader_term import ASKING_SHARE
from services.commitlog.engine.statistics import statistics_of
from services.commitlog.engine.write.marks import DURABILITY_LOCAL_DISK, DURABILITY_REPLICATED
from services.commitlog.engine.write.topics import TopicRegistry
from services.commitlog.errors import LeaseOver, NotElected, NotEnoughReplicas, NotLeader
from services.commitlog.rpc.topic_servicer import TopicServicer
from tests.support.cluster import Cluster, Node
from tests.support.commitlog import DATA_DIR, append, bodies, durability_of, message
from tests.support.patience import eventually


async def all_in_sync(cluster: Cluster) -> None:
    """Wait until all members are in sync."""
    await eventually(lambda: len(cluster.coordinator.there.record.in_sync) == 3)


def is_bound(node: Node, least_ms: int) -> bool:
    """Whether the node may not be a candidate for so long."""
    return node.member.bound_ms >= least_ms


async def age(cluster: Cluster, node: Node, duration_ms: int) -> None:
    """Advance the time for a leader, with its beats and their answers in between if others follow it."""
    others = [each for each in cluster.nodes if each is not node and each.is_up]
    for _ in range(duration_ms // 500):
        node.machine.clock.advance(500)
        asks = node.member.lease_left_ms < ASKING_SHARE * node.lease_ms
        for each in others:
            least_ms = each.member.bound_ms if asks else 0
            each.machine.clock.advance(500)
            await eventually(partial(is_bound, each, least_ms))
        await asyncio.sleep(0.05)


async def without_coordinator(cluster: Cluster, leader: Node) -> None:
    """Disconnect all nodes from the coordinator once all are in sync, and wait for longer than a lease."""
    await all_in_sync(cluster)
    for node in cluster.nodes:
        node.cut_coordinator()
    await age(cluster, leader, 3 * leader.lease_ms)


async def test_the_first_leader() -> None:
    """The first leader creates the record; the others follow it and join the set."""
    cluster = Cluster()
    async with cluster.running() as leader:
        assert leader.name == "a"
        await all_in_sync(cluster)
        batch = await append(leader.log, message(b"one"), durability=DURABILITY_REPLICATED)
        assert await durability_of(leader.log, batch) == DURABILITY_REPLICATED


async def test_a_leader_dies() -> None:
    """After the leader dies, another member leads in the next epoch with all replicated data.

    The old leader follows it when it is back.
    """
    cluster = Cluster(role="sync_master")
    async with cluster.running() as leader:
        await all_in_sync(cluster)
        await append(leader.log, message(b"one"))
        await leader.kill()
        cluster.pass_lease()
        await eventually(lambda: cluster.leader is not None)
        new = cluster.leader
        assert new.log.epochs.number == 2
        await leader.start()
        await all_in_sync(cluster)
        await append(new.log, message(b"two"))
        await eventually(lambda: bodies(leader.log) == [b"one", b"two"])


async def test_a_leader_that_slept() -> None:
    """A leader whose lease ended while it slept refuses appends, and has written nothing."""
    cluster = Cluster()
    async with cluster.running() as leader:
        await all_in_sync(cluster)
        end = (await append(leader.log, message(b"one"))).end_physical_offset
        leader.cut_coordinator()
        leader.machine.clock.advance(10_000)
        with pytest.raises(NotLeader):
            await append(leader.log, message(b"two"))
        assert leader.log.marks.wrote.value == end


@pytest.mark.parametrize("role", ["async_master", "sync_master"])
async def test_topics_of_a_leader_that_slept(role: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its lease a leader changes no topic, and acknowledges no change that it wrote before.

    Another log may lead by then.
    """
    cluster = Cluster(role=role)
    async with cluster.running() as leader:
        await all_in_sync(cluster)
        log, create = leader.log, TopicRegistry.create
        topics = TopicServicer(lambda: log)

        async def slow(self: TopicRegistry, name: str, **given: Any) -> TopicConfig:
            topic = await create(self, name, **given)
            leader.cut_coordinator()  # a lease that is renewed before the answer leaves would be valid again
            leader.machine.clock.advance(10_000)
            return topic

        monkeypatch.setattr(TopicRegistry, "create", slow)
        with pytest.raises(LeaseOver):
            await topics.CreateTopic(pb.CreateTopicRequest(name="within"), None)
        calls = (
            topics.CreateTopic(pb.CreateTopicRequest(name="after"), None),
            topics.UpdateTopic(pb.UpdateTopicRequest(name="within", write_queue_count=9), None),
            topics.DeleteTopic(pb.DeleteTopicRequest(name="within"), None),
        )
        for call in calls:
            with pytest.raises(NotLeader):
                await call
        assert log.topics.get("within").write_queue_count != 9
        with pytest.raises(TopicNotFound):
            log.topics.get("after")


async def test_an_answer_that_the_watch_overtakes() -> None:
    """If the lease ends before the election's answer arrives, the member is a candidate again."""
    cluster = Cluster(1)
    async with cluster.running() as leader:
        door, member, elect = leader.door, leader.member, leader.door.elect

        async def elect_late(seen: View, record: LeadershipRecord) -> View:
            door.elect = elect
            won = await elect(seen, record)
            cluster.coordinator.expire()
            over = View(record, "", won.record_version)
            await eventually(lambda: member.view == over)
            return won

        door.elect = elect_late
        cluster.pass_lease()
        await eventually(lambda: cluster.coordinator.there.record.epoch == 3)
        await eventually(lambda: cluster.leader is leader)


async def test_what_alarms_are_told() -> None:
    """Alarms get the leader, the in-sync count, the required count, appends refused for want of members, and cuts."""
    cluster = Cluster(role="sync_master", min_in_sync_replicas=2, replica_lag_ms_max=1_000)
    async with cluster.running() as leader:
        await all_in_sync(cluster)
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
        cluster.pass_lease()
        new = await cluster.led()
        await eventually(lambda: statistics_of(new.log).live_in_sync_count == 2)
        await append(new.log, message(b"instead"))
        await leader.start()
        await eventually(lambda: leader.log is not None and bodies(leader.log) == [b"instead"])
        await eventually(lambda: not leader.roles.is_changing)
        assert leader.roles.statistics().cuts_total == 1


async def test_a_new_leader_shows_what_it_showed() -> None:
    """A killed synchronous master that is elected alone shows the messages up to its checkpoint's confirmed offset."""
    cluster = Cluster(role="sync_master", min_in_sync_replicas=2, checkpoint_interval_ms=10)
    async with cluster.running() as leader:
        await all_in_sync(cluster)
        end = (await append(leader.log, message(b"one"))).end_physical_offset
        node = cluster.at("b:7101")
        await eventually(lambda: node.log.marks.visible.value == end)
        await eventually(lambda: load_checkpoint(node.machine.fs, DATA_DIR).confirmed_physical_offset == end)
        for each in cluster.nodes:
            await each.kill()
        await node.start()
        cluster.pass_lease()
        await eventually(lambda: node.leads)
        assert bodies(node.log) == [b"one"]
        for each in cluster.nodes:
            if not each.is_up:
                await each.start()


async def test_the_coordinator_is_away() -> None:
    """The leader continues in its epoch while all other in-sync members promise not to be candidates."""
    cluster = Cluster()
    async with cluster.running() as leader:
        await without_coordinator(cluster, leader)
        assert leader.member.is_by_promises
        assert "promised" in leader.member.decision.reason
        for durability in (DURABILITY_LOCAL_DISK, DURABILITY_REPLICATED):
            batch = await append(leader.log, message(b"meanwhile"), durability=durability)
            assert await durability_of(leader.log, batch) == durability
        for node in cluster.nodes:
            node.cut_coordinator(is_cut=False)
        await eventually(lambda: not leader.member.is_by_promises and leader.member.lease_left_ms > 0)
        assert cluster.coordinator.there.record.epoch == leader.log.epochs.number == 1


async def test_the_coordinator_is_away_and_a_member_goes() -> None:
    """Without the promise of a member that could be elected, the leader refuses appends."""
    cluster = Cluster()
    async with cluster.running() as leader:
        await without_coordinator(cluster, leader)
        await next(node for node in cluster.nodes if node is not leader).kill()
        await append(leader.log, message(b"promised"))
        leader.machine.clock.advance(leader.lease_ms)
        await eventually(lambda: leader.member.lease_left_ms == 0)
        with pytest.raises(NotLeader):
            await append(leader.log, message(b"refused"))


async def test_a_handover_needs_the_coordinator() -> None:
    """While the coordinator is away the leader keeps its place, because no other member could be elected."""
    cluster = Cluster()
    async with cluster.running() as leader:
        await without_coordinator(cluster, leader)
        with pytest.raises(CoordinatorUnavailable):
            await leader.member.demote("b", "b:7101", epoch=0)
        await append(leader.log, message(b"goes on"))


async def test_a_leader_that_is_cut_from_the_coordinator_alone() -> None:
    """The other members notice the end of the lease and keep their promise.

    The leader leads again, in a new epoch, when it reaches the coordinator.
    """
    cluster = Cluster()
    async with cluster.running() as leader:
        await all_in_sync(cluster)
        leader.cut_coordinator()
        await age(cluster, leader, 4_000)
        cluster.coordinator.expire()
        await age(cluster, leader, leader.lease_ms)
        assert cluster.coordinator.there.record.epoch == 1
        others = [node for node in cluster.nodes if node is not leader]
        assert all("promised" in node.member.decision.reason for node in others)
        with pytest.raises(NotElected, match="is there"):
            await others[0].member.promote("async_master", epoch=0, end_physical_offset=0, accepts_loss=True)
        await append(leader.log, message(b"meanwhile"), durability=DURABILITY_LOCAL_DISK)
        leader.cut_coordinator(is_cut=False)
        await eventually(lambda: cluster.leader is leader and leader.log.epochs.number == 2)
        assert bodies(leader.log) == [b"meanwhile"]


async def test_who_was_just_started_may_have_promised() -> None:
    """A started member waits for the time of a lease, unless the leader released its lease or was this member."""
    cluster = Cluster()
    async with cluster.running() as leader:
        await all_in_sync(cluster)
        follower = next(node for node in cluster.nodes if node is not leader)
        for node in cluster.nodes:
            await node.kill()
        cluster.coordinator.expire()
        await follower.start()
        await eventually(lambda: "before it was started" in follower.member.decision.reason)
        await leader.start()
        await eventually(lambda: cluster.leader is leader)
        await leader.stop()
        await eventually(lambda: cluster.leader is follower)


async def test_what_was_confirmed_alone_is_shown_again_at_once() -> None:
    """A synchronous master that is elected again shows its confirmed messages without the others."""
    cluster = Cluster(2, role="sync_master", checkpoint_interval_ms=3_600_000)
    leader, other = cluster.nodes
    await leader.start()
    await cluster.led()
    end = (await append(leader.log, message(b"one"), durability=DURABILITY_LOCAL_DISK)).end_physical_offset
    await eventually(lambda: leader.log.marks.visible.value == end)
    await leader.log.checkpoint.save()
    await other.start()
    await eventually(lambda: len(cluster.coordinator.there.record.in_sync) == 2)
    for node in cluster.nodes:
        await node.kill()
    await leader.start()
    await cluster.led()
    assert bodies(leader.log) == [b"one"]
    await leader.stop()


async def test_a_coordinator_that_is_back_is_told_as_away_no_more() -> None:
    """A watch that reaches the coordinator again clears its last error and its failure count."""
    cluster = Cluster()
    async with cluster.running() as leader:
        await all_in_sync(cluster)
        for node in cluster.nodes:
            node.cut_coordinator()
        cluster.coordinator.advance(0)  # the watches notice it
        await eventually(lambda: all(node.member.watch.last_error is not None for node in cluster.nodes))
        for node in cluster.nodes:
            node.cut_coordinator(is_cut=False)
        await eventually(lambda: all(node.member.watch.last_error is None for node in cluster.nodes))
        assert [node.member.watch.failures_in_row_count for node in cluster.nodes] == [0, 0, 0]
        assert cluster.leader is leader


async def test_a_new_record_ends_the_wait_for_the_same_leader() -> None:
    """A follower that waits for its leader connects at once when the record names the leader."""
    cluster = Cluster(reconnect_ms_max=3_600_000)
    async with cluster.running() as leader:
        await all_in_sync(cluster)
        follower = next(node for node in cluster.nodes if node is not leader)
        following = follower.log.follower
        following.loop.failures_in_row_count = 30
        cluster.cuts.add(frozenset({leader.name, follower.name}))
        await append(leader.log, message(b"one"))
        await eventually(lambda: following.loop.failures_in_row_count > 30)
        cluster.cuts.clear()
        there = cluster.coordinator.there
        cluster.coordinator.put(there, there.record, there.holder, keeps=True)
        await eventually(lambda: following.is_connected)
        await eventually(lambda: following.loop.failures_in_row_count == 0)
        assert following.last_error == ""


async def test_a_follower_that_is_stopped_in_order_is_not_waited_for() -> None:
    """A follower announces its stop and leaves the record first; a follower that the set needs stays in the record."""
    cluster = Cluster(role="sync_master")
    async with cluster.running() as leader:
        await all_in_sync(cluster)
        first, second = (node for node in cluster.nodes if node is not leader)
        await first.stop()
        assert {one.replica_id for one in cluster.coordinator.there.record.in_sync} == {leader.name, second.name}
        batch = await append(leader.log, message(b"one"), durability=DURABILITY_REPLICATED)
        assert await durability_of(leader.log, batch) == DURABILITY_REPLICATED
        await first.start()
        await all_in_sync(cluster)
        await second.stop()
        await first.stop()
        assert len(cluster.coordinator.there.record.in_sync) == 2
        with pytest.raises(NotEnoughReplicas):
            await append(leader.log, message(b"two"))


async def test_a_report_of_another_leader_ends_the_back_off_of_decisions() -> None:
    """The address in the report does not count: the member reads the record, however often it failed before."""
    cluster = Cluster()
    async with cluster.running() as leader:
        await all_in_sync(cluster)
        follower = next(node for node in cluster.nodes if node is not leader)
        follower.member.loop.failures_in_row_count = 30
        follower.log.follower.leader.move("nowhere:1")
        assert follower.member.loop.failures_in_row_count == 0
        assert follower.roles.setting.leader_target == leader.target
