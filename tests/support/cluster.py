# SPDX-License-Identifier: Apache-2.0
"""Logs in the same process that elect a leader among themselves.

Machines crash, connections are cut, and the coordinator loses its record.
"""

import contextlib
import itertools
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from libs.formats.state.replication import RoleSetting
from libs.machine.testing.memory_fs import MemoryFs, everything_survives
from libs.requests.errors import Stopping
from services.commitlog.engine.commit_log import CommitLog
from services.commitlog.engine.elect.member import ElectedMember
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.replicate.ledger import BY_HAND, ElectedTerm
from services.commitlog.engine.replicate.steps import NOBODY, LeaderAt
from services.commitlog.engine.roles import FOLLOWER_ROLE, Roles
from services.commitlog.engine.start.cut import Cut
from tests.support.commitlog import LISTEN_HOST, Machine, make_config
from tests.support.memory_coordinator import Door, MemoryCoordinator
from tests.support.patience import eventually
from tests.support.replication import Wire

_numbers = itertools.count()


class Node:
    """A machine, and the process that runs on it, if there is a process."""

    def __init__(self, cluster: "Cluster", name: str) -> None:
        self.cluster = cluster
        self.name = name
        self.target = f"{name}:7101"
        self.machine = Machine()
        self.door: Door | None = None
        self.is_cut_from_coordinator = False
        self.lease_ms = 0
        self._process: CommitLog | None = None
        self.member: ElectedMember | None = None
        self.roles: Roles | None = None

    @property
    def is_up(self) -> bool:
        """Whether a process runs."""
        return self._process is not None

    @property
    def log(self) -> OpenLog | None:
        """The log, if it is open."""
        return self._process.log if self._process is not None and self._process.is_open else None

    @property
    def process(self) -> str:
        """The name of the process, which differs from the name of every other process."""
        return "" if self.door is None else self.door.identity

    @property
    def leads(self) -> bool:
        """Whether its log is open and does not follow."""
        return (log := self.log) is not None and log.follower is None

    async def start(self, **changes: Any) -> None:
        """Start a process, which follows no leader at first."""
        settings = {**self.cluster.settings, **changes}
        config = make_config(
            replica_id=self.name, bootstrap_replica_id="a", coordinator="etcd", lease_renew_ms=100, **settings
        )
        self.lease_ms = config.lease_duration_ms
        machine = self.machine
        process = self._process = CommitLog(config, machine.fs, machine.clock, on_failure=machine.failures.append)
        self.door = self.cluster.coordinator.door(f"{self.name}/{next(_numbers)}")
        self.door.is_cut = self.is_cut_from_coordinator
        roles = self.roles = Roles(
            RoleSetting(FOLLOWER_ROLE),
            self._open_log,
            self._close,
            self._open_again,
            self._leader_at,
            machine.failures.append,
        )
        self.member = ElectedMember(self.door, roles, machine.clock, config, self.target, self.door.identity)
        await self._open(process, RoleSetting(FOLLOWER_ROLE))
        self.member.start()

    async def stop(self) -> None:
        """Stop the process in order."""
        process, member = self._process, self.member
        assert process is not None
        assert member is not None
        await member.resign()
        await process.take_leave()
        await member.stop()
        await process.close()
        self._process = None

    async def kill(self, survives: Any = everything_survives) -> None:
        """End the process without its last steps."""
        process, member, roles = self._process, self.member, self.roles
        assert process is not None
        assert member is not None
        assert roles is not None
        assert self.door is not None
        self.door.is_cut = True  # its last request may have arrived, and it does not get the answer
        await member.stop()
        await roles.no_change()
        if process.log is not None:
            await process.log.abandon()
        self._process = None
        self.machine.fs.crash(survives)

    async def replace_disk(self) -> None:
        """Replace the machine by a new machine of the same name."""
        self.machine.fs = MemoryFs()

    def _open_log(self) -> OpenLog:
        if self._process is None or self._process.log is None:
            raise Stopping
        return self._process.log

    async def _open(
        self, process: CommitLog, setting: RoleSetting, cut: Cut | None = None, term: ElectedTerm = BY_HAND
    ) -> None:
        leader = self._leader_at(setting.leader_target) if setting.role == FOLLOWER_ROLE else None
        idle = {"disk guard", "queue offset snapshot"}
        await process.open(LISTEN_HOST, idle=idle, leader=leader, cut=cut, term=term, role=setting.role)

    async def _close(self) -> None:
        process = self._process
        assert process is not None
        if process.log is not None:
            process.log.replicas.drain()
        await process.close()

    async def _open_again(self, setting: RoleSetting, cut: Cut | None, term: ElectedTerm) -> None:
        assert self._process is not None
        await self._open(self._process, setting, cut, term)

    def _leader_at(self, target: str) -> LeaderAt:
        if not target:
            return NOBODY
        assert self.roles is not None
        assert self.member is not None
        wire = ClusterWire(self.cluster, self.name, target)
        member = self.member
        return replace(
            NOBODY,
            target=target,
            open=wire.open,
            cut=self.roles.cut,
            move=lambda _: member.look(),
            stand_back=member.stand_back,
        )

    def cut_coordinator(self, *, is_cut: bool = True) -> None:
        """Cut the connection to the coordinator, or heal it."""
        self.is_cut_from_coordinator = is_cut
        if self.door is not None:
            self.door.is_cut = is_cut


