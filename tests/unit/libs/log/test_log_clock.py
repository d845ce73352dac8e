# SPDX-License-Identifier: Apache-2.0
"""LogClock: the time of a log, by which messages are stored and delays end."""

from libs.log.log_clock import LogClock
from libs.machine.testing.manual_clock import ManualClock

HOUR_MS = 3_600_000


def test_the_later_one_counts() -> None:
    """The later time counts: the wall clock, or the last seen time plus most of the time since."""
    clock = ManualClock(1_000)
    time = LogClock(clock)
    assert time.now_ms() == 1_000
    time.saw(900)
    clock.advance(50)
    assert time.now_ms() == 1_050
    clock.set_now_ms(10)
    assert time.now_ms() == 945
    time.saw(2_000)
    time.saw(1_990)
    clock.advance(10)
    assert time.now_ms() == 2_009
    clock.set_now_ms(9_000)
    assert time.now_ms() == 9_000
    assert time.ahead_ms() == 0


def test_a_clock_that_was_ahead_is_caught_up() -> None:
    """A lead of an hour is caught up in ten hours, during which the log's time runs at nine tenths of its speed."""
    clock = ManualClock()
    time = LogClock(clock)
    time.saw(clock.now_ms() + HOUR_MS)
    begun_ms = time.now_ms()
    clock.advance(HOUR_MS)
    time.saw(time.now_ms())
    assert (time.now_ms() - begun_ms, time.ahead_ms()) == (0.9 * HOUR_MS, 0.9 * HOUR_MS)
    clock.advance(9 * HOUR_MS)
    assert (time.now_ms() - clock.now_ms(), time.ahead_ms()) == (0, 0)
    clock.advance(HOUR_MS)
    assert time.now_ms() == clock.now_ms()


def test_a_clock_that_is_set_back_while_nothing_is_stored() -> None:
    """A clock that is set back does not set the log's time back.

    A step ahead counts only if a message was stored then.
    """
    clock = ManualClock()
    time = LogClock(clock)
    time.saw(clock.now_ms())
    for step_ms in (HOUR_MS, -HOUR_MS):  # wrong, and right again
        clock.advance(HOUR_MS)
        time.look()
        clock.set_now_ms(clock.now_ms() + step_ms)
        time.look()
    assert time.ahead_ms() == 0
    clock.advance(10 * HOUR_MS)
    time.look()
    before_ms = time.now_ms()
    clock.set_now_ms(clock.now_ms() - HOUR_MS)
    clock.advance(1_000)
    time.look()
    assert time.now_ms() == before_ms + 900
