# SPDX-License-Identifier: Apache-2.0
"""The streaming source as Spark calls it, without Spark: starts, ends, limits, expired entries."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest

pytest.importorskip("pyspark")

from reput_spark.errors import BadOption, CallFailed, DataLoss, QueueLeftOut
from reput_spark.read.options import parse
from reput_spark.read.stream import INITIAL, START, ReputStreamReader, lag

streaming = pytest.importorskip("pyspark.sql.streaming.datasource", reason="rate limits need Spark 4.2")

ALL = streaming.ReadAllAvailable()


def reader(indexer: Any, **options: str) -> ReputStreamReader:
    """A reader in a process of its own, as after a restart."""
    topics = {} if {"assign", "subscribePattern"} & options.keys() else {"subscribe": "orders"}
    given = {"endpoint": indexer.endpoint, "retryIntervalMs": "0", **topics, **options}
    made: ReputStreamReader = pickle.loads(pickle.dumps(ReputStreamReader(parse(given, is_stream=True), ("value",))))
    return made


def rows(one: ReputStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int]]:
    """Queue and offset of the rows of a micro-batch. Offsets are converted to JSON as in Spark."""
    start, end = (json.loads(json.dumps(offset)) for offset in (start, end))
    batches = [batch for partition in one.partitions(start, end) for batch in one.read(partition)]
    return sorted(tuple(json.loads(row["value"])[1:]) for batch in batches for row in batch.to_pylist())


def test_a_stream_begins_at_the_ends(indexer: Any) -> None:
    """Earlier messages are not read, and later messages are read a single time."""
    indexer.fill("orders", 2, 5)
    one = reader(indexer)
    initial = one.initialOffset()
    assert initial == {INITIAL: True, "orders": {"0": 5, "1": 5}}
    indexer.fill("orders", 3, 8)
    end = one.latestOffset(initial, ALL)
    assert end == {START: {"orders": {"0": 5, "1": 5}}, "orders": {"0": 8, "1": 8, "2": 8}}
    new_queue = [(2, offset) for offset in range(8)]
    assert rows(one, initial, end) == [(queue, offset) for queue in range(2) for offset in (5, 6, 7)] + new_queue
    assert one.latestOffset(end, ALL) is end
    indexer.fill("orders", 3, 9)
    after = reader(indexer).latestOffset(end, ALL)
    assert after == {"orders": {"0": 9, "1": 9, "2": 9}}
    assert rows(reader(indexer), end, after) == [(0, 8), (1, 8), (2, 8)]


def test_a_kill_in_the_first_micro_batch_loses_nothing(indexer: Any) -> None:
    """Spark asks a new process where the stream began, and it began elsewhere: the end knows better."""
    indexer.fill("orders", 1, 5)
    before = reader(indexer)
    assert before.latestOffset(before.initialOffset(), ALL) is before.initialOffset()
    indexer.fill("orders", 1, 7)
    end = before.latestOffset(before.initialOffset(), ALL)
    indexer.fill("orders", 1, 9)
    after = reader(indexer)
    assert after.initialOffset() == {INITIAL: True, "orders": {"0": 9}}
    assert rows(after, after.initialOffset(), end) == [(0, 5), (0, 6)]


@pytest.mark.parametrize(
    ("options", "first"),
    [
        ({"startingOffsets": "earliest"}, 0),
        ({"startingOffsets": "latest"}, 5),
        ({"startingOffsets": '{"orders": {"0": 3}}'}, 3),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, 5),
        ({"startingTimestamp": "1700000000002"}, 2),
        ({"startingTimestamp": "1700000009999"}, 5),
        ({"startingOffsetsByTimestamp": '{"orders": {"0": 1700000000004}}'}, 4),
    ],
)
def test_starts(indexer: Any, options: dict[str, str], first: int) -> None:
    """By word, offset or time."""
    indexer.fill("orders", 1, 5)
    assert reader(indexer, **options).initialOffset()["orders"] == {"0": first}


def test_a_rate_limit_and_all_that_is_available_now(indexer: Any) -> None:
    """Micro-batches of the wanted size up to the ends at the start of the run, and not beyond."""
    indexer.fill("orders", 2, 10)
    one = reader(indexer, startingOffsets="earliest", maxOffsetsPerTrigger="8")
    limit = one.getDefaultReadLimit()
    assert limit == streaming.ReadMaxRows(8)
    assert isinstance(reader(indexer).getDefaultReadLimit(), streaming.ReadAllAvailable)
    one.prepareForTriggerAvailableNow()
    indexer.fill("orders", 3, 12)
    offset, read = one.initialOffset(), []
    for _ in range(10):
        end = one.latestOffset(offset, limit)
        if end is offset:
            break
        batch = rows(one, offset, end)
        assert 0 < len(batch) <= 8
        read += batch
        offset = end
    expected = [(queue, number) for queue in range(2) for number in range(12)]
    assert sorted(read) != expected
    assert sorted(read) == [(queue, number) for queue, number in expected if number < 10]


def test_retention_passes_a_position(indexer: Any) -> None:
    """Entries that expired before they were read fail the query, or are left out if the options say so."""
    indexer.fill("orders", 1, 10)
    start, end = {"orders": {"0": 2}}, {"orders": {"0": 8}}
    indexer.first_kept["orders"] = 5
    with pytest.raises(DataLoss, match=r"2 of orders queue 0 is outside of what is kept, \[5, 10\]"):
        rows(reader(indexer), start, end)
    assert rows(reader(indexer, failOnDataLoss="false"), start, end) == [(0, 5), (0, 6), (0, 7)]
    indexer.first_kept["orders"] = 9
    assert rows(reader(indexer, failOnDataLoss="false"), start, end) == []


def test_a_log_that_lost_its_tail(indexer: Any) -> None:
    """A position beyond the end is an error, or waits until the queue has grown past it again."""
    indexer.fill("orders", 1, 5)
    start = {"orders": {"0": 9}}
    with pytest.raises(DataLoss, match="9 of orders queue 0"):
        reader(indexer).latestOffset(start, ALL)
    assert reader(indexer, failOnDataLoss="false").latestOffset(start, ALL) is start


def test_a_topic_that_does_not_exist(indexer: Any) -> None:
    """It fails the stream at its start, and a restart that names it first. A topic without messages is waited for."""
    indexer.fill("orders", 1, 5)
    indexer.made.add("silent")
    for options in ({"subscribe": "orders,orders-misspelt"}, {"assign": '{"orders-misspelt": [0]}'}):
        with pytest.raises(CallFailed, match="NOT_FOUND: TOPIC_NOT_FOUND"):
            reader(indexer, **options).initialOffset()
    start = {"orders": {"0": 3}}
    with pytest.raises(CallFailed, match="TOPIC_NOT_FOUND"):
        reader(indexer, subscribe="orders,orders-misspelt").latestOffset(start, ALL)
    one = reader(indexer, subscribe="orders,silent")
    assert one.initialOffset() == {INITIAL: True, "orders": {"0": 5}}
    assert one.latestOffset(start, ALL) == {"orders": {"0": 5}}
    asked = len(indexer.requests)
    one.latestOffset(start, ALL)
    assert len(indexer.requests) == asked + 2, "topics are looked for once, then their queues alone"
    assert reader(indexer, subscribePattern="none.*").initialOffset() == {INITIAL: True}


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "orders"},
        {"subscribePattern": "orders"},
        {"assign": '{"orders": [0], "sent": [1]}'},
        {"subscribe": "orders,sent", "queues": "1"},
    ],
)
def test_a_queue_that_the_options_leave_out(indexer: Any, options: dict[str, str]) -> None:
    """It is refused, for each option that names queues: no data is lost. If the options say so, it is left out."""
    indexer.fill("orders", 2, 5)
    indexer.fill("sent", 2, 5)
    start, end = {"orders": {"1": 2}, "sent": {"0": 2}}, {"orders": {"1": 5}, "sent": {"0": 2}}
    for call in (
        lambda: reader(indexer, **options).latestOffset(start, ALL),
        lambda: rows(reader(indexer, **options), start, end),
    ):
        with pytest.raises(QueueLeftOut, match=r"is at 2 of .* queue [01], and the options do not name this queue"):
            call()
    assert reader(indexer, failOnDataLoss="false", **options).latestOffset(start, ALL)["sent"]["0"] == 2


def test_a_start_that_is_yet_to_come(indexer: Any) -> None:
    """It is refused, since a stream would deliver earlier messages. It begins at the ends if the options say so."""
    indexer.fill("orders", 1, 5)
    ahead = {"startingTimestamp": "9000-01-01T00:00:00Z"}
    with pytest.raises(BadOption, match="ahead of this machine's clock") as caught:
        reader(indexer, **ahead).initialOffset()
    assert caught.value.option == "startingTimestamp"
    one = reader(indexer, startingOffsetsByTimestampStrategy="latest", **ahead)
    assert one.initialOffset() == {INITIAL: True, "orders": {"0": 5}}
    start = {"orders": {"0": 3}}
    assert reader(indexer, **ahead).latestOffset(start, ALL) == {"orders": {"0": 5}}, "a checkpoint has its own start"


def test_an_indexer_that_is_behind(indexer: Any, other_indexer: Any) -> None:
    """An Indexer of a replica may lack entries that were read already: the rows are read from another Indexer."""
    indexer.fill("orders", 1, 3)
    other_indexer.fill("orders", 1, 8)
    start: dict[str, Any] = {"orders": {"0": 5}}
    one = reader(indexer, endpoint=f"{indexer.endpoint},{other_indexer.endpoint}")
    end = one.latestOffset(start, ALL)
    assert end == {"orders": {"0": 8}}
    assert rows(one, start, end) == [(0, 5), (0, 6), (0, 7)]
    asked = len(indexer.requests)
    assert one.latestOffset(end, ALL) is end
    indexer.fill("orders", 1, 9)
    other_indexer.fill("orders", 1, 9)
    assert one.latestOffset(end, ALL) == {"orders": {"0": 9}}
    assert len(indexer.requests) == asked, "the one that answered last is asked first"


def test_an_indexer_whose_log_is_away(indexer: Any, other_indexer: Any) -> None:
    """It has no new entries while its log is away, so another Indexer is used. If all lack it, there are none."""
    indexer.fill("orders", 1, 5)
    other_indexer.fill("orders", 1, 5)
    indexer.is_log_away = True
    start: dict[str, Any] = {"orders": {"0": 5}}
    one = reader(indexer, endpoint=f"{indexer.endpoint},{other_indexer.endpoint}")
    assert one.latestOffset(start, ALL) is start
    other_indexer.fill("orders", 1, 8)
    assert one.latestOffset(start, ALL) == {"orders": {"0": 8}}
    other_indexer.is_log_away = True
    assert one.latestOffset({"orders": {"0": 8}}, ALL) == {"orders": {"0": 8}}


def test_options_of_streams() -> None:
    """Options of only batches, or of only streams, are refused by name."""
    needed = {"endpoint": "i:1", "subscribe": "orders"}
    for name, text in (("endingOffsets", "latest"), ("endingTimestamp", "1"), ("key", "k"), ("keys", '["k"]')):
        with pytest.raises(BadOption, match="is for batch reads"):
            parse(needed | {name: text}, is_stream=True)
    with pytest.raises(BadOption, match="is for streams"):
        parse(needed | {"maxOffsetsPerTrigger": "5"})
    assert parse(needed, is_stream=True).starts_latest
    assert not parse(needed).starts_latest


def test_lag() -> None:
    """Entries between the end of the last micro-batch and the ends of the queues, of this package's sources only."""
    ours = {
        "description": "PythonMicroBatchStreamWithTriggerAvailableNow@4f2b41d6",
        "endOffset": '{"orders": {"0": 4, "1": 9}}',
        "latestOffset": {"orders": {"0": 10, "1": 9, "2": 5}},
    }
    other = {"description": "FileStreamSource", "endOffset": "{}", "latestOffset": "{}"}
    assert lag({"sources": [ours, other]}) == 11
