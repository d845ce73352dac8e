# SPDX-License-Identifier: Apache-2.0
"""Whatever happens to a CommitLog, in any order: what was acknowledged is there, and nothing else appears."""

import asyncio
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from libs.machine.memory_fs import everything_survives
from services.commitlog.engine.commit_log import CommitLog
from tests.unit.services.commitlog.support import BORN_HOST, SEGMENT_SIZE, Machine, message, records, request

T = TypeVar("T")
SIZES = st.one_of(st.integers(0, 50), st.integers(0, 9_000))


class CommitLogMachine(RuleBasedStateMachine):
    """The log next to a list of what it must hold: bodies with their queues, oldest first."""

    @initialize(mode=st.sampled_from(["async", "sync"]))
    def start(self, mode: str) -> None:
        """An empty store."""
        self.loop = asyncio.new_event_loop()
        self.machine = Machine(flush_mode=mode)
        self.log = self.run(self.started())
        self.written: list[tuple[int, bytes]] = []
        self.synced_count = 0
        self.deleted_count = 0
        self.counter = 0
        self.followed: dict[int, bytes] = {}
        self.follower_epoch = self.follower_end = 0

    async def started(self) -> CommitLog:
        """A start without background work, so that an example always runs the same way."""
        log = await self.machine.start()
        for loop in (log._snapshot_loop, log._checkpoint_loop, log._disk):
            await loop.stop()
        return log

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run the engine for a while."""
        return self.loop.run_until_complete(work)

    @rule(sizes=st.lists(SIZES, min_size=1, max_size=8), queue_id=st.integers(0, 3), durability=st.integers(0, 2))
    def append(self, sizes: list[int], queue_id: int, durability: int) -> None:
        """A batch of messages of any size."""
        bodies = []
        for size in sizes:
            self.counter += 1
            bodies.append(b"%08d" % self.counter + bytes(size))
        raw = request(*(message(body, queue_id=queue_id) for body in bodies), durability=durability)

        async def appended() -> int:
            batch = await self.log.append(raw, BORN_HOST)
            return await self.log.wait_sync(self.log.sync_of(batch))

        reached = self.run(appended())
        self.written += [(queue_id, body) for body in bodies]
        if reached == 2:
            self.synced_count = len(self.written)

    @rule(duration_ms=st.integers(-2_000, 10_000))
    def time_passes(self, duration_ms: int) -> None:
        """The clock moves, sometimes backwards."""
        self.machine.clock.set_now_ms(self.machine.clock.now_ms() + duration_ms)

    @rule()
    def save(self) -> None:
        """The background writes its small files."""
        self.run(self.log._save_snapshot())
        self.run(self.log._save_checkpoint())
        self.synced_count = self.count_of(self.log.flusher.flushed_physical_offset)

    @rule()
    def follow(self) -> None:
        """A follower connects: what the handshake lets it keep is what the log has, and it takes the rest."""
        shake = self.log.handshake(follower_epoch=self.follower_epoch, follower_physical_offset=self.follower_end)
        now = {found.physical_offset: found.body for found in records(self.log)}
        kept = {at: body for at, body in self.followed.items() if at < shake.common_end_physical_offset}
        assert {at: body for at, body in kept.items() if at >= shake.min_physical_offset}.items() <= now.items()
        assert shake.start_physical_offset <= self.log.confirmed_physical_offset
        self.followed = {**kept, **{at: body for at, body in now.items() if at >= shake.start_physical_offset}}
        assert now.items() <= self.followed.items()
        self.follower_epoch, self.follower_end = shake.epoch, self.log.confirmed_physical_offset

    @rule()
    def restart(self) -> None:
        """A clean stop and a start."""
        self.run(self.log.close())
        self.log = self.run(self.started())
        assert self.log.recovery.was_clean_stop
        self.synced_count = len(self.written)

    @rule()
    def kill(self) -> None:
        """The process dies; the machine runs on."""
        self.run(self.machine.kill(self.log, everything_survives))
        self.log = self.run(self.started())
        assert self.count_of(self.log.chain.max_physical_offset) == len(self.written)
        self.synced_count = len(self.written)

    @rule(kept_pages=st.sets(st.integers(0, 15)))
    def power_cut(self, kept_pages: set[int]) -> None:
        """The machine dies. Of what was not synced some pages of each segment are left, whichever the disk took."""

        def survives(path: Path, page: int | None) -> bool:
            return path.parent.name == "commitlog" and page in kept_pages

        self.run(self.machine.kill(self.log, survives))
        self.log = self.run(self.started())
        count = self.count_of(self.log.chain.max_physical_offset)
        assert self.synced_count <= count <= len(self.written)
        self.written = self.written[:count]
        self.synced_count = count

    @precondition(lambda self: len(self.log.chain.segments) > 1)
    @rule()
    def delete(self) -> None:
        """The oldest segment expires."""
        base = self.log.chain.min_physical_offset
        gone = sum(found.physical_offset < base + SEGMENT_SIZE for found in records(self.log))
        if self.log.confirmed_physical_offset < base + SEGMENT_SIZE:
            return
        [deletion] = self.run(self.log.segments.delete([base], allow_unindexed=True))
        assert deletion.freed_bytes == SEGMENT_SIZE
        self.deleted_count += gone

    @invariant()
    def log_has_what_was_written(self) -> None:
        """All confirmed records are there, in order, with the queue offsets that they must have."""
        found = records(self.log)
        expected = self.written[self.deleted_count : self.deleted_count + len(found)]
        assert [(one.queue_id, one.body) for one in found] == expected
        if self.log.config.flush_mode == "async":
            assert len(found) == len(self.written) - self.deleted_count
        next_offsets = [
            sum(queue == queue_id for queue, _ in self.written[: self.deleted_count]) for queue_id in range(4)
        ]
        for one in found:
            assert one.queue_offset == next_offsets[one.queue_id]
            next_offsets[one.queue_id] += 1
        times = [one.store_time_ms for one in found]
        assert times == sorted(times)

    def count_of(self, end: int) -> int:
        """Number of messages below an offset, those of deleted segments included."""
        confirmed = [found for found in records(self.log) if found.physical_offset < end]
        return self.deleted_count + len(confirmed)

    def teardown(self) -> None:
        """Stop cleanly."""
        if hasattr(self, "log"):
            self.run(self.log.close())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()


CommitLogMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=25)
TestCommitLog = pytest.mark.slow(CommitLogMachine.TestCase)
