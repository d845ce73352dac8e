# SPDX-License-Identifier: Apache-2.0
"""LogTime: the clock by which delayed messages are due."""

from libs.machine.testing.manual_clock import ManualClock
from services.indexer.engine.log.time import LogTime


def test_log_time() -> None:
    """The wall clock, or what was seen plus the time since, whichever is later."""
    clock = ManualClock(1_000)
    time = LogTime(clock)
    assert time.now_ms() == 1_000
    time.saw(900)
    clock.advance(50)
    assert time.now_ms() == 1_050
    clock.set_now_ms(10)
    assert time.now_ms() == 950
    time.saw(2_000)
    time.saw(1_990)
    clock.advance(5)
    assert time.now_ms() == 2_005
    clock.set_now_ms(9_000)
    assert time.now_ms() == 9_000
