# SPDX-License-Identifier: Apache-2.0
"""LoopWatch: the longest pause of the loop, while it lasts and after it, and for how long it is remembered."""

import asyncio
import time
from collections.abc import Callable

import pytest

from libs.runtime.watch.loop_watch import (
    BUSY_S,
    BUSY_SHARE,
    IDLE_TICK_S,
    LONG_PAUSE_S,
    TICK_S,
    WINDOW_S,
    LoopWatch,
)
from tests.support.patience import LIMIT_S


class Hand:
    """A clock that a test moves."""

    def __init__(self) -> None:
        self.now_s = 1_000.0

    def __call__(self) -> float:
        return self.now_s


async def until(condition: Callable[[], bool]) -> None:
    """Let the watch's timer run until a condition is true."""
    async with asyncio.timeout(LIMIT_S):
        while not condition():  # noqa: ASYNC110 - a timer has no bell
            await asyncio.sleep(TICK_S)


async def ticked(watch: LoopWatch, hand: Hand, pause_s: float) -> None:
    """Let the next tick be late by this pause."""
    due_s = watch.due_s
    hand.now_s = due_s + pause_s
    await until(lambda: watch.due_s != due_s)


async def test_a_pause_is_seen_while_it_lasts_and_after_it() -> None:
    """A pause counts while it lasts and after it; only a pause above the limit counts as long."""
    hand = Hand()
    watch = LoopWatch(hand)
    with watch.running():
        await ticked(watch, hand, 0)
        assert watch.statistics().longest_pause_ms == 0
        await ticked(watch, hand, LONG_PAUSE_S / 2)
        assert watch.statistics().longest_pause_ms == pytest.approx(1000 * LONG_PAUSE_S / 2)
        assert watch.statistics().long_pauses_total == 0
        hand.now_s = watch.due_s + 3
        assert watch.statistics().longest_pause_ms == pytest.approx(3_000)
        await ticked(watch, hand, 3)
    hand.now_s += 100
    statistics = watch.statistics()
    assert statistics.longest_pause_ms == statistics.longest_pause_since_start_ms == pytest.approx(3_000)
    assert statistics.long_pauses_total == 1


async def test_the_longest_pause_is_forgotten_after_two_windows() -> None:
    """The longest pause expires after two windows; the longest pause since the start is kept beside it."""
    hand = Hand()
    watch = LoopWatch(hand)
    with watch.running():
        await ticked(watch, hand, 0.5)
        seen = []
        for _ in range(3):
            hand.now_s = watch.due_s = watch._window_end_s
            await ticked(watch, hand, 0)
            seen.append(round(watch.statistics().longest_pause_ms))
        assert seen == [500, 0, 0]
        assert watch.statistics().longest_pause_since_start_ms == pytest.approx(500)
    assert WINDOW_S >= 60, "a scrape a minute must not miss a pause"


async def test_work_is_told_from_a_machine_without_a_core_to_give() -> None:
    """Work is the time that the loop's thread computed in a pause, at most the pause."""
    hand, work = Hand(), Hand()
    watch = LoopWatch(hand, work)
    with watch.running():
        for pause_s, worked_s, longest_ms in ((2.0, 0.3, 300), (0.5, 0.2, 300), (0.4, 0.45, 400), (0, 5.0, 400)):
            work.now_s += worked_s
            await ticked(watch, hand, pause_s)
            assert watch.statistics().longest_work_ms == pytest.approx(longest_ms)
            assert watch.statistics().longest_work_since_start_ms == pytest.approx(longest_ms)
    assert watch.statistics().longest_pause_ms == pytest.approx(2_000)


async def test_an_idle_loop_is_looked_at_less_often() -> None:
    """An idle event loop has longer ticks until it computes for more than a small share of the time.

    The longer ticks return when it is idle again.
    """
    hand, work = Hand(), Hand()
    watch = LoopWatch(hand, work)

    async def next_tick_s(passed_s: float, worked_s: float) -> float:
        hand.now_s = watch.due_s = watch.due_s + passed_s
        work.now_s += worked_s
        await ticked(watch, hand, 0)
        return round(watch.due_s - hand.now_s, 6)

    with watch.running():
        assert await next_tick_s(0, 0) == TICK_S
        assert await next_tick_s(BUSY_S, BUSY_SHARE * BUSY_S / 2) == IDLE_TICK_S
        assert await next_tick_s(0, LONG_PAUSE_S / 2) == IDLE_TICK_S
        assert await next_tick_s(0, LONG_PAUSE_S) == TICK_S
        assert await next_tick_s(0, 0) == TICK_S
        assert await next_tick_s(BUSY_S, BUSY_SHARE * BUSY_S * 2) == TICK_S
        assert await next_tick_s(BUSY_S, 0) == IDLE_TICK_S


async def test_a_callback_that_holds_the_loop_is_seen() -> None:
    """With the real clock a callback's time counts, with any load of the machine."""
    watch = LoopWatch()
    with watch.running():
        await until(lambda: watch.due_s > 0)
        held_s = 0.2
        end_s = time.monotonic() + held_s
        while time.monotonic() < end_s:
            pass
        await asyncio.sleep(0)
        await until(lambda: watch.statistics().long_pauses_total > 0)
    assert watch.statistics().longest_pause_since_start_ms >= 1000 * (held_s - TICK_S)
    assert watch.statistics().longest_work_since_start_ms > 0
