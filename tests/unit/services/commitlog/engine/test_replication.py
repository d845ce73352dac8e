# SPDX-License-Identifier: Apache-2.0
"""A log and its copy in one process: same bytes, same state, after any failure of wire, processes and disks."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

import pytest
from reput.commitlog.v1 import append_service_pb2 as pb

from libs.machine.testing.memory_fs import everything_survives, nothing_survives
from libs.requests.errors import BadArgument
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.replicate import stream as leader_side
from services.commitlog.engine.replicate.follower import FollowingState
from services.commitlog.engine.replicate.steps import Ack, Beat, Chunk, Hello, Step
from services.commitlog.engine.write.gate import Reason
from services.commitlog.errors import NotLeader, StaleEpoch, StreamIdle
from tests.support.commitlog import (
    BORN_HOST,
    Machine,
    append,
    bodies,
    fill,
    message,
    records,
    request,
    synced,
)
from tests.support.patience import eventually
from tests.support.replication import Wire, caught_up, same_segments


@contextlib.asynccontextmanager
async def two(**changes: Any) -> AsyncIterator[tuple[OpenLog, OpenLog, Wire, Machine, Machine]]:
    """A leader and a follower on machines of their own."""
    one, other = Machine(**changes), Machine(**changes)
    leader = await one.start()
    wire = Wire(leader)
    follower = await other.start(leader=wire.at(), role="slave", replica_id="b", reconnect_ms_max=100)
    try:
        yield leader, follower, wire, one, other
    finally:
        await other.stop(follower)
        await one.stop(leader)
    assert one.failures == other.failures == []


@pytest.mark.parametrize("chunk_size_bytes", [7, 1_000, 1 << 20])
async def test_same_bytes(chunk_size_bytes: int) -> None:
    """The follower has the leader's segments, epochs, topics and counters, with chunks of any size."""
    async with two() as (leader, follower, wire, one, other):
        wire.chunk_size_bytes = chunk_size_bytes
        for number in range(20):
            await append(leader, *(message(b"%d" % number * 100, topic=topic) for topic in ("orders", "payments")))
        await fill(leader, 3)
        await caught_up(follower, leader)
        assert bodies(follower) == bodies(leader)
        assert follower.epochs.epochs == leader.epochs.epochs
        assert follower.epochs.history_id == leader.epochs.history_id
        assert follower.topics.file == leader.topics.file
        assert sorted(follower.state.table.frozen_counters()) == sorted(leader.state.table.frozen_counters())
        assert same_segments(one, other)
        assert follower.follower is not None
        await eventually(lambda: follower.follower.state is FollowingState.FOLLOWING)
        (replica,) = leader.replicas.connected
        await eventually(lambda: replica.flushed_physical_offset == leader.marks.wrote.value)
        assert (replica.replica_id, leader.replicas.lag_bytes, follower.follower.lag_bytes) == ("b", 0, 0)


async def test_a_follower_takes_nothing_else() -> None:
    """A follower refuses appends and followers of its own, and names the leader."""
    async with two() as (leader, follower, wire, _, _):
        await append(leader, message())
        await caught_up(follower, leader)
        with pytest.raises(NotLeader) as refused:
            await append(follower, message())
        assert refused.value.leader == "leader:7101"
        assert follower.gate.refusals() == ["NOT_LEADER"]
        wire.leader = None
        with pytest.raises(NotLeader):  # it stays a follower when the leader is away
            follower.gate.check_leads()
        with pytest.raises(NotLeader):
            follower.replicas.follow(wire.hellos[0])


async def test_topics_follow() -> None:
    """Topics that are created, changed and deleted at the leader are so on the follower's disk."""
    async with two() as (leader, follower, _, _, other):
        await leader.topics.create("a", write_queue_count=3)
        await leader.topics.create("b")
        await append(leader, message(topic="a", queue_id=2))
        await caught_up(follower, leader)
        assert follower.topics.get("a").write_queue_count == 3
        await leader.topics.delete("b")
        await leader.topics.update("a", write_queue_count=5)
        await eventually(lambda: follower.topics.find("b") is None)
        assert follower.topics.file == leader.topics.file
    async with other.running() as promoted:
        assert promoted.topics.get("a").write_queue_count == 5
        assert promoted.topics.find("b") is None


