# SPDX-License-Identifier: Apache-2.0
"""Trouble: repeated failures take few lines of the log, and no line that matters is lost."""

import pytest

from libs.machine.testing.manual_clock import ManualClock
from libs.machine.trouble import Trouble

AWAY = ConnectionError("the CommitLog is away")


@pytest.fixture
def clock(caplog: pytest.LogCaptureFixture) -> ManualClock:
    caplog.set_level("INFO")
    return ManualClock()


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    told = [(record.levelname, record.getMessage()) for record in caplog.records]
    caplog.clear()
    return told


def fail_for(trouble: Trouble, clock: ManualClock, seconds: int) -> None:
    for _ in range(seconds):
        trouble.failed("reading failed", AWAY)
        clock.advance(1_000)


def test_a_start_alarms_nobody(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """Peers that come up in their own time are no warning within half a minute."""
    trouble = Trouble("reading", now_s=clock.monotonic_s)
    fail_for(trouble, clock, 25)
    trouble.ended()
    assert lines(caplog) == [
        ("INFO", "reading failed: the CommitLog is away"),
        ("INFO", "reading works again after 25 failures in 25 s"),
    ]


def test_a_start_that_lasts_is_a_warning(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """A peer that stays away is logged as a warning after half a minute, and once a minute from then on."""
    trouble = Trouble("reading", now_s=clock.monotonic_s)
    fail_for(trouble, clock, 100)
    assert lines(caplog) == [
        ("INFO", "reading failed: the CommitLog is away"),
        ("WARNING", "reading failed: the CommitLog is away (32 failures in 31 s)"),
        ("WARNING", "reading failed: the CommitLog is away (92 failures in 91 s)"),
    ]


def test_later_failures_are_warnings_once_a_minute(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """After work that succeeded, the first failure of each row is logged at once."""
    trouble = Trouble("reading", now_s=clock.monotonic_s)
    trouble.ended()
    fail_for(trouble, clock, 61)
    trouble.ended()
    trouble.ended()
    fail_for(trouble, clock, 2)
    assert lines(caplog) == [
        ("WARNING", "reading failed: the CommitLog is away"),
        ("WARNING", "reading failed: the CommitLog is away (61 failures in 60 s)"),
        ("WARNING", "reading works again after 61 failures in 61 s"),
        ("WARNING", "reading failed: the CommitLog is away"),
    ]


def test_an_unexpected_error_keeps_its_traceback(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """An unexpected error is logged at once with its traceback, also during a start and between expected failures.

    Many unexpected errors take a line a minute.
    """
    trouble = Trouble("reading", now_s=clock.monotonic_s)
    fail_for(trouble, clock, 2)
    for _ in range(50):
        trouble.failed("reading failed", ValueError("a bug"), is_expected=False)
    [_, record] = caplog.records
    assert record.levelname == "WARNING"
    assert record.exc_info is not None


def test_parts_share_the_lines(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """The failures of a thousand readers of a log are one trouble, which lasts as long as any reader fails."""
    trouble = Trouble("reading", now_s=clock.monotonic_s)
    trouble.ended(part="some other")
    for part in range(1_000):
        trouble.failed(f"reading queue {part} failed", AWAY, part=part)
    assert lines(caplog) == [("WARNING", "reading queue 0 failed: the CommitLog is away")]
    for part in range(999):
        trouble.ended(part=part)
    assert lines(caplog) == []
    trouble.ended(part=999)
    assert lines(caplog) == [("WARNING", "reading works again after 1000 failures in 0 s")]


def test_a_part_that_is_stopped_is_forgotten(clock: ManualClock, caplog: pytest.LogCaptureFixture) -> None:
    """A stopped part neither keeps the trouble alive nor logs that the work succeeds again."""
    trouble = Trouble("reading", now_s=clock.monotonic_s)
    trouble.ended()
    trouble.failed("reading failed", AWAY, part="stopped")
    trouble.leave("stopped")
    trouble.failed("reading failed", AWAY, part="next")
    assert [level for level, _ in lines(caplog)] == ["WARNING", "WARNING"]
