# SPDX-License-Identifier: Apache-2.0
"""Trio: three machines that elect a leader by an etcd on a fourth, all on a network, and waiting for them.

With a `sync_master` each has a Delivery, too, and a gateway is beside them, where the clients are. Small files, short
leases and short intervals, so that a round of some seconds meets elections, rolls and syncs. Callers: a single event
loop.
"""

import asyncio
import contextlib
import random
import secrets
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Self

from reput.commitlog.v1 import log_service_pb2 as log_pb
from reput.indexer.v1 import index_service_pb2 as index_pb

from libs.formats.limits import KIB
from tests.crash.nursery import Nursery
from tests.crash.rounds.gateway import Gateway
from tests.crash.rounds.machine import DISK_KINDS, Machine, Setup
from tests.crash.rounds.network import Network
from tests.support.etcd_server import EtcdServer
from tests.support.patience import LIMIT_S

NAMES = ("a", "b", "c")
ETCD_NAME = "etcd"
LOOK_S = 0.03
ROLES = ("sync_master", "sync_master", "sync_master", "async_master")
FLUSH_MODES = ("sync", "async")
LOG_FLAGS = (
    *("--coordinator", "etcd", "--bootstrap-replica-id", "a", "--lease-duration-ms", "2500", "--lease-renew-ms", "500"),
    *("--replica-lag-ms-max", "1000", "--replica-silence-ms", "1500", "--replicate-timeout-ms", "600"),
    *("--reconnect-ms-max", "100", "--handover-timeout-ms", "1000", "--etcd-timeout-ms", "1000"),
    *("--flush-interval-ms", "20", "--flush-pages-min", "1", "--flush-thorough-interval-ms", "100"),
    *("--checkpoint-interval-ms", "50", "--snapshot-interval-ms", "200", "--dispatch-heartbeat-ms", "50"),
    *("--disk-reserve-bytes", "0", "--disk-ballast-bytes", "65536", "--disk-interval-ms", "100"),
    *("--disk-full-percent", "100", "--drain-timeout-ms", "1000", "--default-queue-count", "2"),
)
INDEX_FLAGS = (
    *("--queue-file-size-bytes", "10000", "--index-slot-count", "500", "--index-entry-capacity", "2000"),
    *("--flush-interval-ms", "20", "--flush-pages-min", "0", "--flush-thorough-interval-ms", "100"),
    *("--reconnect-ms-max", "100", "--drain-timeout-ms", "1000", "--disk-ballast-bytes", "65536"),
)
DELIVERY_FLAGS = ("--reconnect-ms-max", "100", "--drain-timeout-ms", "1000")
INDEX_SLOT_COUNT = 500


class NotTogether(Exception):
    """The machines did not come together in time."""