async def test_readers_see_what_the_leader_shows_and_the_disk_has() -> None:
    """Readers of a follower see no bytes that either side could still lose."""
    async with two() as (leader, follower, wire, _, _):
        await eventually(lambda: leader.in_sync.set.live_count == 2)  # a log that is to come in is synced at once
        await append(leader, message(b"one"))
        await eventually(lambda: follower.marks.wrote.value == leader.marks.wrote.value)
        assert follower.marks.visible.value == follower.marks.flushed.value == 0
        await synced(follower)
        await eventually(lambda: bodies(follower) == [b"one"])
        wire.change = _tells_nothing
        await append(leader, message(b"two"))
        await eventually(lambda: follower.marks.wrote.value == leader.marks.wrote.value)
        await synced(follower)
        assert bodies(follower) == [b"one"]


def _tells_nothing(step: Step) -> Step:
    return replace(step, confirmed_physical_offset=0) if isinstance(step, Chunk | Beat) else step


async def test_a_cut_wire() -> None:
    """With a cut wire the follower's messages stay readable, and the rest arrives when the leader is back."""
    async with two() as (leader, follower, wire, one, other):
        await append(leader, message(b"one"))
        await caught_up(follower, leader)
        wire.leader = None
        await append(leader, message(b"two"))
        assert bodies(follower) == [b"one"]
        assert follower.follower is not None
        await eventually(lambda: "cut" in follower.follower.last_error)
        assert follower.follower.state is FollowingState.CONNECTING
        wire.leader = leader
        await caught_up(follower, leader)
        assert bodies(follower) == [b"one", b"two"]
        assert len(leader.replicas.connected) == 1
        assert same_segments(one, other)


@pytest.mark.parametrize("is_killed", [False, True])
@pytest.mark.parametrize("is_power_cut", [False, True])
async def test_a_follower_that_comes_back(is_killed: bool, is_power_cut: bool) -> None:
    """After any stop a start continues at the end of the log, without an epoch of its own."""
    one, other = Machine(), Machine()
    async with one.running() as leader:
        wire = Wire(leader)
        slave: dict[str, Any] = {"leader": wire.at(), "role": "slave", "replica_id": "b"}
        follower = await other.start(**slave)
        await append(leader, message(b"one"))
        await caught_up(follower, leader)
        await fill(leader, 2)
        await eventually(lambda: follower.marks.wrote.value == leader.marks.wrote.value)
        if is_killed:
            await other.kill(follower, nothing_survives if is_power_cut else everything_survives)
        else:
            await other.stop(follower)
        await append(leader, message(b"last"))
        follower = await other.start(**slave)
        assert is_killed or bodies(follower)[:1] == [b"one"]
        await caught_up(follower, leader)
        assert bodies(follower) == bodies(leader)
        assert follower.epochs.epochs == leader.epochs.epochs
        await other.stop(follower)
        assert same_segments(one, other)


async def test_a_leader_that_comes_back() -> None:
    """The follower takes over the epoch that begins after a crash of the leader."""
    one, other = Machine(), Machine()
    leader = await one.start()
    wire = Wire(leader)
    follower = await other.start(leader=wire.at(), role="slave", replica_id="b", reconnect_ms_max=100)
    await append(leader, message(b"one"))
    await caught_up(follower, leader)
    wire.leader = None
    await one.kill(leader)
    wire.leader = leader = await one.start()
    assert leader.epochs.number == 2
    await append(leader, message(b"two"))
    await caught_up(follower, leader)
    assert bodies(follower) == [b"one", b"two"]
    assert follower.epochs.epochs == leader.epochs.epochs
    await one.stop(leader)
    await other.stop(follower)
    assert same_segments(one, other)


