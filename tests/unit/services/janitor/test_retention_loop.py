# SPDX-License-Identifier: Apache-2.0
"""The retention loop: the times of its runs, the order of its calls to the owners, and its history."""

import asyncio
from pathlib import Path

import pytest

from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs
from libs.requests.errors import DependencyUnavailable
from services.janitor.engine.facts import INDEX_OWNER, LOG_OWNER, Disk
from services.janitor.engine.history import Run, RunHistory
from services.janitor.engine.policy import HOUR_MS
from services.janitor.engine.retention_loop import RetentionLoop
from services.janitor.errors import OwnerRefused, RunInProgress
from tests.unit.services.janitor.support import CONSUMER, NOW_HOUR, NOW_MS, SIZE, Owners, policy, segment

HISTORY_FILE = Path("/store/reput/retention_history.jsonl")


class WatchedHistory(RunHistory):
    """A history with an event that a run was added."""

    added: asyncio.Event

    def add(self, run: Run) -> None:
        super().add(run)
        self.added.set()


class Room:
    """A loop with its surroundings. `pauses` are the seconds slept between deletions."""

    def __init__(
        self,
        owners: Owners,
        *,
        batch: int = 10,
        hours: tuple[int, ...] = (NOW_HOUR,),
        clock: ManualClock | None = None,
        **changes: object,
    ) -> None:
        self.clock = clock or ManualClock(NOW_MS)
        self.pauses: list[float] = []
        self.paused = asyncio.Event()
        self.fs = MemoryFs()
        self.fs.make_directory(HISTORY_FILE.parent)
        self.history = WatchedHistory(self.fs, HISTORY_FILE)
        self.ended = self.history.added = asyncio.Event()
        self.gate: asyncio.Event | None = None
        self.loop = RetentionLoop(
            log=owners,
            index=owners,
            policy=policy(hours=hours, delete_batch_count_max=batch, **changes),
            history=self.history,
            clock=self.clock,
            sleep=self._sleep,
        )

    async def _sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        self.paused.set()
        if self.gate is not None:
            await self.gate.wait()

    @property
    def runs(self) -> list[tuple[str, int, str]]:
        return told(self.history)


def told(history: RunHistory) -> list[tuple[str, int, str]]:
    """Trigger, count of deleted segments and error of all runs, newest first."""
    runs, _ = history.page(before_ms=None, count=100)
    return [(run.trigger, run.deleted_segment_count, run.error) for run in runs]


def owners_with(count: int) -> Owners:
    return Owners([segment(number) for number in range(count)] + [segment(count, age_hours=0, is_active=True)])


async def test_index_forgets_first() -> None:
    """The Indexer is trimmed to the end of a batch before the CommitLog deletes the batch's first segment."""
    owners = owners_with(3)
    owners.index_files = [(SIZE, 7), (3 * SIZE, 7)]
    room = Room(owners, batch=2)
    run = await room.loop.run_once(is_dry_run=False)
    assert owners.calls == [
        ("trim", 2 * SIZE),
        ("delete", 0),
        ("delete", SIZE),
        ("trim", 3 * SIZE),
        ("delete", 2 * SIZE),
    ]
    assert (run.deleted_segment_count, run.freed_bytes, run.error) == (3, 3 * SIZE + 14, "")
    assert room.pauses == [0.1, 0.1]
    assert room.runs == [("MANUAL", 3, "")]


async def test_a_full_disk_keeps_no_run_from_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """A run is reported and remembered although the disk has no room for its history; a later run writes both."""
    owners = owners_with(21)
    room = Room(owners, batch=1)
    room.fs.capacity_bytes = 0
    run = await room.loop.run_once(is_dry_run=False)
    assert (run.deleted_segment_count, run.error) == (20, "")
    assert room.runs == [("MANUAL", 20, "")]
    assert "is not in the history's file: /store/reput/retention_history.jsonl: the disk has no room" in caplog.text
    room.fs.capacity_bytes = 1 << 20
    await room.loop.run_once(is_dry_run=False)
    written = RunHistory(room.fs, HISTORY_FILE)
    caplog.clear()
    written.load()
    assert not caplog.records
    assert told(written) == room.runs == [("MANUAL", 1, ""), ("MANUAL", 20, "")]


async def test_dry_run_changes_nothing() -> None:
    """A dry run decides the same and asks no owner to change anything; it is not in the history."""
    owners = owners_with(2)
    room = Room(owners)
    run = await room.loop.run_once(is_dry_run=True)
    assert [decision.reason for decision in run.decisions] == ["EXPIRED", "EXPIRED", "ACTIVE"]
    assert (owners.calls, room.runs, run.deleted_segment_count) == ([], [], 0)
    assert (run.consumers, run.consumer_count, run.freed_bytes) == ((CONSUMER,), 3, 0)


