# SPDX-License-Identifier: Apache-2.0
"""Watermark: waiting callers are notified in order and not too early, and a failure reaches only callers that asked."""

import asyncio
import weakref

import pytest

from libs.log.watermark import CROWD_COUNT, Watermark


class LostError(Exception):
    """The error of a mark that failed."""


def done(*futures: asyncio.Future[None]) -> list[bool]:
    """Whether each future is done."""
    return [future.done() for future in futures]


async def test_who_waits_is_told_when_the_mark_is_there() -> None:
    """Each caller is notified when the mark reaches its number, in any order of the calls."""
    mark = Watermark(10)
    waiting = [mark.reached(end) for end in (30, 10, 20, 20)]
    assert done(*waiting) == [False, True, False, False]
    for value, expected in ((19, [False, False, False]), (20, [False, True, True]), (100, [True, True, True])):
        mark.advance(value)
        assert done(waiting[0], *waiting[2:]) == expected


async def test_those_who_are_told_together_hear_of_it_in_the_order_of_their_numbers() -> None:
    """Callers resume in the order of their numbers, and callers with equal numbers in the order of their calls."""
    mark, heard = Watermark(), []
    for name, end in (("c", 3), ("a", 1), ("b", 2), ("d", 3)):
        mark.reached(end).add_done_callback(lambda _, name=name: heard.append(name))
    mark.advance(3)
    await asyncio.sleep(0)
    assert heard == ["a", "b", "c", "d"]


def test_the_mark_never_goes_back() -> None:
    """A smaller number does not change the mark."""
    mark = Watermark(5)
    mark.advance(4)
    assert mark.value == 5


async def test_who_looks_on_asks_for_nothing() -> None:
    """`soon` notifies the mover of the mark of each new need once.

    `reached` does not notify it.
    """
    mark = Watermark()
    mark.reached(5)
    assert (mark.is_wanted, mark.is_asked.is_set()) == (False, False)
    mark.soon(3)
    assert (mark.is_wanted, mark.wanted, mark.is_asked.is_set()) == (True, 3, True)
    mark.is_asked.clear()
    mark.hurry(3)
    mark.soon(2)
    assert not mark.is_asked.is_set()
    mark.advance(3)
    assert not mark.is_wanted


async def test_a_failure_reaches_those_who_asked() -> None:
    """A failure reaches callers of `soon`, now and later.

    A number that was reached stays reached. Callers of `reached` are not disturbed.
    """
    mark = Watermark(1)
    asked, followed = mark.soon(2), mark.reached(2)
    mark.fail(LostError)
    for future in (asked, mark.soon(2)):
        with pytest.raises(LostError):
            await future
    await mark.soon(1)
    assert done(followed, mark.reached(2)) == [False, False]


async def test_those_who_gave_up_are_forgotten() -> None:
    """A follower that waits shortly, again and again, for a number that is not reached leaves no memory behind."""
    mark, given_up = Watermark(), []
    faithful = mark.soon(7)
    for _ in range(100 * CROWD_COUNT):
        waiting = mark.reached(5)
        waiting.cancel()
        given_up.append(weakref.ref(waiting))
    assert sum(reference() is not None for reference in given_up) <= 2 * CROWD_COUNT
    mark.advance(7)
    await faithful
