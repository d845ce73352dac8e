# SPDX-License-Identifier: Apache-2.0
"""Narrowing: the effect of comparisons on options, and that no row is left out that may pass."""

from __future__ import annotations

import json
from typing import Any

import pytest
from reput_spark.read.narrow import OFFSET_END, Comparison, has_positions, narrowed, offset_range
from reput_spark.read.options import parse

NEEDED = {"endpoint": "indexer:7102", "subscribe": "orders,payments"}
MS = 1_700_000_000_000
US = MS * 1000


def by(column: str, relation: str, *values: Any) -> Comparison:
    """A comparison."""
    return Comparison(column, relation, values)


@pytest.mark.parametrize(
    ("given", "asked", "expected"),
    [
        ({}, [by("timestamp", ">=", US)], {"startingTimestamp": str(MS)}),
        ({}, [by("timestamp", ">=", US + 1)], {"startingTimestamp": str(MS + 1)}),
        ({}, [by("timestamp", ">", US)], {"startingTimestamp": str(MS + 1)}),
        ({}, [by("timestamp", "<", US)], {"endingTimestamp": str(MS)}),
        ({}, [by("timestamp", "<", US + 1)], {"endingTimestamp": str(MS + 1)}),
        ({}, [by("timestamp", "<=", US)], {"endingTimestamp": str(MS + 1)}),
        (
            {},
            [by("timestamp", "=", US, US + 5000)],
            {"startingTimestamp": str(MS), "endingTimestamp": str(MS + 6)},
        ),
        ({"startingTimestamp": str(MS + 9)}, [by("timestamp", ">", US)], {"startingTimestamp": str(MS + 9)}),
        (
            {},
            [by("timestamp", ">=", 5_000), by("timestamp", "<", 10**13)],
            {
                "startingTimestamp": "1970-01-01T00:00:00.005+00:00",
                "endingTimestamp": "1970-04-26T17:46:40.000+00:00",
            },
        ),
        ({}, [by("timestamp", "<", 10**18)], {}),
        ({"endingTimestamp": "2013-07-01T00:00:00Z"}, [by("timestamp", "<", US)], {"endingTimestamp": "1372636800000"}),
        ({"startingOffsets": "earliest"}, [by("timestamp", ">=", US)], {"startingTimestamp": str(MS)}),
        (
            {"startingOffsets": '{"orders": {"0": 7}}'},
            [by("timestamp", ">=", US)],
            {"startingOffsets": '{"orders": {"0": 7}}'},
        ),
        ({}, [by("timestamp", ">", -US), by("timestamp", "<", US**2)], {}),
        ({}, [by("partition", "=", 3, 0, 99_999)], {"queues": "0,3"}),
        ({"queues": "0,1"}, [by("partition", "=", 0, 2)], {"queues": "0"}),
        ({}, [by("partition", ">", 3)], {}),
        ({}, [by("topic", "=", "payments", "other")], {"subscribe": "payments"}),
        ({}, [by("key", "=", "b", "a")], {"keys": '["a", "b"]'}),
        ({}, [by("key", "=", b"a")], {"keys": '["a"]'}),
        ({}, [by("key", "=", b"\xff")], {}),
        ({}, [by("key", "=", "two words")], {}),
        ({"key": "a"}, [by("key", "=", "b")], {"key": "a"}),
        ({}, [by("tag", "=", "paid", "sent")], {"tag": "paid||sent"}),
        ({"tag": "new || paid"}, [by("tag", "=", "paid", "sent")], {"tag": "paid"}),
        ({"tag": "*"}, [by("tag", "=", "paid")], {"tag": "paid"}),
        ({}, [by("tag", "=", "a||b")], {}),
        ({}, [by("tag", "=", "*")], {}),
        ({}, [by("value", "=", b"x"), by("timestampType", "=", 1)], {}),
    ],
)
def test_comparisons_become_options(given: dict[str, str], asked: list[Comparison], expected: dict[str, str]) -> None:
    """Each comparison is merged into its option. Other comparisons change nothing."""
    found = narrowed(NEEDED | given, asked)
    assert found is not None
    assert found == NEEDED | expected
    parse(found)


@pytest.mark.parametrize(
    ("given", "asked"),
    [
        ({}, [by("timestamp", ">=", US), by("timestamp", "<", US)]),
        ({}, [by("timestamp", "<", 0)]),
        ({"startingTimestamp": str(MS)}, [by("timestamp", "<", US)]),
        ({}, [by("partition", "=", 1), by("partition", "=", 2)]),
        ({}, [by("partition", "=", -1)]),
        ({"queues": "0"}, [by("partition", "=", 1)]),
        ({}, [by("topic", "=", "other")]),
        ({}, [by("key", "=", "a"), by("key", "=", "b")]),
        ({"tag": "new"}, [by("tag", "=", "paid")]),
    ],
)
def test_what_can_not_be(given: dict[str, str], asked: list[Comparison]) -> None:
    """Where no row can pass, nothing is to be read."""
    assert narrowed(NEEDED | given, asked) is None


def test_queues_and_topics_of_an_assignment() -> None:
    """An assignment keeps the queues and topics that can pass."""
    given = {"endpoint": "a:1", "assign": '{"orders": [0, 2], "payments": [2]}'}
    found = narrowed(given, [by("partition", "=", 0, 1)])
    assert found is not None
    assert json.loads(found["assign"]) == {"orders": [0]}
    found = narrowed(given, [by("topic", "=", "payments")])
    assert found is not None
    assert json.loads(found["assign"]) == {"payments": [2]}
    assert narrowed(given, [by("topic", "=", "payments"), by("partition", "=", 0)]) is None


def test_topics_of_a_pattern() -> None:
    """A pattern becomes the names that it matches, with special characters escaped."""
    given = {"endpoint": "a:1", "subscribePattern": "orders.*"}
    found = narrowed(given, [by("topic", "=", "orders-eu", "orders", "payments")])
    assert found is not None
    assert found["subscribePattern"] == r"orders|orders\-eu"
    assert narrowed(given, [by("topic", "=", "payments")]) is None


def test_topics_stay_where_positions_name_them() -> None:
    """Positions may name any of the topics, so all stay."""
    given = NEEDED | {"endingOffsets": '{"payments": {"0": 5}}'}
    assert narrowed(given, [by("topic", "=", "orders")]) == given


def test_offsets() -> None:
    """A range from all comparisons of the offset. Options that say positions stand above it."""
    assert offset_range([by("key", "=", "k")]) == (0, OFFSET_END)
    assert offset_range([by("offset", ">", 4), by("offset", "<=", 9), by("offset", ">=", 2)]) == (5, 10)
    assert offset_range([by("offset", "=", 3, 7)]) == (3, 8)
    assert not has_positions(NEEDED)
    assert has_positions(NEEDED | {"endingTimestamp": "1"})