async def test_manual_run_is_twenty_rounds() -> None:
    """A manual run deletes at most twenty batches."""
    owners = owners_with(25)
    run = await Room(owners, batch=1).loop.run_once(is_dry_run=False)
    assert run.deleted_segment_count == 20
    assert [decision.reason for decision in run.decisions[20:]] == ["BATCH_FULL"] * 5 + ["ACTIVE"]


async def test_hour_and_first_delay() -> None:
    """No check deletes in the first minute; then each check within the hour deletes a batch, and none outside of it."""
    owners = owners_with(5)
    room = Room(owners, batch=2)
    await room.loop.check()
    assert (owners.calls, room.loop.statistics().last_check_ms) == ([], None)
    assert room.loop.statistics().next_check_ms == NOW_MS + 60_000
    room.clock.advance(60_000)
    await room.loop.check()
    assert len(owners.segments) == 4
    room.clock.advance(HOUR_MS)
    await room.loop.check()
    assert len(owners.segments) == 4
    assert room.loop.statistics().last_check_ms == NOW_MS + 60_000 + HOUR_MS
    assert room.runs == [("HOUR", 2, "")]


@pytest.mark.parametrize(
    ("failing", "deleted", "calls"),
    [
        ("log_facts", 0, 0),
        ("index_facts", 0, 0),
        (f"trim_to {3 * SIZE}", 0, 0),
        (f"delete_segment {SIZE}", 1, 2),
    ],
)
async def test_first_failure_ends_the_run(failing: str, deleted: int, calls: int) -> None:
    """Deletions before a failure are in the history; without facts the caller gets the error."""
    owners = owners_with(3)
    room = Room(owners)
    owners.failures[failing] = OwnerRefused(service="commitlog", refusal="IN_USE", text="a reader holds it")
    if failing in ("log_facts", "index_facts"):
        with pytest.raises(OwnerRefused):
            await room.loop.run_once(is_dry_run=False)
    else:
        run = await room.loop.run_once(is_dry_run=False)
        assert (run.deleted_segment_count, run.error) == (deleted, "commitlog refused: IN_USE: a reader holds it")
    assert len(owners.calls) == calls
    assert room.runs == [("MANUAL", deleted, "commitlog refused: IN_USE: a reader holds it")]
    assert room.loop.statistics().last_error == "commitlog refused: IN_USE: a reader holds it"
    owners.failures.clear()
    await room.loop.run_once(is_dry_run=False)
    assert room.loop.statistics().last_error == ""
    assert room.loop.statistics().deleted_segment_count == 3


async def test_a_lasting_failure_is_no_run() -> None:
    """An owner that is away for the whole hour adds no run to the history; the status has the error."""
    owners = owners_with(1)
    room = Room(owners)
    owners.failures["log_facts"] = DependencyUnavailable("commitlog", "connection refused")
    room.clock.advance(60_000)
    for _ in range(5):
        await room.loop.check()
    assert room.runs == []
    assert room.loop.statistics().last_error == "commitlog is not available: connection refused"
    owners.failures.clear()
    await room.loop.check()
    assert (room.loop.statistics().last_error, room.runs) == ("", [("HOUR", 1, "")])


async def test_one_run_at_a_time_and_callers_may_leave() -> None:
    """A second run is refused during a run; a run continues without its caller."""
    owners = owners_with(2)
    room = Room(owners)
    room.gate = asyncio.Event()
    caller = asyncio.create_task(room.loop.run_once(is_dry_run=False))
    await room.paused.wait()
    with pytest.raises(RunInProgress) as refused:
        await room.loop.run_once(is_dry_run=True)
    assert refused.value.started == str(NOW_MS)
    room.clock.advance(60_000)
    await room.loop.check()
    assert room.loop.statistics().is_running
    caller.cancel()
    with pytest.raises(asyncio.CancelledError):
        await caller
    room.gate.set()
    await room.ended.wait()
    assert room.runs == [("MANUAL", 2, "")]


async def test_stop_ends_a_run() -> None:
    """A stop ends a run between two deletions; the deletions are remembered."""
    owners = owners_with(3)
    room = Room(owners)
    room.gate = asyncio.Event()
    room.loop.start()
    caller = asyncio.create_task(room.loop.run_once(is_dry_run=False))
    await room.paused.wait()
    await room.loop.stop()
    with pytest.raises(asyncio.CancelledError):
        await caller
    assert room.runs == [("MANUAL", 1, "the service stopped")]


async def test_disks_are_reported_until_they_are_not_full() -> None:
    """A full disk of the log is reported at each check, and its end once.

    The first check reports the disk in any case, so that a restarted Janitor ends the report of the process before it.
    The Indexer's disk is not reported.
    """
    owners = Owners([segment(0, age_hours=0, is_active=True)])
    room = Room(owners, disk_forced=False)
    room.clock.advance(60_000)
    for percent in (80, 91, 86, 85, 84):
        owners.disks = {LOG_OWNER: Disk(LOG_OWNER, percent), INDEX_OWNER: Disk(INDEX_OWNER, 100)}
        await room.loop.check()
        assert room.loop.statistics().is_disk_full is (percent in (91, 86))
    assert owners.reports == [(False, 80), (True, 91), (True, 86), (False, 85)]
    assert [disk.used_percent for disk in room.loop.statistics().disks] == [84, 100]