async def test_promotion() -> None:
    """A follower that is started as a master continues the numbers of the log, in an epoch of its own."""
    one, other = Machine(), Machine()
    async with one.running() as leader:
        wire = Wire(leader)
        follower = await other.start(leader=wire.at(), role="slave", replica_id="b")
        first = await append(leader, message(b"one"), message(b"two", topic="payments"))
        await caught_up(follower, leader)
        await other.stop(follower)
    async with other.running() as promoted:
        first_epoch, own_epoch = promoted.epochs.epochs
        assert (first_epoch.number, own_epoch.number > 1) == (1, True)
        assert promoted.epochs.epochs[-1].start_physical_offset == first.end_physical_offset
        await append(promoted, message(b"three"))
        assert [(each.topic, each.queue_offset) for each in records(promoted)] == [
            ("orders", 0), ("payments", 0), ("orders", 1)
        ]  # fmt: skip
        former = await one.start(leader=Wire(promoted).at(), role="slave", replica_id="a")
        await caught_up(former, promoted)
        assert bodies(former) == [b"one", b"two", b"three"]
        await one.stop(former)
    assert same_segments(one, other)


async def test_another_log() -> None:
    """A follower with another history is refused, and its store is never written."""
    one, other = Machine(), Machine()
    async with one.running() as leader, other.running() as stranger:
        await append(leader, message(b"one"))
        await append(stranger, message(b"two"))
    async with one.running() as leader:
        stranger = await other.start(leader=Wire(leader).at(), role="slave", replica_id="b")
        assert stranger.follower is not None
        await eventually(lambda: stranger.follower.state is FollowingState.OUT)
        assert "different logs" in stranger.follower.last_error
        await synced(stranger)
        assert stranger.marks.wrote.value > 0
        await other.stop(stranger)


async def test_a_late_start() -> None:
    """A follower that starts at the leader's first kept byte has all numbers, also of queues without a record."""
    one, other = Machine(), Machine()
    async with one.running() as leader:
        await append(leader, message(b"gone", topic="quiet"))
        await fill(leader, 3)
        await synced(leader)
        await leader.segments.delete([0], allow_unindexed=True)
        start = leader.chain.min_physical_offset
        follower = await other.start(leader=Wire(leader).at(), role="slave", replica_id="b")
        await caught_up(follower, leader)
        assert follower.chain.min_physical_offset == start > 0
        assert bodies(follower) == bodies(leader)
        assert sorted(follower.state.table.frozen_counters()) == sorted(leader.state.table.frozen_counters())
        await other.stop(follower)
    assert same_segments(one, other)
    async with other.running() as promoted:
        assert promoted.recovery.missing_bytes == 0
        assert promoted.gate.is_open
        await append(promoted, message(b"next", topic="quiet"))
        assert records(promoted)[-1].queue_offset == 1


async def test_left_behind() -> None:
    """A follower whose next bytes are deleted reports it and stays readable."""
    one, other = Machine(), Machine()
    async with one.running() as leader:
        slave: dict[str, Any] = {"leader": Wire(leader).at(), "role": "slave", "replica_id": "b"}
        follower = await other.start(**slave)
        await append(leader, message(b"one"))
        await caught_up(follower, leader)
        await other.stop(follower)
        await fill(leader, 3)
        await synced(leader)
        await leader.segments.delete([0], allow_unindexed=True)
        follower = await other.start(**slave)
        assert follower.follower is not None
        await eventually(lambda: follower.follower.state is FollowingState.OUT)
        assert "its leader keeps it from 65536 on" in follower.follower.last_error
        assert bodies(follower) == [b"one"]
        await other.stop(follower)


