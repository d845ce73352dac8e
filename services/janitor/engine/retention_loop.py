# SPDX-License-Identifier: Apache-2.0
"""RetentionLoop: looks at the owners' files and disks every few seconds, and runs when a run is due.

A look gathers facts, decides, and reports to the CommitLog whether its disk is full. A run makes the owners execute the
decisions.
Invariants: at most a single run at a time. The Indexer drops its entries first, then the CommitLog deletes, so that no
entry ever points at a deleted segment. The first refusal or failure ends the run. Its deletions remain, and the next
run continues.
Callers: a single event loop. The servicer calls `run_once`, the bootstrap calls `start` and `stop`.
Rules: docs/retention.md; RocketMQ 5.3 CleanCommitLogService (first look after 60 s, then every 10 s; 20 rounds per
manual request; a retry after 120 s for a segment that is in use).
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from msgspec import Struct, field, structs

from libs.machine.clock import Clock
from libs.machine.failpoints import failpoint
from libs.machine.loop import SupervisedLoop
from libs.requests.errors import DependencyUnavailable, ServiceError
from services.janitor.config import JanitorConfig
from services.janitor.engine.believed_time import Believed, BelievedTime
from services.janitor.engine.facts import INDEX_OWNER, LOG_OWNER, Disk, Expiry, Facts, IndexFacts, TopicRule, Trimmed
from services.janitor.engine.history import Run, RunHistory
from services.janitor.engine.index_relief import with_index_relief
from services.janitor.engine.owners import IndexOwner, LogOwner
from services.janitor.engine.policy import (
    Decision,
    DiskNote,
    ForDisk,
    Trigger,
    Verdict,
    decide,
    emptiest_by_owner,
    is_forcing,
)
from services.janitor.engine.topic_rules import TopicRules, TopicState, hold_of
from services.janitor.errors import OwnerRefused, RunInProgress

MANUAL_ROUND_COUNT = 20
"""A manual run may delete as many segments as so many scheduled runs (RocketMQ's MAX_MANUAL_DELETE_FILE_TIMES)."""

_log = logging.getLogger(__name__)


class RetentionStatistics(Struct):
    """The statistics of the loop. Times are milliseconds since the epoch, None before the first look."""

    start_ms: int
    is_running: bool = False
    last_check_ms: int | None = None
    next_check_ms: int = 0
    last_error: str = ""
    deleted_segment_count: int = 0
    lost_segment_count: int = 0
    freed_bytes: int = 0
    disks: Sequence[Disk] = ()
    disk_notes: Sequence[DiskNote] = ()
    is_disk_full: bool = False
    believed: Believed | None = None
    run_trigger: str = ""
    run_planned_segment_count: int = 0
    run_deleted_segment_count: int = 0
    topics: Sequence[TopicState] = ()
    expired_messages_total: int = 0
    first_kept_store_time_ms: int | None = None


class RetentionCounters(Struct, frozen=True):
    """The numbers of the loop, for metrics. Times are milliseconds since the epoch, 0 before the first look."""

    is_running: int
    """1 while a run deletes segments."""
    last_check_time_ms: int
    """Time of the last look, in seconds since the epoch; 0 before the first look."""
    is_disk_full: int
    """1 while a disk is above the limit from which appends are refused."""
    is_clock_believed: int
    """1 while the clock agrees with the times of the records."""
    commitlog_disk_used_percent: int
    """Used share of the CommitLog's emptiest disk."""
    indexer_disk_used_percent: int
    """Used share of the Indexer's emptiest disk."""
    deleted_segments_total: int
    """Segments that runs deleted."""
    lost_segments_total: int
    """Segments that were deleted before all of their records were indexed."""
    freed_bytes_total: int
    """Bytes that runs freed."""
    runs_total: int
    """Runs of retention."""
    failed_runs_total: int
    """Runs that failed."""
    topics_with_retention: int
    """Topics with a rule of retention of their own."""
    topics_not_known: int
    """Topics with a rule of their own for which the Indexer could not answer at the last look."""
    expired_messages_total: int
    """Messages that were taken away from readers by rules of topics."""


class RetentionLoop:
    """The loop of looks and runs, the only active part of the Janitor."""

    def __init__(
        self,
        *,
        log: LogOwner,
        index: IndexOwner,
        policy: JanitorConfig,
        history: RunHistory,
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.policy = policy
        self.time = BelievedTime(clock, ahead_ms_max=policy.clock_ahead_ms_max, jump_ms_max=policy.clock_jump_ms_max)
        self._log_owner, self._index_owner = log, index
        self._topics = TopicRules(log, index, interval_ms=policy.topic_check_interval_ms)
        self._is_follower = False
        self._history, self._clock, self._sleep = history, clock, sleep
        self._known = RetentionStatistics(start_ms=clock.now_ms())
        self._start_s = clock.monotonic_s()
        self._last_error = self._look_error = ""
        self._is_relief_vain = False
        """Whether a run for the Indexer's disk freed no bytes there. It is not repeated until this disk has room."""
        self._indexed_physical_offset = 0
        self._has_reported = False
        self._has_warned = False
        self._in_use_s: float | None = None
        """When the CommitLog last refused to delete a segment because it is read, in monotonic seconds."""
        self._run_count = self._failed_run_count = 0
        self._run_task: asyncio.Task[Run] | None = None
        self._run_started_ms = 0
        self._progress = _Deleted()
        self._loop = SupervisedLoop("retention", self.check, interval_ms=policy.check_interval_ms)

    def start(self) -> None:
        """Start the looks. Needs a running event loop."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop the looks, and end a run under way between two of its steps. May be repeated."""
        await self._loop.stop()
        if self._run_task is not None and not self._run_task.done():
            self._run_task.cancel()
            await asyncio.wait([self._run_task])

    def statistics(self) -> RetentionStatistics:
        """Return the statistics since the start."""
        known = self._known
        progress = self._progress if self._is_running else _Deleted()
        first_check_ms = known.start_ms + self.policy.first_check_delay_ms
        return structs.replace(
            known,
            is_running=self._is_running,
            next_check_ms=max(first_check_ms, (known.last_check_ms or 0) + self.policy.check_interval_ms),
            last_error=self._look_error or self._last_error or str(self._loop.last_error or ""),
            run_trigger=progress.trigger,
            run_planned_segment_count=progress.planned_count,
            run_deleted_segment_count=progress.segment_count,
            topics=self._topics.states,
            expired_messages_total=self._topics.expired_message_count,
        )

    def counters(self) -> RetentionCounters:
        """Return the counters since the start. Callers: any thread."""
        known = self._known
        used = {service: disk.used_percent or 0 for service, disk in emptiest_by_owner(known.disks).items()}
        return RetentionCounters(
            is_running=int(self._is_running),
            last_check_time_ms=known.last_check_ms or 0,
            is_disk_full=int(known.is_disk_full),
            is_clock_believed=int(known.believed is None or not known.believed.note),
            commitlog_disk_used_percent=used.get(LOG_OWNER, 0),
            indexer_disk_used_percent=used.get(INDEX_OWNER, 0),
            deleted_segments_total=known.deleted_segment_count,
            lost_segments_total=known.lost_segment_count,
            freed_bytes_total=known.freed_bytes,
            runs_total=self._run_count,
            failed_runs_total=self._failed_run_count,
            topics_with_retention=len(self._topics.states),
            topics_not_known=sum(one.error != "" for one in self._topics.states),
            expired_messages_total=self._topics.expired_message_count,
        )

    async def check(self) -> None:
        """Look, and run if a run is due.

        Returns at once if a run is under way, or within first_check_delay_ms after the start.
        """
        if (self._clock.monotonic_s() - self._start_s) * 1000 < self.policy.first_check_delay_ms or self._is_running:
            return
        self._known.last_check_ms = self._clock.now_ms()
        try:
            requested = Trigger.RETRY if self._is_retry_due() else None
            verdict = await self._look(self.policy, requested)
            if not self._is_follower:
                await self._topics.expire()
            if requested is not None:
                self._in_use_s = None  # a single retry; a new refusal causes the next retry
            if verdict.trigger is not None:
                self._warn_if_stuck(verdict)
                if any(decision.is_delete for decision in verdict.decisions):
                    await self._start_run(verdict.trigger, self.policy, verdict)
            self._look_error = ""
        except ServiceError as error:
            if str(error) != self._look_error:
                _log.warning("retention failed: %s", error)
            self._look_error = str(error)

    async def try_rules(self, topic: str, *, hours: int | None, size_bytes: int | None, trusts_clock: bool) -> Run:
        """Return a dry run with other limits, of the policy or of a topic. None leaves a limit unchanged.

        Changes nothing. The groups are those that would miss messages by the rule, then those of deleted segments.
        Raises DependencyUnavailable.
        """
        policy, rule = self._manual_policy(), None
        if topic:
            known = next((one for one in await self._log_owner.topic_rules() if one.topic == topic), TopicRule(topic))
            rule = TopicRule(
                topic,
                known.retention_hours if hours is None else hours,
                known.retention_bytes if size_bytes is None else size_bytes,
            )
        else:
            policy = replace(
                policy,
                retention_hours=policy.retention_hours if hours is None else hours,
                retention_bytes=policy.retention_bytes if size_bytes is None else size_bytes,
            )
        facts = await self._facts(policy)
        believed = self.time.look(facts.newest_store_time_ms)
        now_ms = self._clock.now_ms() if trusts_clock else believed.now_ms
        states = await self._topics.trial(rule, now_ms, policy.retention_hours)
        verdict = decide(
            structs.replace(facts, hold=hold_of(states)),
            now_ms,
            policy,
            is_clock_believed=trusts_clock or not believed.note,
            was_disk_full=self._known.is_disk_full,
            requested=Trigger.MANUAL,
        )
        doomed = [decision for decision in verdict.decisions if decision.is_delete]
        end = min(doomed[-1].end_physical_offset, facts.indexed_physical_offset) if doomed else 0
        trimmed = await self._index_owner.trim_to(end, is_dry_run=True) if doomed else Trimmed(0)
        hidden = next((state.expiry for state in states if rule is not None and state.rule == rule), Expiry())
        named = {(one.group, one.topic, one.queue_id) for one in hidden.consumers}
        others = [one for one in trimmed.consumers if (one.group, one.topic, one.queue_id) not in named]
        return Run(
            time_ms=self._clock.now_ms(),
            trigger=Trigger.MANUAL,
            is_dry_run=True,
            decisions=tuple(verdict.decisions),
            consumers=(*hidden.consumers, *others),
            consumer_count=hidden.consumer_count + trimmed.consumer_count - (len(trimmed.consumers) - len(others)),
            topics=states,
            first_kept_store_time_ms=_first_kept(facts, verdict.decisions),
        )

    def _manual_policy(self) -> JanitorConfig:
        return replace(self.policy, delete_batch_count_max=self.policy.delete_batch_count_max * MANUAL_ROUND_COUNT)

    async def run_once(self, *, is_dry_run: bool, trusts_clock: bool = False) -> Run:
        """Run now, at any hour. Raises RunInProgress, or DependencyUnavailable if the facts could not be gathered.

        A run whose deletions failed is returned with its `error`. A run continues if its caller is cancelled.
        `trusts_clock` makes the loop believe the clock from now on. In a dry run it applies to this run only.
        """
        return await self._start_run(
            Trigger.MANUAL, self._manual_policy(), is_dry_run=is_dry_run, trusts_clock=trusts_clock
        )

    @property
    def _is_running(self) -> bool:
        return self._run_task is not None and not self._run_task.done()

    def _is_retry_due(self) -> bool:
        """Return whether it is time to retry the deletion of a segment that was being read."""
        now_s = self._clock.monotonic_s()
        return self._in_use_s is not None and (now_s - self._in_use_s) * 1000 >= self.policy.retry_interval_ms

    async def _look(self, policy: JanitorConfig, requested: Trigger | None, *, now_ms: int | None = None) -> Verdict:
        """Gather facts, decide, and report its disk to the CommitLog. `now_ms` replaces the believed time."""
        facts = await self._facts(policy)
        believed = self.time.look(facts.newest_store_time_ms)
        at_ms = believed.now_ms if now_ms is None else now_ms
        states = await self._topics.look(at_ms, policy.retention_hours, is_new=requested is Trigger.MANUAL)
        verdict = decide(
            structs.replace(facts, hold=hold_of(states)),
            at_ms,
            policy,
            is_clock_believed=now_ms is not None or not believed.note,
            was_disk_full=self._known.is_disk_full,
            requested=requested,
        )
        self._known.first_kept_store_time_ms = _first_kept(facts, verdict.decisions)
        self._known.disks, self._indexed_physical_offset = facts.disks, facts.indexed_physical_offset
        self._tell(believed, verdict.disk_notes)
        # Repeated while the disk is full, because the CommitLog drops an old report. The first look reports always, to
        # end the report of an earlier Janitor.
        if verdict.is_disk_full or self._known.is_disk_full or not self._has_reported:
            disk = emptiest_by_owner(self._known.disks).get(LOG_OWNER)  # None, if no directory takes new segments
            used_percent = 0 if disk is None else disk.used_percent or 0
            await self._log_owner.report_disk(is_full=verdict.is_disk_full, used_percent=used_percent)
            self._has_reported = True
        self._known.is_disk_full = verdict.is_disk_full
        return verdict

    async def _facts(self, policy: JanitorConfig) -> Facts:
        """Gather the facts from the owners. Raises DependencyUnavailable."""
        log = await self._log_owner.log_facts()
        self._is_follower = log.is_follower
        try:
            index = await self._index_owner.index_facts()
        except DependencyUnavailable:
            if policy.unsafe_segments == "keep":
                raise
            index = IndexFacts(0, Disk(INDEX_OWNER, None))
        disks = (*log.disks, index.disk)
        facts = Facts(log.segments, index.indexed_physical_offset, log.replicated_physical_offset, disks)
        self._is_relief_vain &= is_forcing(index.disk, policy)
        facts = await with_index_relief(facts, self._index_owner, policy)
        return structs.replace(facts, relief_end_physical_offset=0) if self._is_relief_vain else facts

    def _tell(self, believed: Believed, notes: Sequence[DiskNote]) -> None:
        """Log each change of the disks' and the clock's notes once. A change of only the numbers is not logged."""
        known = {(note.service, note.path): note.outcome for note in self._known.disk_notes}
        for note in notes:
            if known.pop((note.service, note.path), None) is not note.outcome:
                _log.warning("%s", note.text)
        for service, path in known:
            _log.warning("the %s's file system%s has room again", service, path and f" of {path}")
        if bool(believed.note) != bool(self._known.believed and self._known.believed.note):
            _log.warning("%s", believed.note or "the clock is believed again")
        self._known.disk_notes, self._known.believed = notes, believed

    def _warn_if_stuck(self, verdict: Verdict) -> None:
        """Log once that a disk fills up and no segment can be deleted."""
        is_stuck = verdict.trigger in (Trigger.DISK_SPACE, Trigger.DISK_FORCED) and not any(
            decision.is_delete for decision in verdict.decisions
        )
        if is_stuck and not self._has_warned:
            oldest = verdict.decisions[0].explanation if verdict.decisions else "there is no segment"
            shown = ", ".join(f"{disk.service} {disk.used_percent} %" for disk in self._known.disks)
            _log.warning("disks fill up (%s) and no segment can go; the oldest: %s", shown, oldest)
        self._has_warned = is_stuck

    async def _start_run(
        self,
        trigger: Trigger,
        policy: JanitorConfig,
        verdict: Verdict | None = None,
        *,
        is_dry_run: bool = False,
        trusts_clock: bool = False,
    ) -> Run:
        """Run in its own task, so that a caller's cancellation does not stop the run between the owners."""
        if self._is_running:
            raise RunInProgress(started_ms=self._run_started_ms)
        # A run's time identifies it in the history, so it has to differ from the last run's time.
        self._run_started_ms = max(self._clock.now_ms(), self._history.last_time_ms + 1)
        run = Run(time_ms=self._run_started_ms, trigger=trigger, is_dry_run=is_dry_run)
        self._progress = _Deleted(trigger=trigger)
        now_ms = self._clock.now_ms() if trusts_clock else None
        if trusts_clock and not is_dry_run:
            self.time.trust()
        self._run_task = asyncio.create_task(self._run(run, policy, verdict, now_ms), name="retention run")
        return await asyncio.shield(self._run_task)

    async def _run(self, run: Run, policy: JanitorConfig, verdict: Verdict | None, now_ms: int | None) -> Run:
        decisions: Sequence[Decision] = ()
        deleted = self._progress
        failure: ServiceError | asyncio.CancelledError | None = None
        try:
            decisions = (verdict or await self._look(policy, Trigger.MANUAL, now_ms=now_ms)).decisions
            if not run.is_dry_run and not self._is_follower:
                await self._topics.expire()
            doomed = [decision for decision in decisions if decision.is_delete]
            deleted.planned_count = len(doomed)
            if doomed and run.is_dry_run:
                deleted.trimmed = await self._index_owner.trim_to(self._trimmable(doomed), is_dry_run=True)
            elif doomed:
                await self._delete(doomed, deleted)
        except (ServiceError, asyncio.CancelledError) as error:
            failure = error
        run = structs.replace(
            run,
            decisions=tuple(decisions),
            deleted_segment_count=deleted.segment_count,
            freed_bytes=deleted.freed_bytes,
            error="" if failure is None else str(failure) or "the service stopped",
            consumers=tuple(deleted.trimmed.consumers),
            consumer_count=deleted.trimmed.consumer_count,
            topics=tuple(self._topics.states),
            first_kept_store_time_ms=self._known.first_kept_store_time_ms,
        )
        if not run.is_dry_run:
            self._finish(run, failure)
            await self._lift_refusals(run)
        if failure is not None and (not decisions or isinstance(failure, asyncio.CancelledError)):
            raise failure
        return run

    async def _lift_refusals(self, run: Run) -> None:
        """Look again after a deletion while the disk is full, so that appends need not wait for the next look."""
        if self._known.is_disk_full and run.deleted_segment_count:
            with contextlib.suppress(ServiceError):  # then the next look reports it
                await self._look(self.policy, None)

    async def _delete(self, doomed: Sequence[Decision], deleted: "_Deleted") -> None:
        """Make the owners delete, batch by batch. `deleted` has the deletions so far, also when an owner refuses."""
        batch_size = self.policy.delete_batch_count_max
        for first in range(0, len(doomed), batch_size):
            batch = doomed[first : first + batch_size]
            if self._indexed_physical_offset:  # otherwise no Indexer answered, and the policy gives its entries up
                deleted.trimmed = await self._index_owner.trim_to(self._trimmable(batch), is_dry_run=False)
                deleted.index_freed_bytes += deleted.trimmed.freed_bytes
                deleted.freed_bytes += deleted.trimmed.freed_bytes
            for decision in batch:
                if deleted.segment_count:
                    await self._sleep(self.policy.delete_interval_ms / 1000)
                failpoint("retention.before_delete")
                deleted.freed_bytes += await self._log_owner.delete_segment(
                    decision.base_physical_offset, allow_unindexed=decision.is_lost
                )
                failpoint("retention.after_delete")
                deleted.segment_count += 1
                deleted.lost_count += decision.is_lost
                level = logging.ERROR if decision.is_lost else logging.INFO
                _log.log(level, "deleted segment %020d: %s", decision.base_physical_offset, decision.explanation)

    def _trimmable(self, doomed: Sequence[Decision]) -> int:
        """Return the end of these segments, limited by the indexed offset."""
        return min(doomed[-1].end_physical_offset, self._indexed_physical_offset)

    def _finish(self, run: Run, failure: BaseException | None) -> None:
        """Count the run, and record it in the history if it deleted a segment or failed with a new error.

        A failed manual run is always recorded.
        """
        is_in_use = isinstance(failure, OwnerRefused) and failure.refusal == "IN_USE"
        self._in_use_s = self._clock.monotonic_s() if is_in_use else None
        if run.deleted_segment_count and not self._progress.index_freed_bytes:
            self._is_relief_vain = any(note.outcome is ForDisk.WITH_INDEXES for note in self._known.disk_notes)
        is_news = run.error != "" and (run.error != self._last_error or run.trigger == Trigger.MANUAL)
        self._last_error = run.error
        self._known.deleted_segment_count += run.deleted_segment_count
        self._known.lost_segment_count += self._progress.lost_count
        self._known.freed_bytes += run.freed_bytes
        self._run_count += 1
        self._failed_run_count += run.error != ""
        if run.deleted_segment_count or is_news:
            try:
                self._history.add(run)
            except OSError as error:  # the deletions remain; the next recorded run writes this run, too
                _log.warning("the run of %d is not in the history's file: %s", run.time_ms, error)


def _first_kept(facts: Facts, decisions: Sequence[Decision]) -> int | None:
    """Return the store time of the first record that stays, None without one or if it is unknown."""
    pairs = zip(facts.segments, decisions, strict=True)
    return next((segment.first_store_time_ms for segment, decision in pairs if not decision.is_delete), None)


class _Deleted(Struct):
    """The deletions so far of the run under way."""

    trigger: str = ""
    planned_count: int = 0
    segment_count: int = 0
    lost_count: int = 0
    freed_bytes: int = 0
    index_freed_bytes: int = 0
    """The part of `freed_bytes` that the Indexer freed."""
    trimmed: Trimmed = field(default_factory=lambda: Trimmed(0))
    """The Indexer's last answer to a trim."""
