# SPDX-License-Identifier: Apache-2.0
"""Three logs that elect one of them through random histories: nothing that was replicated is ever lost or hidden."""

import asyncio
import contextlib
import os
import random
from collections.abc import Awaitable, Callable
from functools import partial

import pytest

from libs.machine.testing.memory_fs import everything_survives, nothing_survives
from libs.requests.errors import ServiceError
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.write.marks import DURABILITY_REPLICATED
from tests.support.cluster import Cluster, Node
from tests.support.commitlog import BORN_HOST, durability_of, fill, message, records, request, synced
from tests.support.patience import eventually
from tests.support.replication import same_segments

KINDS = {
    "append": 10, "replicated": 14, "fill": 2, "start": 8, "stop": 2, "kill": 4, "power cut": 3, "expire": 4, "wire": 5,
    "coordinator": 4, "lost answer": 4, "late": 3, "handover": 3, "wait": 6, "new disk": 1, "look": 6,
    "leave behind": 4,
}  # fmt: skip
NAMES = "abc"
SEEDS = range(int(os.environ.get("REPUT_HISTORIES", "12")))
SURVIVES = {"kill": everything_survives, "power cut": nothing_survives}


class History:
    """What happens to a cluster, and what it promised meanwhile."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.cluster = Cluster(
            3,
            role=chance.choice(("async_master", "sync_master")),
            flush_mode=chance.choice(("sync", "async")),
            flush_interval_ms=chance.choice((5, 300)),
            flush_pages_min=0,
            replicate_timeout_ms=300,
            reconnect_ms_max=100,
            handover_timeout_ms=300,
        )
        self.cluster.chunk_size_bytes = chance.choice((50, 1_000, 1 << 20))
        self.replicated: dict[int, bytes] = {}
        """Bodies of what was acknowledged as replicated, by physical offset."""
        self.shown: dict[int, bytes] = {}
        """What readers of synchronous masters, and of those that follow them, saw."""
        self.ends: dict[str, int] = {}
        """How much a process showed: it goes on doing so, whatever becomes of its role."""
        self.leaders: dict[int, str] = {}
        """Who acknowledged something as replicated, by epoch."""
        self.number = 0

    async def step(self) -> None:
        """Let one thing happen."""
        kind = self.chance.choices(list(KINDS), KINDS.values())[0]
        node = self.chance.choice(self.cluster.nodes)
        happen: dict[str, Callable[[], Awaitable[None]]] = {
            "append": partial(self.append, durability=1),
            "replicated": partial(self.append, durability=DURABILITY_REPLICATED),
            "fill": self.fill,
            "handover": self.hand_over,
            "new disk": partial(self.replace_disk, node),
            "leave behind": partial(self.leave_behind, node),
        }
        if kind in happen:
            await happen[kind]()
        elif kind in ("start", "stop", "kill", "power cut"):
            await self.move_process(node, kind)
        else:
            await self.disturb(node, kind)

    async def move_process(self, node: Node, kind: str) -> None:
        """Let a process begin or end."""
        if kind == "start":
            if not node.is_up:
                await node.start()
        elif node.is_up:
            await (node.stop() if kind == "stop" else node.kill(SURVIVES[kind]))

    async def disturb(self, node: Node, kind: str) -> None:
        """Let wires, clocks and the coordinator do what they like."""
        chance, cluster = self.chance, self.cluster
        match kind:
            case "expire":
                cluster.coordinator.expire()
            case "wire":
                cluster.cuts ^= {frozenset(chance.sample(NAMES, 2))}
            case "coordinator":
                self.cut_coordinator(node, is_cut=not node.is_cut_from_coordinator)
            case "lost answer" if node.door is not None:
                answers = iter([True] * chance.choice((1, 2, 3)))
                node.door.loses = lambda: next(answers, False)
            case "late":
                node.machine.clock.advance(chance.choice((1_000, 20_000)))
            case "wait":
                await asyncio.sleep(chance.choice((0.01, 0.1, 0.4)))
            case "look":
                self.look(node)

    def cut_coordinator(self, node: Node, *, is_cut: bool) -> None:
        """Cut the way from a node to the coordinator, or heal it."""
        node.is_cut_from_coordinator = is_cut
        if node.door is not None and node.is_up:
            node.door.is_cut = is_cut

    def leading(self) -> Node | None:
        """One that thinks that it leads: perhaps not the only one."""
        leading = [node for node in self.cluster.nodes if node.leads]
        return self.chance.choice(leading) if leading else None

    async def append(self, *, durability: int) -> None:
        """One message at one that thinks that it leads, and what is made of it."""
        node = self.leading()
        if node is None or (log := node.log) is None:
            return
        self.number += 1
        body = b"%s %d " % (node.name.encode(), self.number) * self.chance.choice((1, 20))
        with contextlib.suppress(ServiceError):
            epoch = log.epochs.number
            batch = await log.pipeline.append(request(message(body), durability=durability), BORN_HOST)
            if await durability_of(log, batch) == DURABILITY_REPLICATED:
                assert self.leaders.setdefault(epoch, node.name) == node.name
                self.replicated[batch.start_physical_offset] = body

    async def fill(self) -> None:
        """Begin another segment."""
        node = self.leading()
        if node is not None and (log := node.log) is not None:
            with contextlib.suppress(ServiceError):
                await fill(log, len(log.chain.segments) + 1, bytes(9_000), durability=1)

    async def hand_over(self) -> None:
        """Let another one lead, if it can."""
        node, other = self.leading(), self.chance.choice(self.cluster.nodes)
        if node is not None and node is not other and node.member is not None and node.log is not None:
            with contextlib.suppress(ServiceError):
                await node.member.demote(other.name, other.target, epoch=0)

    async def leave_behind(self, node: Node) -> None:
        """Cut one off until it is not in sync any more, and replicate something without it. It would like to lead."""
        leader = self.cluster.leader
        if leader is not None and leader is not node and self.chance.random() < 0.5:
            self.cut_coordinator(leader, is_cut=True)
        self.cluster.cuts |= {frozenset({node.name, other}) for other in NAMES if other != node.name}
        for each in self.cluster.nodes:
            each.machine.clock.advance(20_000)
        await asyncio.sleep(0.6)
        await self.append(durability=DURABILITY_REPLICATED)
        if self.chance.random() < 0.5:
            self.cluster.coordinator.expire()
            await asyncio.sleep(0.1)

    async def replace_disk(self, node: Node) -> None:
        """Lose a machine, of three that all have everything."""
        await self.heal()
        await node.kill(nothing_survives)
        await node.replace_disk()
        if node.leads or self.cluster.coordinator.there.holder.startswith(node.name):
            self.cluster.coordinator.expire()
        await node.start()
        for each in self.cluster.nodes:
            each.machine.clock.advance(20_000)  # who is gone for good leaves the set
        await self.heal()

    def look(self, node: Node) -> None:
        """Read all that a node shows."""
        if self.cluster.settings["role"] == "sync_master" and (log := node.log) is not None:
            self.shown |= {record.physical_offset: record.body for record in records(log)}
            assert self.ends.get(node.process, 0) <= log.marks.visible.value
            self.ends[node.process] = log.marks.visible.value

    async def heal(self) -> OpenLog:
        """Everything works again: in the end all have the same, and all are in sync."""
        cluster = self.cluster
        cluster.cuts.clear()
        for node in cluster.nodes:
            self.cut_coordinator(node, is_cut=False)
            if node.door is not None:
                node.door.loses = lambda: False
            if not node.is_up:
                await node.start()
        try:
            await eventually(self.is_whole)
        except TimeoutError:
            raise AssertionError(cluster.told()) from None
        leader = await cluster.led()
        assert leader.log is not None
        return leader.log

    def is_whole(self) -> bool:
        """Whether somebody leads, and all are in sync."""
        leader, record = self.cluster.leader, self.cluster.coordinator.there.record
        if leader is None or leader.log is None or record is None:
            return False
        return len(record.in_sync) == len(NAMES) and leader.log.in_sync.set.live_count == len(NAMES)

    async def check(self) -> None:
        """All that was promised holds."""
        leader = await self.heal()
        await synced(leader)
        await eventually(lambda: all(self.has_all(node, leader) for node in self.cluster.nodes))
        found = {record.physical_offset: record.body for record in records(leader)}
        assert self.replicated.items() <= found.items()
        assert self.shown.items() <= found.items()
        assert [records(node.log) for node in self.cluster.nodes if node.log] == [records(leader)] * len(NAMES)
        one, two, three = (node.machine for node in self.cluster.nodes)
        assert same_segments(one, two)
        assert same_segments(two, three)

    def has_all(self, node: Node, leader: OpenLog) -> bool:
        """Whether a node has, and shows, all that the leader has. One that is being cut has no log for a while."""
        log, end = node.log, leader.marks.wrote.value
        if log is None or log.marks.wrote.value != end:
            return False
        log.marks.flushed.hurry(end)
        return log.marks.visible.value == end and log.epochs.epochs[-1:] == leader.epochs.epochs[-1:]


@pytest.mark.parametrize("seed", SEEDS)
async def test_nothing_replicated_is_lost(seed: int) -> None:
    """Nor shown and taken back; in each epoch one leads at most; in the end all have the same."""
    history = History(random.Random(seed))
    async with history.cluster.running():
        await history.check()
        for _ in range(3):
            for _ in range(history.chance.randint(5, 30)):
                await history.step()
            await history.check()
