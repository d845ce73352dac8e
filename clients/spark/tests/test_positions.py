# SPDX-License-Identifier: Apache-2.0
"""Which queues are read, and from where to where: patterns, assignments, times, shares."""

from __future__ import annotations

import json
from typing import Any

import pytest
from reput_spark.errors import NoMessageAtTime
from reput_spark.read import positions
from reput_spark.read.options import parse
from reput_spark.read.plan import plan, plan_ranges
from reput_spark.read.scan import read

BASE_MS = 1_700_000_000_000
"""Store time of the first entry of each queue; the next entries are a millisecond apart."""


def identities(indexer: Any, **options: str) -> list[tuple[str, int, int]]:
    """Return the places of the rows of a batch read, from their bodies."""
    parsed = parse({"endpoint": indexer.endpoint, "retryIntervalMs": "0", **options})
    batches = [batch for partition in plan(parsed) for batch in read(parsed, ("value",), partition)]
    return sorted(tuple(json.loads(row["value"])) for batch in batches for row in batch.to_pylist())


def test_a_pattern_means_whole_names(indexer: Any) -> None:
    """Topics that it matches as a whole, without the store's own topics. A stream would find new topics later."""
    for topic in ("orders", "orders-eu", "my-orders", "%RETRY%orders", "SCHEDULE_TOPIC_XXXX"):
        indexer.fill(topic, 2, 2)
    found = identities(indexer, subscribePattern="orders.*")
    assert {(topic, queue_id) for topic, queue_id, _ in found} == {
        (topic, queue_id) for topic in ("orders", "orders-eu") for queue_id in range(2)
    }
    assert {topic for topic, _, _ in identities(indexer, subscribePattern=".*", queues="1")} == {
        "orders",
        "orders-eu",
        "my-orders",
    }
    assert identities(indexer, subscribePattern="nothing") == []


def test_an_assignment_names_queues_by_topic(indexer: Any) -> None:
    """Each topic's own, also where another topic's list has the same numbers."""
    indexer.fill("a", 3, 2)
    indexer.fill("b", 3, 2)
    found = identities(indexer, assign='{"a": [0, 2], "b": [1]}')
    assert {(topic, queue_id) for topic, queue_id, _ in found} == {("a", 0), ("a", 2), ("b", 1)}


def test_times_by_queue(indexer: Any) -> None:
    """From the first entry at or after the start to the first entry at or after the end."""
    indexer.fill("orders", 3, 10)
    found = identities(
        indexer,
        subscribe="orders",
        startingOffsetsByTimestamp=json.dumps({"orders": {"0": BASE_MS + 7, "1": BASE_MS}}),
        endingOffsetsByTimestamp=json.dumps({"orders": {"1": BASE_MS + 2, "2": BASE_MS + 1}}),
    )
    assert found == [
        *(("orders", 0, offset) for offset in (7, 8, 9)),
        *(("orders", 1, offset) for offset in (0, 1)),
        ("orders", 2, 0),
    ]
    late = {"startingOffsetsByTimestamp": json.dumps({"orders": {"0": BASE_MS + 99}})}
    with pytest.raises(NoMessageAtTime, match="orders queue 0 has no message at or after"):
        identities(indexer, subscribe="orders", **late)
    rest = identities(indexer, subscribe="orders", startingOffsetsByTimestampStrategy="latest", **late)
    assert {queue_id for _, queue_id, _ in rest} == {1, 2}


def test_a_queue_that_came_after_the_ends_is_left_out(indexer: Any) -> None:
    """The Indexer plans queues without a range as a whole. The plan of a micro-batch drops them."""
    indexer.fill("orders", 3, 5)
    parsed = parse({"endpoint": indexer.endpoint, "subscribe": "orders"})
    found = plan_ranges(parsed, {("orders", 0): (1, 3), ("orders", 2): (0, 0), ("gone", 0): (4, 4)})
    ranges = [
        (one.topic, one.queue_id, one.start_queue_offset, one.end_queue_offset) for p in found for one in p.ranges
    ]
    assert ranges == [("orders", 0, 1, 3)]


@pytest.mark.parametrize(
    ("waiting", "most", "taken"),
    [
        ([100, 100], 50, [25, 25]),
        ([300, 100], 40, [30, 10]),
        ([1000, 1, 0], 10, [9, 1, 0]),
        ([5, 5], 10, [5, 5]),
        ([5, 5], 1, [1, 1]),
        ([0, 0], 1, [0, 0]),
    ],
)
def test_shares_of_a_limit(waiting: list[int], most: int, taken: list[int]) -> None:
    """In proportion to the waiting entries, and at least a single entry of each queue with entries."""
    begin = {("t", queue_id): 7 for queue_id in range(len(waiting))}
    ends = {("t", queue_id): 7 + count for queue_id, count in enumerate(waiting)}
    limited = positions.limited(begin, ends, most)
    assert [limited["t", queue_id] - 7 for queue_id in range(len(waiting))] == taken


def test_positions_as_json() -> None:
    """Sorted, so that equal positions are equal text. Names of this package are not topics."""
    found = positions.to_json({("b", 10): 1, ("b", 9): 2, ("a", 0): 3})
    assert json.dumps(found) == '{"a": {"0": 3}, "b": {"9": 2, "10": 1}}'
    assert positions.from_json({"$start": {"x": {"0": 9}}, **found}) == {("a", 0): 3, ("b", 9): 2, ("b", 10): 1}
