# SPDX-License-Identifier: Apache-2.0
"""A CommitLog engine on a file system in memory, requests for it, and ways to end it that are not clean."""

import contextlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from reput.commitlog.v1 import append_service_pb2 as pb

from libs.formats.records import record
from libs.formats.records.host import Host
from libs.formats.records.record import Record
from libs.machine.clock import Clock
from libs.machine.fs import Fs
from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs, everything_survives
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.commit_log import CommitLog
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.replicate.steps import LeaderAt
from services.commitlog.engine.start.cut import Cut
from services.commitlog.engine.write.append import AppendedBatch
from tests.support.patience import LIMIT_S

DATA_DIR = Path("/store")
SEGMENT_SIZE = 65_536
NEVER_MS = 3_600_000
LISTEN_HOST = Host.parse("127.0.0.1:7101")
BORN_HOST = Host.parse("10.1.2.3:4567").to_bytes()
BORN_HOST_IPV6 = Host.parse("[2001:db8::a]:4567").to_bytes()


def make_config(**changes: Any) -> CommitLogConfig:
    """Small segments, no background work and no limit of rates, because the clock of the tests stands still.

    A test that needs a flush requests it, or uses a mode that flushes.
    """
    quiet: dict[str, Any] = {
        "data_dir": DATA_DIR,
        "flush_mode": "async",
        "segment_size_bytes": SEGMENT_SIZE,
        "preallocate": False,
        "flush_interval_ms": NEVER_MS,
        "flush_thorough_interval_ms": NEVER_MS,
        "transient_store_pool_segment_count": 2,
        "commit_interval_ms": NEVER_MS,
        "commit_thorough_interval_ms": NEVER_MS,
        "checkpoint_interval_ms": NEVER_MS,
        "snapshot_interval_ms": NEVER_MS,
        "disk_interval_ms": NEVER_MS,
        "disk_reserve_bytes": 0,
        "disk_full_percent": 100,
        "disk_ballast_bytes": 0,
        "dispatch_interval_ms": 0,
        "new_queues_per_s_max": 0,
    }
    return CommitLogConfig(**{**quiet, **changes})


def message(body: bytes = b"body", topic: str = "orders", **fields: Any) -> pb.AppendMessage:
    """A message for queue 0 of `orders`."""
    return pb.AppendMessage(**{"topic": topic, "queue_id": 0, "body": body, **fields})


def request(*messages: pb.AppendMessage, durability: int = 0, writer: pb.Writer | None = None) -> bytes:
    """A serialized AppendRequest, with a single plain message by default."""
    return pb.AppendRequest(messages=messages or (message(),), durability=durability, writer=writer).SerializeToString()


class Machine:
    """A disk and a clock that outlive the processes which a test runs on them."""

    def __init__(self, **config: Any) -> None:
        self.fs = MemoryFs()
        self.clock = ManualClock()
        self.config = config
        self.failures: list[BaseException] = []
        self._processes: dict[OpenLog, CommitLog] = {}

    async def start(
        self, fs: Fs | None = None, *, leader: LeaderAt | None = None, cut: Cut | None = None, **changes: Any
    ) -> OpenLog:
        """Open the store, as a new process does. Loops that should have no work are not started."""
        config = make_config(**{**self.config, **changes})
        process = CommitLog(config, fs or self.fs, self.clock, on_failure=self.failures.append)
        intervals = {"disk guard": config.disk_interval_ms, "queue offset snapshot": config.snapshot_interval_ms}
        idle = {name for name, interval_ms in intervals.items() if interval_ms == NEVER_MS}
        log = await process.open(LISTEN_HOST, idle=idle, leader=leader, cut=cut)
        self._processes[log] = process
        return log

    def process(self, log: OpenLog) -> CommitLog:
        """Return the process of a log."""
        return self._processes[log]

    async def stop(self, log: OpenLog) -> None:
        """Stop in order."""
        await self._processes.pop(log).close()

    @contextlib.asynccontextmanager
    async def running(self, **changes: Any) -> AsyncIterator[OpenLog]:
        """Open the store for a block and stop it in order."""
        log = await self.start(**changes)
        try:
            yield log
        finally:
            await self.stop(log)

    async def kill(self, log: OpenLog, survives: Any = everything_survives) -> None:
        """End the process without its last steps. By default the page cache survives, as after SIGKILL."""
        del self._processes[log]
        await log.abandon()
        self.fs.crash(survives)

    def segment_bytes(self, base: int = 0) -> bytearray:
        """The bytes of a segment, as processes see them. Changes to them take effect."""
        return self.fs.file(DATA_DIR / "commitlog" / f"{base:020d}").data

    def files(self, directory: Path = DATA_DIR) -> dict[Path, bytes]:
        """Return all files of the store with their bytes."""
        found: dict[Path, bytes] = {}
        for path in (directory / name for name in self.fs.list(directory)):
            found |= self.files(path) if self.fs.is_directory(path) else {path: self.fs.read(path)}
        return found

    def exists(self, name: str) -> bool:
        """Whether the store has this file."""
        return self.fs.exists(DATA_DIR / name)


@contextlib.asynccontextmanager
async def log_on(fs: Fs, config: CommitLogConfig, clock: Clock) -> AsyncIterator[OpenLog]:
    """Open a log on any file system for a block, and stop it in order."""
    failures: list[BaseException] = []
    process = CommitLog(config, fs, clock, on_failure=failures.append)
    yield await process.open(LISTEN_HOST)
    await process.close()
    assert failures == []


class SlowDisk:
    """A sync that ends only when the test lets it end."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go_on = threading.Event()

    def __call__(self) -> None:
        self.entered.set()
        assert self.go_on.wait(LIMIT_S)


async def append(log: OpenLog, *messages: pb.AppendMessage, durability: int = 0) -> AppendedBatch:
    """Append a batch and wait for its durability."""
    batch = await log.pipeline.append(request(*messages, durability=durability), BORN_HOST)
    await durability_of(log, batch)
    return batch


async def durability_of(log: OpenLog, batch: AppendedBatch) -> int:
    """Wait until a batch is acknowledged, and return the durability that it has then."""
    acknowledgement = log.acknowledgements.of(batch)
    await acknowledgement.settle()
    return acknowledgement.durability()


async def synced(log: OpenLog) -> None:
    """Wait until everything that is written now is on the disk."""
    await log.marks.flushed.soon(log.chain.max_physical_offset)


async def fill(log: OpenLog, segment_count: int, body: bytes = bytes(1000), *, durability: int = 0) -> int:
    """Append single messages until the log has this many segments, and return the number of messages."""
    count = 0
    while len(log.chain.segments) < segment_count:
        await append(log, message(body), durability=durability)
        count += 1
    return count


def records(log: OpenLog, start: int | None = None) -> list[Record]:
    """Return all records that may be read, decoded by the reference decoder."""
    first = log.chain.min_physical_offset if start is None else start
    found = []
    for stretch in log.reader.stretches(first, log.marks.visible.value, size_bytes_max=1 << 20):
        found += [record.decode(stretch.run.buffer, position) for position in stretch.run.positions]
    return found


def bodies(log: OpenLog) -> list[bytes]:
    """Return the bodies of all records."""
    return [found.body for found in records(log)]


async def killed(machine: Machine, contents: list[bytes]) -> list[int]:
    """Append messages and end without a sync. Return the physical offsets of the records."""
    log = await machine.start()
    starts = [(await append(log, message(body))).start_physical_offset for body in contents]
    await machine.kill(log)
    return starts


def garble(data: bytearray, position: int) -> None:
    """Flip a bit in the middle of a record's body."""
    data[position + 90] ^= 0x40