class Trio:
    """Three machines with their network, etcd, and perhaps a gateway."""

    def __init__(self, nursery: Nursery, directory: Path, chance: random.Random) -> None:
        self.directory = directory
        self.role, self.flush_mode = chance.choice(ROLES), chance.choice(FLUSH_MODES)
        self.segment_size_bytes = chance.choice((64, 128, 256)) * KIB
        self.network = Network((*NAMES, ETCD_NAME))
        token_file = directory / "token"
        token_file.write_text(secrets.token_hex(16) + "\n")
        token_file.chmod(0o600)
        through = self.network.within(ETCD_NAME)
        self.etcd = EtcdServer(directory / "etcd", host=self.network.address(ETCD_NAME), through=through)
        sizes = ("--segment-size-bytes", str(self.segment_size_bytes))
        own = ("--etcd-targets", self.etcd.target, "--role", self.role, "--flush-mode", self.flush_mode)
        flags = (*own, *sizes, *LOG_FLAGS)
        delivery_flags = DELIVERY_FLAGS if self.is_synchronous else None
        self._setup = Setup(nursery, self.network, token_file, flags, INDEX_FLAGS, delivery_flags)
        self.gateway = Gateway(nursery, is_once=chance.random() < 0.5)
        self._chance = chance
        self.machines: dict[str, Machine] = {}
        self.etcd_is_busy = asyncio.Lock()

    def __str__(self) -> str:
        """How its stores are set up."""
        kinds = ", ".join(f"{machine.name} on a {machine.kind} disk" for machine in self.machines.values())
        return f"{self.role}, flush mode {self.flush_mode}, segments of {self.segment_size_bytes} bytes, {kinds}"

    @property
    def is_synchronous(self) -> bool:
        """Whether readers see only records that the whole in-sync set has."""
        return self.role == "sync_master"

    @property
    def token(self) -> str:
        """The token that services and operators show."""
        return self._setup.token_file.read_text().strip()

    @property
    def targets(self) -> str:
        """Where all logs are, as clients take it."""
        return ",".join(machine.target for machine in self.machines.values())

    @property
    def delivery_targets(self) -> str:
        """Where each log's Delivery is, as clients take it."""
        return ",".join(machine.delivery_target for machine in self.machines.values())

    @property
    def read_targets(self) -> str:
        """Where each log's Indexer is, as clients take it."""
        return ",".join(machine.read_target for machine in self.machines.values())

    def with_disk(self, kind: str) -> Machine:
        """The machine with a disk of this kind."""
        return next(machine for machine in self.machines.values() if machine.kind == kind)

    @contextlib.asynccontextmanager
    async def built(self) -> AsyncIterator[Self]:
        """Make network, etcd and machines for a block; nothing else runs yet."""
        async with contextlib.AsyncExitStack() as stack:
            stack.callback(self.network.close)
            self.network.build()
            stack.callback(self.etcd.kill)
            await asyncio.to_thread(self.etcd.start)
            kinds = self._chance.sample(DISK_KINDS, len(NAMES))
            for name, kind in zip(NAMES, kinds, strict=True):
                machine = self.machines[name] = Machine(self._setup, self.directory / name, name, kind, self._chance)
                stack.push_async_callback(machine.close)
                machine.attach()
            stack.push_async_callback(self.gateway.close)
            yield self

    async def start(self) -> None:
        """Start processes that do not run."""
        async with asyncio.TaskGroup() as group:
            for machine in self.machines.values():
                group.create_task(machine.start_patiently())
        await self.start_gateway()

    async def start_gateway(self) -> None:
        """Start the gateway, if the case has a gateway and it does not run."""
        if self.is_synchronous:
            await self.gateway.start(self.targets, self.delivery_targets)

    async def leader(self) -> Machine | None:
        """Return the leader, if a single machine says that it leads."""
        states = await asyncio.gather(*(machine.status() for machine in self.machines.values()))
        found = [machine for machine, state in zip(self.machines.values(), states, strict=True) if leads(state)]
        return found[0] if len(found) == 1 else None

    async def together(self, *, are_indexed: bool = True) -> Machine:
        """Wait until a machine leads, all are in sync, and all have all on their disks and in indexes.

        Returns the leader.

        Raises NotTogether with the states of all.
        """
        try:
            async with asyncio.timeout(LIMIT_S):
                while True:
                    machine = await self.leader()
                    if machine is not None and await self._all_have(await machine.status(), are_indexed=are_indexed):
                        return machine
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            raise NotTogether(f"not together after {LIMIT_S} s:\n{await self.told()}") from None

    async def told(self) -> str:
        """The states of all machines, for people."""
        lines = []
        for machine in self.machines.values():
            state = await machine.status()
            lines.append(f"{machine.name}: {' '.join(str(state).split())}")
        return "\n".join(lines)

    async def _all_have(self, leader: log_pb.GetStatusResponse, *, are_indexed: bool) -> bool:
        if not leads(leader) or len(leader.in_sync_replica_ids) < len(NAMES) or leader.live_in_sync_count < len(NAMES):
            return False
        end = leader.max_physical_offset
        states = await asyncio.gather(*(machine.status() for machine in self.machines.values()))
        if any(min(one.flushed_physical_offset, one.confirmed_physical_offset) != end for one in states):
            return False
        return not are_indexed or all([await _indexed(machine) == end for machine in self.machines.values()])


def leads(state: log_pb.GetStatusResponse) -> bool:
    """Whether a log leads: it serves, follows no log and is writable."""
    return state.state == log_pb.LOG_STATE_SERVING and not state.HasField("following") and state.is_writable


async def _indexed(machine: Machine) -> int:
    try:
        return (await machine.reads.index.GetStatus(index_pb.GetStatusRequest(), timeout=1)).indexed_physical_offset
    except Exception:  # noqa: BLE001 - it is asked again
        return -1
