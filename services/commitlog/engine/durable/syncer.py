# SPDX-License-Identifier: Apache-2.0
"""Syncer: advances a mark of the log up to another mark by work in a thread, in the background and on request.

There are two syncers. The flusher makes the bytes in the files durable. With a pool, the committer copies the bytes in
the pool to the files. It uses pwrite in a thread. A store into the mapping would hold the GIL, and so block the event
loop, for the whole copy, and would end the process if the disk refuses.
Invariants: a syncer runs its work once at a time; all requests during a run share the next run (group commit). The
flusher commits before it syncs, so the store time of a sync covers all bytes that were written before it; the chain
serializes concurrent commits. After the first failure no work runs any more: the seal is set.
Callers: the loop that owns the log. The marks cover whole batches only, across segments and without a hole.
Rules: docs/formats/store_checkpoint.md; RocketMQ's counterparts are GroupCommitService, FlushRealTimeService,
FlushDiskWatcher and CommitRealTimeService.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import NamedTuple, Self

from libs.log.watermark import Watermark
from libs.machine.clock import Clock
from libs.machine.durations import Durations
from libs.machine.fs import PAGE_SIZE_BYTES
from libs.machine.loop import SupervisedLoop
from libs.machine.workers import workers
from libs.segments.chain import SegmentChain
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.write.marks import Marks
from services.commitlog.engine.write.seal import Seal
from services.commitlog.engine.write.state import LogState


class Pace(NamedTuple):
    """When the background work runs.

    It is checked every `interval_ms`. It runs for at least `pages_min` pages, and for any number of pages when
    `thorough_interval_ms` have passed.
    """

    pages_min: int
    interval_ms: int
    thorough_interval_ms: int


@dataclass(slots=True, eq=False)
class Syncer:
    """The background worker of a mark. `_work` blocks, works at least up to `_source`, and returns its end."""

    _name: str
    _work: Callable[[], int]
    _source: Watermark
    _mark: Watermark
    _pace: Pace
    _state: LogState
    _seal: Seal
    _clock: Clock
    _config: CommitLogConfig
    covered_time_ms: int = field(init=False)
    """Store time of the last record that the mark certainly covers."""
    work_count: int = 0
    durations: Durations = field(default_factory=Durations)
    """Durations of the work."""
    loop: SupervisedLoop = field(init=False)
    _worked_s: float = field(init=False)
    _executor: Executor = field(init=False)

    def __post_init__(self) -> None:
        self.covered_time_ms = self._state.last_store_time_ms
        self._worked_s = self._clock.monotonic_s()
        self._executor = workers().one_thread(self._name)
        interval_ms, wakes = self._pace.interval_ms, self._mark.is_asked
        self.loop = SupervisedLoop(self._name, self._step, interval_ms=interval_ms, wakes=wakes)

    @classmethod
    def committer(
        cls, chain: SegmentChain, marks: Marks, state: LogState, seal: Seal, clock: Clock, config: CommitLogConfig
    ) -> Self:
        """Return the syncer that advances `committed`. Only a log with a pool has anything to commit."""
        pace = Pace(config.commit_pages_min, config.commit_interval_ms, config.commit_thorough_interval_ms)
        source, mark = marks.wrote, marks.committed
        return cls("commit", chain.commit, source, mark, pace, state, seal, clock, config)

    @classmethod
    def flusher(
        cls, chain: SegmentChain, marks: Marks, state: LogState, seal: Seal, clock: Clock, config: CommitLogConfig
    ) -> Self:
        """Return the syncer that advances `flushed`, and also `committed`."""

        def work() -> int:
            chain.commit()
            return chain.sync()

        pace = Pace(config.flush_pages_min, config.flush_interval_ms, config.flush_thorough_interval_ms)
        source, mark = marks.committed, marks.flushed
        return cls("flush", work, source, mark, pace, state, seal, clock, config)

    def is_due(self) -> bool:
        """Return whether a caller asks, or enough pages are due. Counts page numbers, as RocketMQ's isAbleToFlush."""
        start, end = self._mark.value, self._source.value
        if self._mark.is_wanted:
            return True
        if start == end:
            return False
        size_bytes = self._config.segment_size_bytes
        thorough_at_s = self._worked_s + self._pace.thorough_interval_ms / 1000
        if self._clock.monotonic_s() >= thorough_at_s or end // size_bytes > start // size_bytes:
            return True
        return end // PAGE_SIZE_BYTES - start // PAGE_SIZE_BYTES >= self._pace.pages_min

    async def run(self) -> None:
        """Run the work now. Never fails, but may set the seal."""
        covered_time_ms, begun_s = self._state.last_store_time_ms, self._clock.monotonic_s()
        loop = asyncio.get_running_loop()
        try:
            end = await asyncio.shield(loop.run_in_executor(self._executor, self._work))
        except Exception as error:  # noqa: BLE001 - whatever it is, nothing can be promised any more
            self._seal.set(error)
            return
        self.work_count += 1
        self._worked_s = self._clock.monotonic_s()
        self.durations.count(self._worked_s - begun_s)
        self.covered_time_ms = covered_time_ms
        self._source.advance(end)
        self._mark.advance(end)

    async def end(self) -> None:
        """End the thread after its current work. The loop has been stopped before."""
        await asyncio.to_thread(self._executor.shutdown)

    async def _step(self) -> None:
        if not self._seal.is_set and self.is_due():
            await self.run()