@pytest.mark.parametrize("position", [0, 4, 20, 60, 95])
async def test_changed_bytes(position: int) -> None:
    """A chunk that is no record of its place is never written, and the stream begins again."""
    async with two() as (leader, follower, wire, one, other):
        await append(leader, message(b"one"))
        await caught_up(follower, leader)
        end = leader.marks.wrote.value

        def changed(step: Step) -> Step:
            if not isinstance(step, Chunk):
                return step
            data = bytearray(step.data)
            data[position] ^= 0x41
            return replace(step, data=bytes(data))

        wire.change = changed
        await append(leader, message(b"two"))
        assert follower.follower is not None
        await eventually(lambda: len(wire.hellos) > 2)
        assert (follower.marks.wrote.value, bodies(follower)) == (end, [b"one"])
        wire.change = lambda step: step
        await caught_up(follower, leader)
        assert same_segments(one, other)


async def test_a_batch_of_a_writer_comes_whole() -> None:
    """The log never has a part of a writer's batch."""
    async with two() as (leader, follower, wire, one, other):
        wire.chunk_size_bytes = 200
        ends, seen = {0}, set()
        for sequence in range(4):
            batch = await leader.pipeline.append(
                request(*(message(b"x" * 90) for _ in range(5)), writer=pb.Writer(id="w", sequence=sequence)), BORN_HOST
            )
            ends.add(batch.end_physical_offset)
        while follower.marks.wrote.value < leader.marks.wrote.value:
            seen.add(follower.marks.wrote.value)
            await asyncio.sleep(0)
        assert seen <= ends
        await caught_up(follower, leader)
        assert follower.state.writers.batches() == leader.state.writers.batches()
        assert same_segments(one, other)


async def test_the_window() -> None:
    """The stream to a follower that does not acknowledge stops when its window is full."""
    async with two(segment_size_bytes=8 << 20) as (leader, _, _, _, _):
        stream = leader.replicas.follow(
            Hello("slow", "1" * 32, "", (), 0, 0, 8 << 20, needs_queue_offsets=False, window_bytes=1 << 20)
        )
        for _ in range(5):
            await append(leader, message(bytes(1_000_000)))
        sent = 0
        steps = leader.replicas.steps(stream)
        async for step in steps:
            if isinstance(step, Chunk):
                sent += len(step.data)
            elif isinstance(step, Beat):
                break
        assert 1 << 20 <= sent <= 2 << 20
        with pytest.raises(BadArgument, match="was sent before"):
            stream.acknowledge(Ack(1, sent + 1, 0))
        with pytest.raises(BadArgument, match="has arrived before"):
            stream.acknowledge(Ack(1, 5, 6))
        with pytest.raises(StaleEpoch):
            stream.acknowledge(Ack(2, 5, 5))
        stream.acknowledge(Ack(1, sent, 0))
        assert isinstance(await anext(steps), Chunk)
        await steps.aclose()


async def test_a_second_stream_under_a_name() -> None:
    """The newest stream of a name counts, so that a dead connection does not exclude its follower."""
    async with two() as (leader, _, wire, _, _):
        await eventually(lambda: wire.hellos)
        steps = leader.replicas.steps(leader.replicas.follow(wire.hellos[0]))
        await anext(steps)
        await eventually(lambda: len(wire.hellos) == 2)
        with pytest.raises(StaleEpoch):
            async for _ in steps:
                pass


async def test_a_former_stream_that_ends_late() -> None:
    """A member with a newer stream stays connected when its former stream ends late."""
    async with two() as (leader, _, wire, _, _):
        await in_sync(leader)
        former = leader.replicas.stream_of("b")
        assert former is not None
        current = leader.replicas.follow(wire.hellos[0])
        former.end(StreamIdle(timeout_ms=3_000))
        current.acknowledge(Ack(leader.epochs.number, 0, 0))
        assert leader.in_sync is not None
        assert leader.in_sync.set.live_count == 2


