# SPDX-License-Identifier: Apache-2.0
"""RetentionLoop: looks every few seconds whether a run is due, and runs: gather facts, decide, ask the owners.

Invariants: one run at a time. The Indexer forgets first, then the CommitLog deletes, so that no entry ever points at a
segment that is gone. The first refusal or failure ends the run; what was done stays done and the next run goes on.
Callers: one event loop; `run_once` is called by the servicer, `start` and `stop` by the bootstrap.
Not handled: disk usage; only age decides.
Rules: RocketMQ 5.3 CleanCommitLogService (first look after 60 s, then every 10 s; 20 rounds per manual request).
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, replace

from libs.machine.clock import Clock
from libs.machine.failpoints import failpoint
from libs.machine.loop import SupervisedLoop
from services.janitor.engine.history import Run, RunHistory
from services.janitor.engine.owners import IndexOwner, LogOwner
from services.janitor.engine.policy import Decision, Facts, Policy, Schedule, decide
from services.janitor.errors import JanitorError, RunInProgress

MANUAL_ROUND_COUNT = 20
"""A manual run may delete as much as this many rounds of the schedule (RocketMQ's MAX_MANUAL_DELETE_FILE_TIMES)."""
TRIGGER_MANUAL = "MANUAL"
TRIGGER_HOUR = "HOUR"

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pace:
    """Pauses, in milliseconds: before the first look, between looks, between two deletions."""

    first_check_delay_ms: int
    check_interval_ms: int
    delete_interval_ms: int


@dataclass(frozen=True, slots=True)
class RetentionStatistics:
    """A snapshot of the loop. Times are milliseconds since the epoch, None if it has not happened."""

    is_running: bool
    last_check_ms: int | None
    next_check_ms: int
    last_error: str
    deleted_segment_count: int
    freed_bytes: int
    start_ms: int


@dataclass(frozen=True, slots=True)
class RetentionCounters:
    """The numbers of the loop, for metrics. Times are milliseconds since the epoch, 0 if it has not happened."""

    is_running: int
    last_check_time_ms: int
    deleted_segments_total: int
    freed_bytes_total: int
    runs_total: int
    failed_runs_total: int


class RetentionLoop:
    """The Janitor's only actor."""

    def __init__(
        self,
        *,
        log: LogOwner,
        index: IndexOwner,
        policy: Policy,
        schedule: Schedule,
        pace: Pace,
        history: RunHistory,
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.policy, self.schedule, self.pace = policy, schedule, pace
        self._log_owner, self._index_owner = log, index
        self._history, self._clock, self._sleep = history, clock, sleep
        self._start_ms = clock.now_ms()
        self._start_s = clock.monotonic_s()
        self._last_check_ms: int | None = None
        self._last_error = ""
        self._deleted_segment_count = self._freed_bytes = self._run_count = self._failed_run_count = 0
        self._run_task: asyncio.Task[Run] | None = None
        self._run_started_ms = 0
        self._loop = SupervisedLoop("retention", self.check, interval_ms=pace.check_interval_ms)

    def start(self) -> None:
        """Begin to look. Needs a running event loop."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop looking and end a run under way between two of its steps. May be repeated."""
        await self._loop.stop()
        if self._run_task is not None and not self._run_task.done():
            self._run_task.cancel()
            await asyncio.wait([self._run_task])

    def statistics(self) -> RetentionStatistics:
        """What the loop did since its start."""
        first_check_ms = self._start_ms + self.pace.first_check_delay_ms
        return RetentionStatistics(
            is_running=self._is_running,
            last_check_ms=self._last_check_ms,
            next_check_ms=max(first_check_ms, (self._last_check_ms or 0) + self.pace.check_interval_ms),
            last_error=self._last_error or str(self._loop.last_error or ""),
            deleted_segment_count=self._deleted_segment_count,
            freed_bytes=self._freed_bytes,
            start_ms=self._start_ms,
        )

    def counters(self) -> RetentionCounters:
        """What the loop counted since its start. From any thread."""
        return RetentionCounters(
            is_running=int(self._is_running),
            last_check_time_ms=self._last_check_ms or 0,
            deleted_segments_total=self._deleted_segment_count,
            freed_bytes_total=self._freed_bytes,
            runs_total=self._run_count,
            failed_runs_total=self._failed_run_count,
        )

    async def check(self) -> None:
        """One look: run if the hour matches, unless a manual run is under way or the service has only just started."""
        if (self._clock.monotonic_s() - self._start_s) * 1000 < self.pace.first_check_delay_ms:
            return
        self._last_check_ms = self._clock.now_ms()
        if self.schedule.is_due(self._last_check_ms) and not self._is_running:
            try:
                await self._start_run(TRIGGER_HOUR, self.policy, is_dry_run=False)
            except JanitorError as error:
                _log.warning("the run of this hour failed: %s", error)

    async def run_once(self, *, is_dry_run: bool) -> Run:
        """Run now, whatever the hour. Raises RunInProgress, or OwnerUnavailable if there was nothing to decide on.

        A run whose deletions failed is returned with its `error`. A run goes on if its caller goes away.
        """
        manual = replace(self.policy, delete_batch_count_max=self.policy.delete_batch_count_max * MANUAL_ROUND_COUNT)
        return await self._start_run(TRIGGER_MANUAL, manual, is_dry_run=is_dry_run)

    @property
    def _is_running(self) -> bool:
        return self._run_task is not None and not self._run_task.done()

    async def _start_run(self, trigger: str, policy: Policy, *, is_dry_run: bool) -> Run:
        """Run in a task of its own, so that a caller's cancellation does not stop it between the owners."""
        if self._is_running:
            raise RunInProgress(started_ms=self._run_started_ms)
        # A run's time names it in the history, so it has to differ from the one before.
        self._run_started_ms = max(self._clock.now_ms(), self._history.last_time_ms + 1)
        run = Run(time_ms=self._run_started_ms, trigger=trigger, is_dry_run=is_dry_run)
        self._run_task = asyncio.create_task(self._run(run, policy), name="retention run")
        return await asyncio.shield(self._run_task)

    async def _run(self, run: Run, policy: Policy) -> Run:
        decisions: list[Decision] = []
        deleted = _Deleted()
        failure: JanitorError | asyncio.CancelledError | None = None
        try:
            decisions = decide(await self._gather(), policy, self._clock.now_ms())
            if not run.is_dry_run:
                await self._delete([decision for decision in decisions if decision.is_delete], deleted)
        except (JanitorError, asyncio.CancelledError) as error:
            failure = error
        run = replace(
            run,
            decisions=tuple(decisions),
            deleted_segment_count=deleted.segment_count,
            freed_bytes=deleted.freed_bytes,
            error="" if failure is None else str(failure) or "the service stopped",
        )
        if not run.is_dry_run:
            self._finish(run)
        if failure is not None and (not decisions or isinstance(failure, asyncio.CancelledError)):
            raise failure
        return run

    async def _gather(self) -> Facts:
        segments = await self._log_owner.list_segments()
        return Facts(segments, await self._index_owner.indexed_physical_offset())

    async def _delete(self, doomed: Sequence[Decision], deleted: "_Deleted") -> None:
        """Ask the owners, batch by batch; `deleted` counts what is done, also when an owner refuses."""
        batch_size = self.policy.delete_batch_count_max
        for first in range(0, len(doomed), batch_size):
            batch = doomed[first : first + batch_size]
            deleted.freed_bytes += await self._index_owner.trim_to(
                batch[-1].base_physical_offset + batch[-1].size_bytes
            )
            for decision in batch:
                if deleted.segment_count:
                    await self._sleep(self.pace.delete_interval_ms / 1000)
                failpoint("retention.before_delete")
                deleted.freed_bytes += await self._log_owner.delete_segment(decision.base_physical_offset)
                failpoint("retention.after_delete")
                deleted.segment_count += 1
                _log.info("deleted segment %020d: %s", decision.base_physical_offset, decision.explanation)

    def _finish(self, run: Run) -> None:
        """Count the run and remember it if it deleted something or failed in a new way."""
        is_news = run.error != "" and (run.error != self._last_error or run.trigger == TRIGGER_MANUAL)
        self._last_error = run.error
        self._deleted_segment_count += run.deleted_segment_count
        self._freed_bytes += run.freed_bytes
        self._run_count += 1
        self._failed_run_count += run.error != ""
        if run.deleted_segment_count or is_news:
            self._history.add(run)


@dataclass(slots=True)
class _Deleted:
    """What a run has deleted so far."""

    segment_count: int = 0
    freed_bytes: int = 0
