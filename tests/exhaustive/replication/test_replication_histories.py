# SPDX-License-Identifier: Apache-2.0
"""A log and its copy are equal at the end of random histories, with any deaths, changes of leader and delays."""

import random
import re

import pytest
from reput.commitlog.v1 import append_service_pb2 as pb

from libs.formats import store_layout
from libs.log.state import small_files
from libs.machine.testing.memory_fs import MemoryFs, everything_survives, nothing_survives
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.replicate.follower import FollowingState
from services.commitlog.engine.write.gate import Reason
from services.commitlog.engine.write.marks import DURABILITY_REPLICATED
from services.commitlog.errors import NotEnoughReplicas
from tests.support.commitlog import (
    BORN_HOST,
    DATA_DIR,
    Machine,
    append,
    durability_of,
    fill,
    message,
    records,
    request,
    synced,
)
from tests.support.patience import eventually
from tests.support.replication import Wire, caught_up, same_segments

KINDS = {
    "append": 10, "replicated": 10, "writer": 6, "fill": 3, "sync": 4, "topic": 2, "follow": 6, "end leader": 2,
    "end follower": 4, "wire": 3, "delete": 2, "swap": 2,
}  # fmt: skip
TOPICS = ("orders", "payments", "audit")


class Pair:
    """Two machines, a leader and a follower."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        mode = chance.choice(("sync", "async"))
        interval_ms = chance.choice((5, 3_600_000))
        self.machines = [
            Machine(flush_mode=mode, flush_interval_ms=interval_ms, flush_pages_min=0, snapshot_interval_ms=interval_ms)
            for _ in range(2)
        ]
        self.wire = Wire()
        self.wire.chunk_size_bytes = chance.choice((50, 1_000, 1 << 20))
        self.leading = 0
        self.leader: OpenLog | None = None
        self.follower: OpenLog | None = None
        self.role = chance.choice(("async_master", "sync_master"))
        self.replicated: dict[int, bytes] = {}
        """Bodies of the messages that were acknowledged as replicated, by physical offset."""
        self.number = 0
        self.sequences: dict[str, int] = {}

    async def lead(self) -> OpenLog:
        """Return the leader, which is started if it is down.

        A machine that does not know its queue offsets lets the other machine lead.
        """
        while self.leader is None:
            log = await self.machines[self.leading].start(role=self.role, replicate_timeout_ms=300)
            if log.gate.holds(Reason.QUEUE_OFFSETS_UNKNOWN):
                await self.end_follower()
                await self.machines[self.leading].stop(log)
                self.leading = 1 - self.leading
            else:
                self.wire.leader = self.leader = log
        return self.leader

    async def follow(self) -> OpenLog:
        """Return the follower, which is started and truncated if necessary.

        A follower that was left behind begins with an empty disk.
        """
        machine = self.machines[1 - self.leading]
        self.wire.leader = await self.lead()
        cut = None  # a request of an earlier follower may be of the other machine
        while self.follower is None:
            self.wire.cuts.clear()
            log = await machine.start(
                leader=self.wire.at(), cut=cut, role="slave", replica_id="b", reconnect_ms_max=100
            )
            follower = log.follower
            assert follower is not None
            await eventually(lambda: follower.state is not FollowingState.CONNECTING)  # noqa: B023
            if follower.state is not FollowingState.OUT:
                self.follower = log
            elif self.wire.cuts:
                cut = self.wire.cuts.pop()
                await self.end(machine, log)
            else:
                why = "its leader keeps it from|this log knows of epoch|no newer epoch|all that it has"
                if not self.replicated:  # then the machine with the shorter log may lead
                    why += "|it is the leader that lacks something"
                assert re.search(why, follower.last_error)
                await self.end(machine, log)
                machine.fs, cut = MemoryFs(), None
        return self.follower

    async def end(self, machine: Machine, log: OpenLog) -> None:
        """End a machine by a stop, a kill or a power cut."""
        how = self.chance.choice(("stop", "kill", "power cut"))
        if how == "stop":
            await machine.stop(log)
        else:
            await machine.kill(log, everything_survives if how == "kill" else nothing_survives)

    async def end_leader(self) -> None:
        """End the leader, if it runs."""
        log, self.leader, self.wire.leader = self.leader, None, None
        if log is not None:
            await self.end(self.machines[self.leading], log)

    async def end_follower(self) -> None:
        """End the follower, if it runs."""
        log, self.follower = self.follower, None
        if log is not None:
            await self.end(self.machines[1 - self.leading], log)

    async def step(self) -> None:
        """Let a random event happen."""
        chance = self.chance
        kind = chance.choices(list(KINDS), KINDS.values())[0]
        log = await self.lead()
        match kind:
            case "append":
                self.number += 1
                body = b"%d " % self.number * chance.choice((1, 20, 400))
                await append(
                    log, *(message(body, chance.choice(TOPICS)) for _ in range(chance.choice((1, 3)))), durability=1
                )
            case "replicated":
                await self.append_replicated(log)
            case "writer":
                await self.append_as_writer(log)
            case "fill":
                await fill_some(log)
            case "sync":
                await synced(log)
            case "topic":
                await self.change_topics(log)
            case "follow":
                await self.follow()
            case "end leader":
                await self.end_leader()
            case "end follower":
                await self.end_follower()
            case "wire":
                self.wire.leader = None if self.wire.leader else log
            case "delete":
                await synced(log)
                await log.segments.delete(
                    [segment.base_physical_offset for segment in log.chain.segments[:1]], allow_unindexed=True
                )
            case "swap":
                await self.end_follower()
                await self.end_leader()
                if self.may_lead(self.machines[1 - self.leading]):
                    self.leading = 1 - self.leading

    def may_lead(self, machine: Machine) -> bool:
        """Whether the machine has all replicated messages: it was in sync last, or no message was replicated."""
        if not machine.exists(store_layout.EPOCHS):
            return False
        replica = small_files.load_replica(machine.fs, DATA_DIR)
        in_sync = small_files.load_in_sync(self.machines[self.leading].fs, DATA_DIR)
        others = in_sync.others if in_sync else []
        return not self.replicated or (replica is not None and replica.store_id in {one.store_id for one in others})

    async def append_replicated(self, log: OpenLog) -> None:
        """Append a message, if there are enough members, and record it if it was replicated."""
        self.number += 1
        body = b"replicated %d " % self.number * self.chance.choice((1, 20))
        try:
            batch = await log.pipeline.append(request(message(body), durability=DURABILITY_REPLICATED), BORN_HOST)
        except NotEnoughReplicas:
            return
        if await durability_of(log, batch) == DURABILITY_REPLICATED:
            self.replicated[batch.start_physical_offset] = body

    async def append_as_writer(self, log: OpenLog) -> None:
        """Append the next batch of a writer, as the log knows it."""
        known = dict(log.state.writers.next_sequences())
        name = self.chance.choice(("w0", "w1"))
        writer = pb.Writer(id=name, sequence=known.get(name, 0))
        parts = [message(b"%d" % self.number * 50) for _ in range(self.chance.choice((1, 4)))]
        await log.pipeline.append(request(*parts, writer=writer, durability=1), BORN_HOST)

    async def change_topics(self, log: OpenLog) -> None:
        """Create, widen or delete a topic."""
        if log.topics.find("extra") is None:
            await log.topics.create("extra")
        elif self.chance.random() < 0.5:
            await log.topics.delete("extra")
        else:
            await log.topics.update("extra", write_queue_count=self.chance.randint(4, 9))

    async def check(self) -> None:
        """Check that leader and follower have the same records and state."""
        leader = await self.lead()
        self.wire.leader = leader
        await self.end_follower()  # it may have been left behind, or have to be cut
        follower = await self.follow()
        await eventually(lambda: follower.marks.wrote.value == leader.marks.wrote.value)
        await follower.marks.flushed.soon(follower.marks.wrote.value)
        self.machines[self.leading].clock.advance(60_000)  # a member that is gone for good leaves the set
        await synced(leader)
        await eventually(lambda: leader.marks.visible.value == leader.marks.wrote.value)
        await caught_up(follower, leader)
        start = max(follower.chain.min_physical_offset, leader.chain.min_physical_offset)
        found = {record.physical_offset: record.body for record in records(leader, start)}
        assert self.replicated.items() <= found.items() | {one for one in self.replicated.items() if one[0] < start}
        assert records(follower, start) == records(leader, start)
        assert follower.epochs.epochs[-1] == leader.epochs.epochs[-1]
        assert sorted(follower.state.writers.next_sequences()) == sorted(leader.state.writers.next_sequences())
        assert counters(follower) == counters(leader)
        await eventually(lambda: follower.topics.file == leader.topics.file)
        await self.machines[1 - self.leading].stop(follower)
        await self.machines[self.leading].stop(leader)
        self.leader = self.follower = self.wire.leader = None
        assert same_segments(*self.machines)
        assert not self.machines[0].failures
        assert not self.machines[1].failures


def counters(log: OpenLog) -> list[tuple[bytes, int, int]]:
    """Return the next queue offsets above 0."""
    return sorted(counter for counter in log.state.table.frozen_counters() if counter[2])


async def fill_some(log: OpenLog) -> None:
    """Append messages until a new segment begins."""
    await fill(log, len(log.chain.segments) + 1, bytes(9_000), durability=1)


@pytest.mark.parametrize("seed", range(40))
async def test_both_are_the_same_in_the_end(seed: int) -> None:
    """Bytes, epochs, counters, writers and topics are the same in the end, and a stop never fails."""
    chance = random.Random(seed)
    pair = Pair(chance)
    for _ in range(3):
        for _ in range(chance.randint(5, 25)):
            await pair.step()
        await pair.check()
