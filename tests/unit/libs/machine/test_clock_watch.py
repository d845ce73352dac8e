# SPDX-License-Identifier: Apache-2.0
"""ClockWatch: a clock that is set while a service runs is logged and counted."""

import pytest

from libs.machine.clock import ClockStatistics, ClockWatch
from libs.machine.testing.manual_clock import ManualClock

HOUR_MS = 3_600_000


def test_steps_are_told_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    """Each step of the clock is logged and counted once, with its size and direction.

    Time that passes and small corrections are no steps.
    """
    clock = ManualClock()
    watch = ClockWatch(clock)
    for step_ms in (0, 900, HOUR_MS, 0, -HOUR_MS, -900):
        clock.advance(60_000)
        clock.set_now_ms(clock.now_ms() + step_ms)
        watch.look()
    assert [record.getMessage() for record in caplog.records] == [
        "the machine's clock was set ahead by 3600.0 s",
        "the machine's clock was set back by 3600.0 s",
    ]
    assert watch.statistics() == ClockStatistics(steps_total=2, steps_back_total=1, last_step_ms=-HOUR_MS)
