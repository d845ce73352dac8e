# SPDX-License-Identifier: Apache-2.0
"""A group as of the sample in which it moved last: the age of its lag, its sums, and measurements that stay true."""

import math
from dataclasses import replace
from typing import Any

from reput_client import ConsumerOffset

from services.console.ask.samples.moved import Moved, aged, sums_of
from services.console.pages.groups import GroupQueue, kept_queue

BEHIND = kept_queue(ConsumerOffset("orders", 0, 5, 10))
MEASURED = GroupQueue(
    topic="orders", queue_id=0, queue_offset=5, end_queue_offset=15, lag=10, lag_bytes=400, lag_s=30.0
)
AT_END = kept_queue(ConsumerOffset("orders", 1, 7, 0))


def group(*queues: GroupQueue, unmeasured: Any = None, taken_s: float = 100.0) -> Moved:
    return Moved((None, None), queues, taken_s, queues if unmeasured is None else unmeasured)


def test_only_a_lag_grows_older() -> None:
    """A group without unread messages has no age."""
    assert group(MEASURED, AT_END).lag_at(110.0) == (10, 400, 40.0)
    assert group(AT_END).lag_at(110.0) == (0, 0, 0.0)


def test_a_lag_that_is_not_measured_is_not_known() -> None:
    """Its messages are known, its bytes and its age are not."""
    messages, size_bytes, seconds = group(BEHIND, AT_END).lag_at(110.0)
    assert messages == 10
    assert math.isnan(size_bytes)
    assert math.isnan(seconds)
    assert group(BEHIND, AT_END).missing_count == 1


def test_a_measurement_holds_while_its_queue_rests() -> None:
    """The queue that moved is to be measured again, the other has the age that it has by now."""
    other = kept_queue(ConsumerOffset("audits", 0, 1, 3))
    before = group(MEASURED, other, unmeasured=(BEHIND, other))
    moved = kept_queue(ConsumerOffset("audits", 0, 2, 3))
    first, second = before.measured((BEHIND, moved), 160.0)
    assert (first.lag_bytes, first.lag_s) == (400, 90.0)
    assert second == moved
    assert before.measured((kept_queue(ConsumerOffset("orders", 0, 5, 11)),), 160.0)[0].lag_bytes is None


def test_sums_are_of_all_queues_of_a_topic() -> None:
    """Offsets and ends are added up by group and topic."""
    assert sums_of({"billing": group(MEASURED, AT_END)}) == {("billing", "orders"): (12, 22)}


def test_an_age_is_never_below_zero() -> None:
    """A clock of the store behind that of the console gives ages near zero, never less."""
    assert aged((MEASURED,), -60.0)[0].lag_s == 0.0
    assert replace(group(MEASURED), taken_s=90.0).lag_at(100.0)[2] == 40.0
