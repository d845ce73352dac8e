# SPDX-License-Identifier: Apache-2.0
"""Collector: with many objects there is no full round, with few the timer starts one, and cycles are freed."""

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from libs.runtime.watch.collector import NEW_BLOCK_COUNT_MAX, Collector
from tests.support.patience import LIMIT_S


class Node:
    """An object that can be part of a cycle."""

    def __init__(self) -> None:
        self.me = self


@pytest.fixture(autouse=True)
def _collector_state() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.unfreeze()
    gc.set_threshold(*thresholds)


def test_many_objects_that_stay_bring_no_full_round() -> None:
    """Many living objects, as of thousands of waiting calls, cause no full collection.

    A full collection would block the event loop for longer with each object.
    """
    Collector().settle()
    full_count = gc.get_stats()[2]["collections"]
    kept = [[number] for number in range(400_000)]
    assert gc.get_stats()[2]["collections"] == full_count
    assert len(kept) == 400_000


async def test_the_timer_finds_cycles_while_there_is_little_to_walk_over() -> None:
    """The timer also frees cycles that became old before they were garbage."""
    collector = Collector()
    collector.settle()
    node = weakref.ref(Node())
    with collector.running(interval_s=0.01):
        async with asyncio.timeout(LIMIT_S):
            while node() is not None:  # noqa: ASYNC110 - the collector has no bell
                await asyncio.sleep(0.01)


@pytest.mark.parametrize(("new_count", "is_made"), [(NEW_BLOCK_COUNT_MAX, True), (NEW_BLOCK_COUNT_MAX + 1, False)])
def test_the_timer_leaves_much_alone(new_count: int, *, is_made: bool) -> None:
    """The timer runs a full round only if few objects were made since the start."""
    counts = iter([1_000_000, 1_000_000 + new_count])
    collector = Collector(lambda: next(counts))
    collector.settle()
    node = weakref.ref(Node())
    assert collector.look() == is_made
    assert (node() is None) == is_made
