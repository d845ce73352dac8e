# SPDX-License-Identifier: Apache-2.0
"""Machine: a CommitLog, its Indexer and perhaps a Delivery, with an address, a disk and a wall clock of their own.

Disks: a directory of the real disk; a small file system that may be filled up; a disk that loses its cache when its
power fails. Faults that end, start or stop processes hold `busy`, a single fault at a time. Callers: a single event
loop.
"""

import asyncio
import random
import shutil
import signal
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import grpc
import grpc.aio
from reput.commitlog.v1 import log_service_pb2 as log_pb

from tests.crash.fault.small_disk import SmallDisk
from tests.crash.live_store import CHANNEL_OPTIONS, WITHOUT_FILES, CommitLogStubs, IndexerStubs
from tests.crash.nursery import Child, EndedEarly, Nursery
from tests.crash.power.disk import VolatileDisk
from tests.crash.rounds.network import Network
from tests.support.patience import LIMIT_S

DiskKind = Literal["plain", "small", "volatile"]
DISK_KINDS: tuple[DiskKind, ...] = ("plain", "small", "volatile")
SMALL_DISK_SIZE_BYTES = 96 << 20
LOG_PORT, INDEX_PORT, DELIVERY_PORT = 7101, 7102, 7104
STATUS_TIMEOUT_S = 0.5
OPTIONS = (
    *CHANNEL_OPTIONS,
    *(("grpc.initial_reconnect_backoff_ms", 100), ("grpc.min_reconnect_backoff_ms", 300)),
    ("grpc.max_reconnect_backoff_ms", 300),
)


@dataclass(frozen=True, slots=True)
class Setup:
    """The common setup of all machines of a case."""

    nursery: Nursery
    network: Network
    token_file: Path
    log_flags: tuple[str, ...]
    index_flags: tuple[str, ...]
    delivery_flags: tuple[str, ...] | None = None
    """None if there is no Delivery."""