async def test_a_follower_without_room() -> None:
    """A follower without room waits, reports it, and continues when there is room."""
    async with two() as (leader, follower, _, one, other):
        await append(leader, message(b"one"))
        await caught_up(follower, leader)
        follower.gate.put(Reason.DISK_FULL, holds=True)
        await append(leader, message(b"two"))
        assert follower.follower is not None
        await eventually(lambda: "disk" in follower.follower.last_error)
        assert bodies(follower) == [b"one"]
        follower.gate.put(Reason.DISK_FULL, holds=False)
        await caught_up(follower, leader)
        assert same_segments(one, other)


async def test_a_handover_to_one_that_syncs_seldom() -> None:
    """A handover asks a follower that syncs seldom for a sync, although no new data is sent to it."""
    async with two(flush_mode="async", flush_pages_min=1_000, flush_thorough_interval_ms=3_600_000) as (
        leader, follower, _, _, _,
    ):  # fmt: skip
        await in_sync(leader)
        await append(leader, message())
        await eventually(lambda: follower.marks.wrote.value == leader.marks.wrote.value)
        (replica,) = leader.replicas.connected
        await eventually(lambda: replica.received_physical_offset == leader.marks.wrote.value)
        assert leader.handover is not None
        end = await leader.handover.run("b", "b:1")
        assert end == follower.marks.flushed.value == leader.marks.wrote.value


@pytest.mark.parametrize("comes", [True, False])
async def test_a_handover_waits_for_the_others(*, comes: bool) -> None:
    """An append that waits for a third disk is answered before the handover ends; a dead member does not block it."""
    async with two(min_in_sync_replicas=2, handover_timeout_ms=10_000 if comes else 2_000) as parts:
        leader = parts[0]
        third, slow = Machine(), Wire(leader)
        late = await third.start(leader=slow.at(), role="slave", replica_id="c", reconnect_ms_max=100)
        await eventually(lambda: [one.is_in_sync for one in leader.replicas.connected] == [True, True])
        slow.can_acknowledge.clear()
        await append(leader, message())
        assert leader.handover is not None
        handing = asyncio.create_task(leader.handover.run("b", "b:1"))
        await eventually(lambda: leader.gate.holds(Reason.NOT_LEADER))
        await asyncio.sleep(0.1)
        assert not handing.done()
        if comes:
            slow.can_acknowledge.set()
        assert await handing == leader.marks.wrote.value
        assert (leader.marks.replicated.value == leader.marks.wrote.value) is comes
        slow.can_acknowledge.set()
        await third.stop(late)


async def test_what_arrives_while_an_acknowledgement_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Data that arrives while an acknowledgement is sent is acknowledged by the next, without other traffic."""
    monkeypatch.setattr(leader_side, "BEAT_S", 3_600.0)
    async with two(flush_mode="async", flush_pages_min=1_000, flush_thorough_interval_ms=3_600_000) as (
        leader, follower, wire, _, _,
    ):  # fmt: skip
        await eventually(lambda: len(leader.replicas.connected) == 1)
        wire.can_acknowledge.clear()
        for _ in range(3):
            await append(leader, message())
            await eventually(lambda: follower.marks.wrote.value == leader.marks.wrote.value)
        wire.can_acknowledge.set()
        (replica,) = leader.replicas.connected
        await eventually(lambda: replica.received_physical_offset == leader.marks.wrote.value)


async def in_sync(leader: OpenLog) -> None:
    """Wait until the follower is in the in-sync set."""
    await eventually(lambda: [one.is_in_sync for one in leader.replicas.connected] == [True])


async def test_a_stream_that_delivers_ends_the_failures_before_it() -> None:
    """After a stream delivers, the follower's failure count and its last error are cleared."""
    async with two() as (leader, follower, wire, _, _):
        await append(leader, message(b"one"))
        await caught_up(follower, leader)
        wire.leader = None
        await append(leader, message(b"two"))
        await eventually(lambda: follower.follower.loop.failures_in_row_count >= 2)
        wire.leader = leader
        await caught_up(follower, leader)
        assert follower.follower.last_error == ""
        assert (follower.follower.loop.failures_in_row_count, follower.follower.loop.last_error) == (0, None)
