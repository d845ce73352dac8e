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
from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs, everything_survives
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.commit_log import CommitLog
from services.commitlog.engine.write.append import AppendedBatch
from tests.support.patience import LIMIT_S

DATA_DIR = Path("/store")
SEGMENT_SIZE = 65_536
NEVER_MS = 3_600_000
LISTEN_HOST = Host.parse("127.0.0.1:7101")
BORN_HOST = Host.parse("10.1.2.3:4567").to_bytes()
BORN_HOST_IPV6 = Host.parse("[2001:db8::a]:4567").to_bytes()


def make_config(**changes: Any) -> CommitLogConfig:
    """Small segments and no background work: a test that needs a flush asks for it, or for a mode that flushes."""
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
    }
    return CommitLogConfig(**{**quiet, **changes})


def message(body: bytes = b"body", topic: str = "orders", **fields: Any) -> pb.AppendMessage:
    """A message for queue 0 of `orders`."""
    return pb.AppendMessage(**{"topic": topic, "queue_id": 0, "body": body, **fields})


def request(*messages: pb.AppendMessage, durability: int = 0, writer: pb.Writer | None = None) -> bytes:
    """A serialized AppendRequest; one plain message unless told otherwise."""
    return pb.AppendRequest(messages=messages or (message(),), durability=durability, writer=writer).SerializeToString()


class Machine:
    """A disk and a clock that outlive the processes which a test runs on them."""

    def __init__(self, **config: Any) -> None:
        self.fs = MemoryFs()
        self.clock = ManualClock()
        self.config = config
        self.failures: list[BaseException] = []

    async def start(self, **changes: Any) -> CommitLog:
        """Open the store, as a new process does."""
        log = CommitLog(make_config(**{**self.config, **changes}), self.fs, self.clock, on_failure=self.failures.append)
        await log.open(LISTEN_HOST)
        for loop in (log._snapshot_loop, log._disk._loop):
            if loop._interval_ms == NEVER_MS and loop._task is not None:
                loop._task.cancel()  # before its first step, which might come at any moment; nor does a roll wake it
        return log

    @contextlib.asynccontextmanager
    async def running(self, **changes: Any) -> AsyncIterator[CommitLog]:
        """Open the store for a block and stop it in order."""
        log = await self.start(**changes)
        try:
            yield log
        finally:
            await log.close()

    async def kill(self, log: CommitLog, survives: Any = everything_survives) -> None:
        """End the process without any of its last steps; by default the page cache survives, as after SIGKILL."""
        for loop in (log._disk, log._checkpoint_loop, log._snapshot_loop):
            await loop.stop()
        for background in (log.flusher, log.commit_loop):
            task, background._task = background._task, None
            if task is not None:
                task.cancel()
            background._executor.shutdown()
        log._writer.shutdown()
        log._store = None
        self.fs.crash(survives)

    def segment_bytes(self, base: int = 0) -> bytearray:
        """The bytes of one segment, as processes see them; changes count."""
        return self.fs.file(DATA_DIR / "commitlog" / f"{base:020d}").data

    def files(self, directory: Path = DATA_DIR) -> dict[Path, bytes]:
        """All files of the store with their bytes."""
        found: dict[Path, bytes] = {}
        for path in (directory / name for name in self.fs.list(directory)):
            found |= self.files(path) if self.fs.is_directory(path) else {path: self.fs.read(path)}
        return found

    def exists(self, name: str) -> bool:
        """Whether the store has this file."""
        return self.fs.exists(DATA_DIR / name)


class SlowDisk:
    """A sync that ends only when the test says so."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.go_on = threading.Event()

    def __call__(self) -> None:
        self.entered.set()
        assert self.go_on.wait(LIMIT_S)


async def append(log: CommitLog, *messages: pb.AppendMessage, durability: int = 0) -> AppendedBatch:
    """Append one batch and wait for its durability."""
    batch = await log.append(request(*messages, durability=durability), BORN_HOST)
    await log.wait_sync(log.sync_of(batch))
    return batch


async def fill(log: CommitLog, segment_count: int, body: bytes = bytes(1000)) -> int:
    """Append single messages until the log has so many segments; the number of messages."""
    count = 0
    while len(log.chain.segments) < segment_count:
        await append(log, message(body))
        count += 1
    return count


def records(log: CommitLog, start: int | None = None) -> list[Record]:
    """All records that may be read, decoded by the reference decoder."""
    first = log.chain.min_physical_offset if start is None else start
    found = []
    for stretch in log.reader.stretches(first, log.confirmed_physical_offset, size_bytes_max=1 << 20):
        found += [record.decode(stretch.run.buffer, position) for position in stretch.run.positions]
    return found


def bodies(log: CommitLog) -> list[bytes]:
    """The bodies of all records."""
    return [found.body for found in records(log)]


async def killed(machine: Machine, contents: list[bytes]) -> list[int]:
    """Append messages and die without a sync; the records' physical offsets."""
    log = await machine.start()
    starts = [(await append(log, message(body))).start_physical_offset for body in contents]
    await machine.kill(log)
    return starts


def garble(data: bytearray, position: int) -> None:
    """Flip a bit in the middle of a record's body."""
    data[position + 90] ^= 0x40