class Machine:
    """A machine of the trio.

    `log`, `index` and `delivery` are the processes that were started last, None before the first.
    """

    def __init__(self, setup: Setup, directory: Path, name: str, kind: DiskKind, chance: random.Random) -> None:
        self.name, self.kind = name, kind
        self.busy = asyncio.Lock()
        self.log: Child | None = None
        self.index: Child | None = None
        self.delivery: Child | None = None
        self.children: list[Child] = []
        """All that were started on a disk that did not die, the youngest last."""
        self.may_end = False
        """Whether its processes may end by themselves, because the disk is full or dead."""
        self.start_count = self.kill_count = 0
        self._setup, self._directory, self._chance = setup, directory, chance
        self.small: SmallDisk | None = None
        self.volatile: VolatileDisk | None = None
        self._clock = directory / "clock"
        token = setup.token_file.read_text().strip()
        self.metadata = (("authorization", f"Bearer {token}"),)
        targets = self.target, self.read_target
        self._channels = [grpc.aio.insecure_channel(target, options=OPTIONS) for target in targets]
        self.calls, self.reads = CommitLogStubs(self._channels[0]), IndexerStubs(self._channels[1])

    def attach(self) -> None:
        """Make its disk and its clock. Blocks. `close` is due even if this fails."""
        self._directory.mkdir()
        self._clock.write_bytes(bytes(8))
        if self.kind == "small":
            self.small = SmallDisk(self._directory, self._chance.choice(("tmpfs", "ext4")), SMALL_DISK_SIZE_BYTES)
        elif self.kind == "volatile":
            self.volatile = VolatileDisk(self._directory, self._chance.choice(("ext4", "xfs")))
            self.volatile.power_on()

    @property
    def data_dir(self) -> Path:
        """Where its store is."""
        disk = self.small or self.volatile
        return (disk.root if disk is not None else self._directory) / "store"

    @property
    def channel(self) -> grpc.aio.Channel:
        """The channel to the CommitLog."""
        return self._channels[0]

    @property
    def target(self) -> str:
        """Where the CommitLog listens."""
        return f"{self._setup.network.address(self.name)}:{LOG_PORT}"

    @property
    def read_target(self) -> str:
        """Where the Indexer listens."""
        return f"{self._setup.network.address(self.name)}:{INDEX_PORT}"

    @property
    def delivery_target(self) -> str:
        """Where Delivery listens."""
        return f"{self._setup.network.address(self.name)}:{DELIVERY_PORT}"

    @property
    def living(self) -> list[Child]:
        """Its processes that have not ended, dependent processes first."""
        children = (self.delivery, self.index, self.log)
        return [child for child in children if child is not None and not child.ended.done()]

    @property
    def run(self) -> str:
        """The name of the process that is the CommitLog now."""
        return f"{self.name}/{self.log.pid if self.log is not None else 0}"

    async def start(self) -> None:
        """Start processes that do not run, and wait until they serve. Raises EndedEarly."""
        if self.log is None or self.log.ended.done():
            self.log = await self._spawn("commitlog", LOG_PORT, ("--replica-id", self.name, *self._setup.log_flags))
        await self.log.wait_serving()
        if self.index is None or self.index.ended.done():
            flags = ("--commitlog-target", self.target, *self._setup.index_flags)
            self.index = await self._spawn("indexer", INDEX_PORT, flags)
        await self.index.wait_serving()
        if self._setup.delivery_flags is None:
            return
        if self.delivery is None or self.delivery.ended.done():
            behind = ("--commitlog-target", self.target, "--indexer-target", self.read_target)
            self.delivery = await self._spawn("delivery", DELIVERY_PORT, (*behind, *self._setup.delivery_flags))
        await self.delivery.wait_serving()

    async def start_patiently(self) -> None:
        """Start processes that do not run. A process that ends again for lack of space is started again."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                try:
                    return await self.start()
                except EndedEarly:
                    if not self.may_end:
                        raise
                    await asyncio.sleep(0.1)

    def send(self, signal_number: int) -> None:
        """Send a signal to all of its processes."""
        for child in self.living:
            child.send(signal_number)

    async def kill(self) -> None:
        """End all at once."""
        children = self.living
        self.send(signal.SIGKILL)
        for child in children:
            await child.wait_ended()

    async def stop(self, *services: str) -> list[str]:
        """End all in order, or these services. Returns the faults of their ends."""
        wrong = []
        for child in self.living:
            if not services or child.service in services:
                child.send(signal.SIGTERM)
                code = await child.wait_ended()
                wrong += [f"{child.service} of {self.name} ended with {code} after SIGTERM"] if code else []
        return wrong

    def ended_wrongly(self) -> list[str]:
        """The services that have ended without a request."""
        if self.may_end:
            return []
        children = (self.log, self.index, self.delivery)
        codes = {child.service: child.ended.result() for child in children if child is not None and child.ended.done()}
        return [
            f"{service} of {self.name} ended with {code} although it was not told to"
            for service, code in codes.items()
            if code not in (0, -signal.SIGKILL)
        ]

    async def status(self) -> log_pb.GetStatusResponse:
        """The state of the CommitLog, an empty state if it can't be asked."""
        try:
            return await self.calls.log.GetStatus(log_pb.GetStatusRequest(), timeout=STATUS_TIMEOUT_S)
        except grpc.aio.AioRpcError:
            return log_pb.GetStatusResponse()

    def step_clock(self, seconds: float) -> None:
        """Let the wall clock of all be wrong by so much from now on."""
        with self._clock.open("r+b") as file:
            file.write(struct.pack("q", round(seconds * 1e9)))

    def replace_disk(self) -> None:
        """An empty disk in the place of the old disk. Its processes have ended."""
        shutil.rmtree(self.data_dir, ignore_errors=True)

    def keep(self) -> None:
        """Copy the files of a disk that ends with this process to a folder beside it."""
        if self.data_dir.parent != self._directory and self.data_dir.exists():
            shutil.copytree(self.data_dir, self._directory / "store", dirs_exist_ok=True)

    async def close(self) -> None:
        """End all and detach the disk."""
        await self.kill()
        for channel in self._channels:
            await channel.close()
        if self.small is not None:
            self.small.unmount()
        if self.volatile is not None:
            await asyncio.to_thread(self.volatile.power_off)

    async def _spawn(self, service: str, port: int, flags: tuple[str, ...]) -> Child:
        network = self._setup.network
        common = ("--port", str(port), "--metrics-port", "0")
        common += () if service in WITHOUT_FILES else ("--data-dir", str(self.data_dir))
        reach = ("--listen-host", network.address(self.name), "--allow-insecure", "true")
        token_file = str(self._setup.token_file)
        tokens = ("--service-token-file", token_file, "--operator-token-file", token_file)
        environment = {f"REPUT_{service.upper()}_LOG_FORMAT": "json", "REPUT_CLOCK": str(self._clock)}
        child = await self._setup.nursery.spawn(
            service, (*common, *reach, *tokens, *flags), environment, network=network.path(self.name)
        )
        self.start_count += 1
        self.children.append(child)
        child.ended.add_done_callback(self._count_kill)
        return child

    def _count_kill(self, ended: asyncio.Future[int]) -> None:
        self.kill_count += ended.result() == -signal.SIGKILL
