# SPDX-License-Identifier: Apache-2.0
"""Clocks that jump, and stores without appends: no segment is deleted before its time, and each is in the end."""

import pytest

from libs.machine.testing.manual_clock import ManualClock
from services.janitor.engine.believed_time import BelievedTime
from services.janitor.engine.policy import HOUR_MS
from tests.unit.services.janitor.support import NOW_MS, SIZE, Owners, segment
from tests.unit.services.janitor.test_retention_loop import Room

MINUTE_MS = 60_000
DAY_MS = 24 * HOUR_MS


def watched(clock: ManualClock) -> BelievedTime:
    """An hour ahead and a minute of jump are allowed."""
    return BelievedTime(clock, ahead_ms_max=HOUR_MS, jump_ms_max=MINUTE_MS)


def busy(clock: ManualClock, count: int = 21) -> Owners:
    """A log whose segments are some minutes old; the active segment's last record is of now."""
    ages = [segment(number, age_hours=(count - number) / 60) for number in range(count - 1)]
    return Owners([*ages, segment(count - 1, age_hours=0, is_active=True)])


@pytest.mark.parametrize("days", [10, 365 * 30, -1, -10])
async def test_a_clock_that_jumps(days: int, caplog: pytest.LogCaptureFixture) -> None:
    """While the clock is off no check deletes a segment; the jump is logged once, and its end, too.

    The status has the note.
    """
    clock = ManualClock(NOW_MS)
    owners = busy(clock)
    room = Room(owners, clock=clock, hours=tuple(range(24)))
    room.clock.advance(MINUTE_MS)
    await room.loop.check()
    clock.set_now_ms(clock.now_ms() + days * DAY_MS)
    for _ in range(100):
        clock.advance(10_000)
        await room.loop.check()
    run = await room.loop.run_once(is_dry_run=False)
    assert (run.deleted_segment_count, owners.calls) == (0, [])
    believed = room.loop.statistics().believed
    assert believed is not None
    assert f"the clock moved by {days * 24:+.1f} hours against monotonic time" in believed.note
    assert room.loop.counters().is_clock_believed == 0
    clock.set_now_ms(clock.now_ms() - days * DAY_MS)
    await room.loop.check()
    assert room.loop.counters().is_clock_believed == 1
    assert [one.message for one in caplog.records] == [believed.note, "the clock is believed again"]


async def test_a_janitor_that_starts_with_a_clock_far_ahead(caplog: pytest.LogCaptureFixture) -> None:
    """Segments that expired by the clock alone are kept, until an operator confirms the clock."""
    clock = ManualClock(NOW_MS)
    owners = busy(clock)
    clock.set_now_ms(NOW_MS + 10 * DAY_MS)
    room = Room(owners, clock=clock, hours=tuple(range(24)))
    for _ in range(100):
        clock.advance(10_000)
        await room.loop.check()
    assert owners.calls == []
    assert "the clock is 240.0 hours ahead of the newest record and of the time that was watched since" in caplog.text
    dry = await room.loop.run_once(is_dry_run=True, trusts_clock=True)
    assert {one.reason for one in dry.decisions} == {"EXPIRED", "ACTIVE"}
    assert {one.reason for one in (await room.loop.run_once(is_dry_run=True)).decisions} == {"NOT_EXPIRED", "ACTIVE"}
    run = await room.loop.run_once(is_dry_run=False, trusts_clock=True)
    assert run.deleted_segment_count == 20
    assert room.loop.counters().is_clock_believed == 1


async def test_a_quiet_store_expires() -> None:
    """Without an append for a week all segments expire in time, because the Janitor has watched that time."""
    owners = busy(ManualClock())
    room = Room(owners, hours=tuple(range(24)))
    gone_at_hour = None
    for hour in range(7 * 24):
        await room.loop.check()
        if len(owners.segments) < 21 and gone_at_hour is None:
            gone_at_hour = hour
        room.clock.advance(HOUR_MS)
    assert gone_at_hour == 72
    assert [one.base_physical_offset for one in owners.segments] == [20 * SIZE]


async def test_a_quiet_store_expires_later_under_a_new_janitor() -> None:
    """Five quiet days before the Janitor's start expire nothing.

    Only the time after the start, or an append, counts.
    """
    clock = ManualClock(NOW_MS + 5 * DAY_MS)
    owners = busy(clock)
    room = Room(owners, clock=clock, hours=tuple(range(24)))
    clock.advance(MINUTE_MS)
    await room.loop.check()
    clock.advance(71 * HOUR_MS)
    await room.loop.check()
    assert owners.calls == []
    clock.advance(HOUR_MS)
    await room.loop.check()
    assert owners.calls
    owners = busy(clock)
    room = Room(owners, clock=clock, hours=tuple(range(24)))
    clock.advance(MINUTE_MS)
    await room.loop.check()
    assert owners.calls == []
    owners.segments[-1] = segment(20, age_hours=(NOW_MS - clock.now_ms()) / HOUR_MS, is_active=True)
    await room.loop.check()
    assert owners.calls


def test_what_is_believed() -> None:
    """The clock is believed while it is steady and near; otherwise the believed time is less, and never more."""
    clock = ManualClock(NOW_MS)
    time = watched(clock)
    assert time.look(None).now_ms == NOW_MS
    assert time.look(NOW_MS - HOUR_MS).now_ms == NOW_MS
    assert time.look(NOW_MS + 48 * HOUR_MS).now_ms == NOW_MS, "a log that is ahead moves nothing"
    for _ in range(1_000):  # a clock that is set right bit by bit
        clock.set_now_ms(clock.now_ms() + MINUTE_MS // 100)
        assert time.look(clock.now_ms()).note == ""
    before_ms = clock.now_ms()
    clock.set_now_ms(before_ms + MINUTE_MS + 1)
    clock.advance(1_000)
    believed = time.look(clock.now_ms())
    assert (believed.now_ms, bool(believed.note)) == (before_ms + 1_000, True), "nor does a store time that came along"
    time.trust()
    assert time.look(None).now_ms == clock.now_ms()


def test_a_clock_that_runs_away_slowly() -> None:
    """Small steps in a row are limited by the newest record and the time since it."""
    clock = ManualClock(NOW_MS)
    time = watched(clock)
    time.look(NOW_MS)
    for _ in range(600):
        clock.set_now_ms(clock.now_ms() + MINUTE_MS)
        believed = time.look(NOW_MS)
    assert believed.now_ms == NOW_MS
    assert "ahead of the newest record" in believed.note