class Cluster:
    """Nodes a, b, c … with a coordinator. `cuts` are the pairs of nodes whose connection is cut."""

    def __init__(self, count: int = 3, **settings: Any) -> None:
        self.settings = settings
        self.coordinator = MemoryCoordinator()
        self.nodes = [Node(self, name) for name in "abcdefg"[:count]]
        self.cuts: set[frozenset[str]] = set()
        self.chunk_size_bytes = 1 << 20

    @property
    def leader(self) -> Node | None:
        """The leader by the record, if its process runs and regards itself as the leader, too."""
        view = self.coordinator.there
        for node in self.nodes:
            if node.leads and node.member is not None and node.member.identity == view.holder:
                return node
        return None

    def at(self, target: str) -> Node:
        """Return the node behind an address."""
        return next(node for node in self.nodes if node.target == target)

    def is_cut(self, one: str, other: str) -> bool:
        """Whether the connection between two nodes is cut."""
        return frozenset({one, other}) in self.cuts

    def pass_lease(self) -> None:
        """Let the time of a lease pass for all nodes with a process, and for the coordinator."""
        for node in self.nodes:
            if node.is_up:
                node.machine.clock.advance(node.lease_ms)
        self.coordinator.expire()

    def told(self) -> str:
        """The state of the coordinator and of all nodes, as text for people."""
        lines = [str(self.coordinator.there)]
        for node in self.nodes:
            log, member = node.log, node.member
            marks = (
                []
                if log is None
                else [
                    log.marks.wrote.value,
                    log.marks.flushed.value,
                    log.marks.replicated.value,
                    log.marks.visible.value,
                ]
            )
            state = "closed" if log is None else f"{marks} {log.epochs.epochs} promised {log.identity.promised_epoch}"
            if log is not None:
                follower = log.follower
                state += f" {log.in_sync.set.others if log.in_sync else ''}"
                state += (
                    f" follows {follower.leader.target!r}: {follower.state.name} {follower.last_error}"
                    if follower
                    else ""
                )
            if member is not None:
                state += f" {member.decision} {member.loop.last_error} {member.watch.last_error}"
            lines.append(f"{node.name}: {state}")
        return "\n".join(lines)

    async def led(self) -> Node:
        """Wait until there is a leader."""
        await eventually(lambda: self.leader is not None)
        assert self.leader is not None
        return self.leader

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[Node]:
        """Run all nodes for a block, with the leader as its value.

        Then stop them in order, and check that none failed.
        """
        for node in self.nodes:
            await node.start()
        try:
            yield await self.led()
        finally:
            for node in self.nodes:
                if node.is_up:
                    await node.stop()
        assert [node.machine.failures for node in self.nodes] == [[] for _ in self.nodes]


class ClusterWire(Wire):
    """Connects a node to the log that is at an address."""

    def __init__(self, cluster: Cluster, name: str, target: str) -> None:
        super().__init__()
        self._cluster, self._name, self._target = cluster, name, target
        self.chunk_size_bytes = cluster.chunk_size_bytes

    def current(self) -> OpenLog | None:
        node = self._cluster.at(self._target)
        return None if self._cluster.is_cut(self._name, node.name) else node.log
