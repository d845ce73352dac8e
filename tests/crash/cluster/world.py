# SPDX-License-Identifier: Apache-2.0
"""ClusterWorld: machines in memory with real CommitLogs on them, a network, a coordinator, and the promises.

Invariants: everything depends on the setup and on the random source of the loop; a broken rule is seen while it
happens, not only by losses in the end.
"""

import asyncio
import contextvars
import dataclasses
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any
from unittest import mock

from libs.formats.state.replication import Member
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.elect.coordinator import View
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.replicate import chunks
from tests.crash.cluster.coordinator import WatchedCoordinator
from tests.crash.cluster.deliveries import Deliveries
from tests.crash.cluster.kept import Kept
from tests.crash.cluster.levels import Levels
from tests.crash.cluster.loop import StoppingLoop
from tests.crash.cluster.network import Pipe
from tests.crash.cluster.node import Node
from tests.crash.cluster.promises import Promises
from tests.crash.cluster.rules import Rules, replica_file
from tests.crash.sim.model import expect
from tests.crash.sim.process import check_alive
from tests.crash.sim.stage import START_TIME_MS, Stage

NAMES = "abc"
LEASE_LOOK_S = 0.2
"""A lease that is over is found so much later at most."""


@dataclass(frozen=True)
class Setup:
    """The initial state of a run."""

    log: CommitLogConfig
    rates: tuple[float, ...]
    """The rates of the machines' clocks."""
    has_workers: bool
    """Jobs of executors pause and interleave."""
    chunk_size_bytes: int
    """The most that a leader sends at a time: small chunks end in the middle of records and batches."""
    has_services: bool = False
    """Delivery, gateway and topics are asked, too."""
    has_levels: bool = False
    """Messages with a delay level are sent, too. Their safe writes into the journal make other writes safe."""


