# SPDX-License-Identifier: Apache-2.0
"""Clocks: the system clock is consistent, and the manual clock moves only by its methods."""

from libs.machine.clock import SystemClock
from libs.machine.testing.manual_clock import ManualClock


def test_system_clock_is_in_milliseconds_since_the_epoch() -> None:
    """The time is between 2020 and 2200, and the monotonic clock never moves backwards."""
    clock = SystemClock()
    assert 1_577_836_800_000 < clock.now_ms() < 7_258_118_400_000
    assert clock.monotonic_s() <= clock.monotonic_s()


def test_manual_clock_moves_when_told() -> None:
    """`advance` moves both clocks; a step of the wall clock does not move the monotonic clock."""
    clock = ManualClock(1_000)
    clock.advance(500)
    assert (clock.now_ms(), clock.monotonic_s()) == (1_500, 0.5)
    clock.set_now_ms(10)
    assert (clock.now_ms(), clock.monotonic_s()) == (10, 0.5)
