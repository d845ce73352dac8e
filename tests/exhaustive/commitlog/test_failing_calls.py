# SPDX-License-Identifier: Apache-2.0
"""Every call on the file system fails once: acknowledged data stays, nothing crashes, and no stop is called clean."""

import contextlib
import errno
from collections.abc import Awaitable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from libs.machine.testing.faulty_fs import WRITING_OPERATIONS, Fault, FaultyFs
from libs.machine.testing.memory_fs import everything_survives, nothing_survives
from libs.requests.errors import ServiceError
from libs.segments.errors import StoreError
from services.commitlog.engine.commit_log import CommitLog
from services.commitlog.engine.open_log import OpenLog
from tests.support.commitlog import BORN_HOST as BORN
from tests.support.commitlog import LISTEN_HOST, Machine, bodies, durability_of, make_config, message, request

LOCAL_DISK = 2
WORLDLY = (OSError, StoreError, ServiceError)
"""Errors that a caller may get; an AssertionError or a KeyError would be a bug."""
CONFIGS: dict[str, dict[str, object]] = {
    "plain": {},
    "sync": {"flush_mode": "sync"},
    "pool": {"transient_store_pool": True, "transient_store_pool_segment_count": 1},
}


@dataclass
class Life:
    """A process on a disk whose n-th call fails, and the messages that it promised."""

    machine: Machine
    failing_ordinal: int
    code: int
    operations: frozenset[str] = frozenset()
    call_count: int = 0
    promised: list[tuple[int, bytes]] = field(default_factory=list)
    sent: list[bytes] = field(default_factory=list)
    failures: list[BaseException] = field(default_factory=list)

    def plan(self, operation: str, _path: Path) -> Fault | None:
        """See `libs.machine.testing.faulty_fs.Plan`."""
        if self.operations and operation not in self.operations:
            return None
        self.call_count += 1
        return Fault(self.code, 0.5) if self.call_count == self.failing_ordinal else None

    async def live(self) -> None:
        """Start, append, meet new topics and segments, delete, write the small files, stop; errors do not end it."""
        config = make_config(**self.machine.config)
        process = CommitLog(
            config, FaultyFs(self.machine.fs, self.plan), self.machine.clock, on_failure=self.failures.append
        )
        try:
            log = await process.open(LISTEN_HOST)
        except WORLDLY:
            await process.close()
            return
        for number, (topic, size) in enumerate([("a", 10), ("b", 30_000), ("b", 40_000), ("c", 10), ("c", 60_000)]):
            await self._send(log, topic, b"%d" % number * size)
        for step in (log.segments.delete([0], allow_unindexed=True), log.checkpoint.save(), log.snapshot.save()):
            await tolerant(step)
        await self._send(log, "a", b"last")
        await tolerant(process.close())
        assert self.failures == [] or log.seal.is_set
        assert self.machine.exists("abort") or not log.seal.is_set

    async def _send(self, log: OpenLog, topic: str, body: bytes) -> None:
        self.sent.append(body)
        with contextlib.suppress(*WORLDLY):
            batch = await log.pipeline.append(request(message(body, topic), durability=LOCAL_DISK), BORN)
            if await durability_of(log, batch) == LOCAL_DISK:
                self.promised.append((batch.start_physical_offset, body))


async def tolerant(step: Awaitable[object]) -> None:
    """Accept the refusals of the file system and of the store, and no other error."""
    with contextlib.suppress(*WORLDLY):
        await step


@pytest.mark.parametrize("config", CONFIGS)
@pytest.mark.parametrize(("code", "operations"), [(errno.EIO, frozenset[str]()), (errno.ENOSPC, WRITING_OPERATIONS)])
async def test_each_call_fails_once(config: str, code: int, operations: frozenset[str]) -> None:
    """Call 1 fails in the first run, call 2 in the next, until a run has no fault.

    Each run is followed by a restart, or none, and a power cut.
    """
    ordinal, is_over = 0, False
    while not is_over:
        ordinal += 1
        machine = Machine(**CONFIGS[config])
        life = Life(machine, ordinal, code, frozenset(operations))
        await life.live()
        is_over = life.call_count < ordinal
        if ordinal % 2:
            await tolerant(restarted(machine))
        machine.fs.crash(nothing_survives)
        async with machine.running() as log:
            found = bodies(log)
            assert [body for body in life.sent if body in found] == found, ordinal
            lost = [offset for offset, body in life.promised if body not in found]
            assert [offset for offset in lost if offset >= log.chain.min_physical_offset] == [], ordinal
    assert ordinal > 5
    assert len(life.promised) == len(life.sent)


async def restarted(machine: Machine) -> None:
    """Start and stop on the healthy disk, with the content of the page cache."""
    machine.fs.crash(everything_survives)
    async with machine.running():
        pass