class ClusterWorld(Stage):
    """The machines, network and coordinator of a run, with its promises. Ways are pairs of names: from, to."""

    loop: StoppingLoop

    def __init__(self, setup: Setup, chance: random.Random) -> None:
        super().__init__(StoppingLoop(chance, check_alive), has_workers=setup.has_workers)
        self.setup = setup
        self.rules = Rules(setup.log.segment_size_bytes)
        lease_s = setup.log.lease_duration_ms / 1000
        self.coordinator = WatchedCoordinator(self._changed, self._lease_ends, lease_s, self.loop.time)
        self.promises = Promises(setup.log.role == "sync_master")
        self.kept = Kept()
        self.levels = Levels(self.latest_ms)
        self._step_ms_max = 0
        self.deliveries = Deliveries(self)
        self.cut_ways: set[tuple[str, str]] = set()
        self.slow_ways: set[tuple[str, str]] = set()
        self.held: list[tuple[tuple[str, str], Callable[[], None]]] = []
        """Deliveries that wait for their way."""
        self.connections: dict[tuple[Pipe, Pipe], None] = {}
        self.late_ratio = 0.0
        """The share of late requests to the coordinator."""
        self.is_over = False
        """Whether clients have to end."""
        self.broken: list[str] = []
        """Faults at places where they could not be raised."""
        self.lost_members: set[Member] = set()
        """Members whose disks are gone."""
        self.clients: set[asyncio.Task[None]] = set()
        self._names = random.Random(chance.getrandbits(32))
        self.nodes = self._in_world(lambda: [Node(self, *pair) for pair in zip(NAMES, setup.rates, strict=True)])

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """See `Stage.run`. Names that are made up depend on the seed, too."""
        with (
            mock.patch("secrets.token_hex", lambda size_bytes: self._names.randbytes(size_bytes).hex()),
            mock.patch.object(chunks, "CHUNK_SIZE_BYTES_MAX", self.setup.chunk_size_bytes),
        ):
            return super().run(work)

    def at(self, target: str) -> Node:
        """The node behind an address."""
        return next(node for node in self.nodes if node.target == target)

    def config_of(self, name: str) -> CommitLogConfig:
        """The settings of a node."""
        return dataclasses.replace(self.setup.log, replica_id=name, bootstrap_replica_id=NAMES[0])

    @property
    def leader(self) -> Node | None:
        """The leader by the record, if it is there and thinks so, too."""
        holder = self.coordinator.there.holder
        return next((node for node in self.nodes if node.leads and node.run == holder), None)

    def step_clock(self, node: Node, step_ms: int) -> None:
        """Set the wall clock of a node ahead, or back."""
        node.clock.step_ms += step_ms
        self._step_ms_max = max(self._step_ms_max, node.clock.step_ms)

    def latest_ms(self) -> int:
        """Return a time that no wall clock was ever later than."""
        return START_TIME_MS + self._step_ms_max + int(self.loop.time() * max(self.setup.rates) * 1000)

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a client's work in a task, through all faults."""
        task: asyncio.Task[None] = contextvars.Context().run(self.loop.create_task, self._watched(work))
        self.clients.add(task)
        task.add_done_callback(self.clients.discard)

    async def _watched(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except Exception as error:  # noqa: BLE001 - told at the next look
            self.broken.append(f"a client: {error}")

    async def end_leases(self) -> None:
        """Let leases end by their time, and tell the watchers."""
        while not self.is_over:
            await asyncio.sleep(LEASE_LOOK_S)
            _ = self.coordinator.there

    def heal_ways(self) -> None:
        """Let everything through, waiting deliveries first."""
        self.cut_ways.clear()
        self.slow_ways.clear()
        self.let_through()

    def let_through(self) -> None:
        """Deliver everything that waited for ways that are open again, in order."""
        held, self.held = self.held, []
        for way, arrive in held:
            if way in self.cut_ways:
                self.held.append((way, arrive))
            else:
                arrive()

    def cut_coordinator(self, node: Node, *, is_cut: bool) -> None:
        """Cut the way from a node to the coordinator, or heal it."""
        node.is_cut_from_coordinator = is_cut
        if node.door is not None and node.process is not None:
            node.door.is_cut = is_cut

    def set_late_ratio(self, ratio: float) -> None:
        """Let so many requests to the coordinator be late."""
        self.late_ratio = ratio
        for node in self.nodes:
            if node.door is not None:
                node.door.late_ratio = ratio

    def mend(self) -> None:
        """Let everything but processes work again, and let stopped processes continue."""
        self.heal_ways()
        self.set_late_ratio(0.0)
        self.coordinator.loses_change = None
        for node in self.nodes:
            node.fill_disk(is_full=False)
            self.cut_coordinator(node, is_cut=False)
            if node.process is not None:
                self.loop.resume_process(node.process)

    def look(self, node: Node) -> None:
        """Read the records that a node shows."""
        if (log := node.log) is not None:
            self.promises.look(node.run, log)
            self.count("looks")

    def observe(self) -> None:
        """Look whether anything is so that must not be, after each step."""
        for node in self.nodes:
            node.notice_death()
            if (log := node.log) is not None and log.follower is None:
                self.rules.leads(node, log)
                self._look_after_handover(node, log)
                self.rules.confirms(node, log.marks.replicated.value, self.members)
                self._look_at_promises(node)
            if log is not None and self.promises.is_synchronous:
                self.rules.shows(node, log)
        self.rules.holds(self.members)
        broken = [*self.rules.broken, *self.levels.broken, *self.broken]
        expect(not broken, "\n".join(broken[:5]))

    def _changed(self, before: View, after: View) -> None:
        self.rules.changed(before, after)
        self.rules.holds(self.members)

    def _lease_ends(self, view: View) -> None:
        holder = next((node for node in self.nodes if node.run == view.holder and node.process is not None), None)
        if holder is not None and holder.member is not None and view.record is not None:
            left_ms = 0 if holder.member.is_by_promises else holder.member.lease_left_ms
            self.rules.lease_ends(holder.name, view.record.epoch, left_ms)

    def _look_at_promises(self, leader: Node) -> None:
        if leader.member is not None and leader.member.is_by_promises:
            others = (node for node in self.members if node is not leader and node.process is not None)
            unbound = [node.name for node in others if node.member is not None and node.member.bound_ms == 0]
            self.rules.expect(not unbound, f"{leader.name} leads by promises alone, and {unbound} may stand")
            self.count("looks at leaders by promises")

    def _look_after_handover(self, node: Node, log: OpenLog) -> None:
        former = log.epochs.number - 1
        if former in self.rules.handed_over:
            self.rules.handed_over.discard(former)
            data = self.rules.written(node.disk, 0, log.chain.max_physical_offset)
            self.promises.handed_over(node.name, former, data)
            self.count("handovers")

    @property
    def members(self) -> list[Node]:
        """The members of the recorded set, running or not, with the disk that is recorded."""
        record = self.coordinator.there.record
        in_sync = record.in_sync if record is not None else ()
        files = ((node, replica_file(node.disk)) for node in self.nodes)
        return [node for node, file in files if file is not None and Member(node.name, file.store_id) in in_sync]

    def told(self) -> str:
        """The state of all nodes, for people."""
        return "\n".join([str(self.coordinator.there), *(node.told() for node in self.nodes)])

    def close(self) -> None:
        """Drop everything."""
        self.is_over = True
        self.deliveries.kill_all()
        for node in self.nodes:
            node.kill()
        for task in list(self.clients):
            task.cancel()
        self.finish()

    def _in_world(self, make: Callable[[], Any]) -> Any:
        async def made() -> Any:
            return make()

        return self.run(made())