async def test_a_log_without_a_disk_that_takes_segments() -> None:
    """If the log's only file system is read-only or gone, its disk is not reported.

    Expired segments are deleted all the same.
    """
    owners = owners_with(2)
    room = Room(owners, hours=(NOW_HOUR,))
    room.clock.advance(60_000)
    del owners.disks[LOG_OWNER]
    await room.loop.check()
    assert (owners.reports, room.loop.statistics().last_error) == ([(False, 0)], "")
    assert [run[0] for run in room.runs] == ["HOUR"]


async def test_a_segment_in_use_is_tried_again() -> None:
    """Outside of the hours a segment in use is retried two minutes later, and then no more."""
    owners = owners_with(2)
    room = Room(owners, hours=(NOW_HOUR,))
    room.clock.advance(60_000)
    owners.failures["delete_segment 0"] = OwnerRefused(service="commitlog", refusal="IN_USE", text="a reader holds it")
    await room.loop.check()
    room.clock.advance(HOUR_MS)
    await room.loop.check()
    refused = ("HOUR", 0, "commitlog refused: IN_USE: a reader holds it")
    assert room.runs == [refused]
    owners.failures.clear()
    room.clock.advance(120_000)
    await room.loop.check()
    assert room.runs == [("RETRY", 2, ""), refused]
    owners.segments = owners_with(3).segments
    room.clock.advance(120_000)
    await room.loop.check()
    assert len(owners.segments) == 4


async def test_a_segment_in_use_that_is_gone_is_no_reason_any_more() -> None:
    """If a retry finds no segment to delete, later expired segments wait for their hour again."""
    owners = owners_with(1)
    room = Room(owners)
    room.clock.advance(60_000)
    owners.failures["delete_segment 0"] = OwnerRefused(service="commitlog", refusal="IN_USE", text="a reader holds it")
    await room.loop.check()
    owners.failures.clear()
    expired, owners.segments = owners.segments, owners.segments[1:]
    for segments in (owners.segments, expired):
        room.clock.advance(HOUR_MS)
        owners.segments = segments
        await room.loop.check()
    assert len(owners.segments) == 2


async def test_what_is_lost_is_counted() -> None:
    """Without the Indexer no segment is deleted, unless the policy gives segments up for a disk.

    These are counted apart.
    """
    owners = owners_with(3)
    owners.failures["index_facts"] = DependencyUnavailable("indexer", "connection refused")
    owners.disks[LOG_OWNER] = Disk(LOG_OWNER, 86, total_bytes=SIZE * 150)
    kept = Room(owners)
    kept.clock.advance(60_000)
    await kept.loop.check()
    assert (owners.calls, kept.loop.statistics().last_error) == ([], "indexer is not available: connection refused")
    room = Room(owners, unsafe_segments="delete_when_forced", retention_hours=500)
    room.clock.advance(60_000)
    await room.loop.check()
    assert (owners.calls, owners.lost) == ([("delete", 0), ("delete", SIZE)], [0, SIZE])
    assert room.loop.statistics().lost_segment_count == room.loop.counters().lost_segments_total == 2
    (run,) = room.history.page(before_ms=None, count=9)[0]
    assert [decision.is_lost for decision in run.decisions] == [True, True, False, False]
    assert "it goes although the Indexer has synced the log up to 0" in run.decisions[0].explanation


async def test_a_disk_that_fills_up_and_nothing_to_delete(caplog: pytest.LogCaptureFixture) -> None:
    """A disk that fills up without a segment to delete is logged once."""
    owners = Owners([segment(0, age_hours=1), segment(1, age_hours=0, is_active=True)])
    owners.disks[LOG_OWNER] = Disk(LOG_OWNER, 80)
    room = Room(owners)
    room.clock.advance(60_000)
    for _ in range(3):
        await room.loop.check()
    age = "its last record is 1.0 hours old, records are kept for 72 hours"
    assert [record.getMessage() for record in caplog.records if "fill up" in record.getMessage()] == [
        f"disks fill up (commitlog 80 %, indexer 50 %) and no segment can go; the oldest: {age}"
    ]


async def test_a_deletion_takes_the_report_back() -> None:
    """When a run has made room, appends are accepted again at once, after a manual run, too."""
    owners = owners_with(3)
    owners.disks[LOG_OWNER] = Disk(LOG_OWNER, 95)
    room = Room(owners, disk_forced=False)
    owners.after_delete = lambda: owners.disks.update({LOG_OWNER: Disk(LOG_OWNER, 80)})
    await room.loop.run_once(is_dry_run=False)
    assert owners.reports == [(True, 95), (False, 80)]
    assert not room.loop.statistics().is_disk_full
