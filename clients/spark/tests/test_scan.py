# SPDX-License-Identifier: Apache-2.0
"""Planning and reading against an Indexer in memory: columns, ranges, broken streams, refusals."""

from __future__ import annotations

import json
import pickle
import sys
from typing import TYPE_CHECKING, Any

import grpc
import pyarrow as pa
import pytest
from reput_client.frames.columns import TYPES, schema_of
from reput_spark.errors import BadAnswer, BadOption, CallFailed, DataLoss
from reput_spark.read.options import parse
from reput_spark.read.plan import plan
from reput_spark.read.scan import read
from reput_spark.read.schema import DEFAULT_COLUMNS, SPARK_TYPES

if TYPE_CHECKING:
    from pathlib import Path

FAST = {"retryIntervalMs": "0"}


def rows_of(indexer: Any, columns: tuple[str, ...] = DEFAULT_COLUMNS, **options: str) -> list[dict[str, Any]]:
    """Plans and reads everything, as Spark would."""
    parsed = parse({"endpoint": indexer.endpoint, "subscribe": "orders", **FAST, **options})
    batches = [batch for partition in plan(parsed) for batch in read(parsed, columns, partition)]
    assert all(batch.schema.equals(schema_of(columns)) for batch in batches)
    return [row for batch in batches for row in batch.to_pylist()]


def identities(rows: list[dict[str, Any]]) -> list[tuple[str, int, int]]:
    """Return the places of rows, from their bodies."""
    return [tuple(json.loads(row["value"])) for row in rows]


def all_of(queue_count: int, row_count: int) -> list[tuple[str, int, int]]:
    """Where the rows of a filled topic are."""
    return [("orders", queue_id, offset) for queue_id in range(queue_count) for offset in range(row_count)]


def test_reads_all_rows_with_all_columns(indexer: Any) -> None:
    """Without filters, every row comes once, with the columns of the default schema."""
    indexer.fill("orders", 2, 10)
    rows = rows_of(indexer)
    assert identities(rows) == all_of(2, 10)
    assert list(rows[0]) == list(DEFAULT_COLUMNS)
    assert (rows[-1]["topic"], rows[-1]["partition"], rows[-1]["timestampType"]) == ("orders", 1, 1)
    assert rows[-1]["properties"] == [("KEYS", "k4")]


def test_constant_columns_are_not_sent(indexer: Any) -> None:
    """Topic and queue are sent once per frame, not once per row."""
    indexer.fill("orders", 1, 3)
    rows_of(indexer)
    assert not {"topic", "partition", "timestampType"} & set(indexer.scans()[0].columns)


@pytest.mark.parametrize("columns", [("offset", "value"), ("timestampType", "topic"), ("value", "partition", "key")])
def test_schema_of_the_user_is_a_projection(indexer: Any, columns: tuple[str, ...]) -> None:
    """Only the named columns come, in their order. Constants alone still come once per row."""
    indexer.fill("orders", 1, 7)
    rows = rows_of(indexer, columns)
    assert [tuple(row) for row in rows] == [columns] * 7
    assert set(indexer.scans()[0].columns) - {"offset"} <= set(columns)


@pytest.mark.parametrize("compression", ["none", "lz4", "zstd"])
def test_frames_may_be_compressed(indexer: Any, compression: str) -> None:
    """All compressions of Arrow IPC that can be asked for can be read."""
    indexer.fill("orders", 1, 10)
    assert identities(rows_of(indexer, compression=compression)) == all_of(1, 10)


@pytest.mark.parametrize(
    ("break_after", "starts"),
    [
        ([0], [0, 0]),
        ([1], [0, 3]),
        ([2, 0], [0, 6, 6]),
        ([4], [0]),
        ([1, 1, 1], [0, 3, 6, 9]),
        ([2, 2], [0, 6]),
    ],
)
@pytest.mark.parametrize("fails", ["true", "false"])
def test_broken_stream_resumes_where_it_broke(
    indexer: Any, break_after: list[int], starts: list[int], fails: str
) -> None:
    """A stream that breaks after any answer continues after it: no row is read twice, and no row is lost."""
    indexer.fill("orders", 1, 10)
    indexer.break_after = list(break_after)
    assert identities(rows_of(indexer, failOnDataLoss=fails)) == all_of(1, 10)
    assert [scan.partition.ranges[0].start_queue_offset for scan in indexer.scans()] == starts


def test_broken_stream_resumes_in_a_later_range(indexer: Any) -> None:
    """A partition of several ranges resumes in the right range."""
    indexer.fill("orders", 3, 7)
    parsed = parse({"endpoint": indexer.endpoint, "subscribe": "orders", **FAST})
    partitions = plan(parsed)
    packed = partitions[0]
    for other in partitions[1:]:
        packed.ranges.extend(other.ranges)
    indexer.break_after = [4, 3]
    rows = [row for batch in read(parsed, DEFAULT_COLUMNS, packed) for row in batch.to_pylist()]
    assert identities(rows) == all_of(3, 7)
    assert [len(scan.partition.ranges) for scan in indexer.scans()] == [3, 2, 1]


@pytest.mark.parametrize("break_after", [[], [0], [1], [2, 1], [3, 2, 1]])
def test_keys_are_read_once_over_broken_streams(indexer: Any, break_after: list[int]) -> None:
    """A partition of keys has no position: it is read again, and rows that came already are dropped."""
    indexer.fill("orders", 2, 30)
    indexer.break_after = break_after
    rows = rows_of(indexer, ("value", "topic"), keys='["k1", "k3"]')
    assert sorted(identities(rows)) == [row for row in all_of(2, 30) if row[2] % 5 in (1, 3)]


def test_retries_end(indexer: Any) -> None:
    """A stream that never gets further fails after numRetries, with the server's words."""
    indexer.fill("orders", 1, 10)
    indexer.break_after = [0] * 10
    with pytest.raises(CallFailed, match="broken on purpose") as caught:
        rows_of(indexer, numRetries="2")
    assert caught.value.code == "UNAVAILABLE"
    assert len(indexer.scans()) == 3


def test_progress_renews_the_retries(indexer: Any) -> None:
    """Only failures in a row count: a long read survives more breaks than numRetries."""
    indexer.fill("orders", 1, 30)
    indexer.break_after = [1] * 8
    assert identities(rows_of(indexer, numRetries="1")) == all_of(1, 30)


def test_refusals_are_not_retried(indexer: Any) -> None:
    """An answer that will not change is an error at once."""
    indexer.fill("orders", 1, 10)
    indexer.break_after, indexer.break_code = [1], grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(CallFailed, match="INVALID_ARGUMENT"):
        rows_of(indexer)
    assert len(indexer.scans()) == 1


@pytest.mark.parametrize("reason", ["OFFSET_BEYOND_END", "WINDOW_FULL"])
def test_refusals_that_pass_are_retried(indexer: Any, reason: str) -> None:
    """The read is retried at an Indexer that has to index entries of the plan again, or that is too busy."""
    indexer.fill("orders", 1, 10)
    indexer.break_after, indexer.break_code, indexer.break_reason = [1, 0], grpc.StatusCode.OUT_OF_RANGE, reason
    assert identities(rows_of(indexer)) == all_of(1, 10)


@pytest.mark.parametrize(("kept_from", "left"), [(5, [0, 1, 2, 5, 6, 7, 8, 9]), (10, [0, 1, 2]), (50, [0, 1, 2])])
def test_what_expires_during_the_read_is_stepped_over_if_asked_for(
    indexer: Any, kept_from: int, left: list[int]
) -> None:
    """Entries that go after the plan fail the task, and are left out with failOnDataLoss=false."""
    indexer.fill("orders", 1, 10)
    indexer.break_after, indexer.break_code, indexer.break_reason = [1], grpc.StatusCode.OUT_OF_RANGE, "OFFSET_TRIMMED"
    indexer.break_metadata = {"min": str(kept_from)}
    found = identities(rows_of(indexer, failOnDataLoss="false"))
    assert found == [("orders", 0, offset) for offset in left]
    indexer.break_after = [1]
    with pytest.raises(CallFailed, match="OUT_OF_RANGE"):
        rows_of(indexer)


def test_a_loss_that_does_not_say_where_to_go_on_ends_the_read(indexer: Any) -> None:
    """An answer that would be asked for again and again is a failure."""
    indexer.fill("orders", 1, 10)
    indexer.break_after, indexer.break_code, indexer.break_reason = [1], grpc.StatusCode.OUT_OF_RANGE, "OFFSET_TRIMMED"
    indexer.break_metadata = {"min": "3"}
    with pytest.raises(CallFailed, match="OUT_OF_RANGE"):
        rows_of(indexer, failOnDataLoss="false")


def test_next_endpoint_is_tried(indexer: Any) -> None:
    """With several endpoints, an endpoint that does not answer is skipped."""
    indexer.fill("orders", 1, 4)
    assert len(rows_of(indexer, endpoint=f"127.0.0.1:1,{indexer.endpoint}")) == 4


def test_a_silent_stream_is_resumed(indexer: Any) -> None:
    """A silent stream is cancelled after the time-out, and the rest is read over another stream."""
    indexer.fill("orders", 1, 10)
    indexer.silent_after = [1]
    assert identities(rows_of(indexer, rpcTimeoutMs="300", numRetries="1000")) == all_of(1, 10)
    assert len(indexer.scans()) > 1


def test_offsets_cut_queues(indexer: Any) -> None:
    """Named queues are cut at their offsets, -2 and -1 mean their ends. Others are read whole."""
    indexer.fill("orders", 3, 10)
    rows = rows_of(
        indexer,
        startingOffsets='{"orders": {"0": 8, "1": -2}}',
        endingOffsets='{"orders": {"0": -1, "1": 2}}',
    )
    expected = [("orders", 0, 8), ("orders", 0, 9), ("orders", 1, 0), ("orders", 1, 1)]
    assert identities(rows) == expected + [("orders", 2, offset) for offset in range(10)]


@pytest.mark.parametrize(
    ("option", "value"), [("startingOffsets", 9), ("startingOffsets", 21), ("endingOffsets", 21), ("endingOffsets", 3)]
)
def test_offsets_that_are_gone_are_an_error(indexer: Any, option: str, value: int) -> None:
    """Entries that were asked for and are not kept fail the plan, unless failOnDataLoss says otherwise."""
    indexer.fill("trimmed", 1, 20)
    indexer.first_kept["trimmed"] = 10
    options = {"endpoint": indexer.endpoint, "subscribe": "trimmed", option: json.dumps({"trimmed": {"0": value}})}
    with pytest.raises(DataLoss, match=r"\[10, 20\]") as caught:
        plan(parse(options))
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)
    planned = plan(parse(options | {"failOnDataLoss": "false"}))[0].ranges[0]
    assert 10 <= planned.start_queue_offset <= planned.end_queue_offset <= 20


def test_filters_travel_to_the_indexer(indexer: Any) -> None:
    """Tag, times, queues and the wishes about partitions are the Indexer's work."""
    indexer.fill("orders", 2, 10)
    rows = rows_of(
        indexer, tag="even", queues="1", startingTimestamp="1700000000005", endingTimestamp="1700000009999",
        minPartitions="3", maxRecordsPerPartition="5", maxBytesPerPartition="1k",
    )  # fmt: skip
    assert identities(rows) == [("orders", 1, offset) for offset in range(0, 10, 2)]
    request = indexer.requests[0]
    assert (request.partition_count_min, request.partition_row_count_max, request.partition_size_bytes_max) == (
        3,
        5,
        1024,
    )
    assert request.filter.start_time.ToMilliseconds() == 1_700_000_000_005
    assert indexer.scans()[0].filter == request.filter


def test_token_comes_from_a_file_or_the_environment(
    indexer: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Credentials are read where the call is made and never part of the options."""
    indexer.fill("orders", 1, 1)
    (tmp_path / "token").write_text("from-file\n")
    rows_of(indexer, **{"auth.token.file": str(tmp_path / "token")})
    assert {metadata["authorization"] for metadata in indexer.metadata} == {"Bearer from-file"}
    indexer.metadata.clear()
    monkeypatch.setenv("REPUT_CLIENT_TOKEN", "from-environment")
    rows_of(indexer)
    assert {metadata["authorization"] for metadata in indexer.metadata} == {"Bearer from-environment"}
    with pytest.raises(BadOption, match="no-such-file"):
        rows_of(indexer, **{"auth.token.file": str(tmp_path / "no-such-file")})


def test_bad_answers_are_errors_of_this_package(indexer: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame with a column of another type is refused. The error goes from an executor to the driver."""
    indexer.fill("orders", 1, 3)
    monkeypatch.setitem(sys.modules[type(indexer).__module__].TYPES, "offset", pa.int32())
    with pytest.raises(BadAnswer, match="'offset' came as int32, not int64") as caught:
        rows_of(indexer, ("offset",))
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


def test_columns_are_the_columns_of_the_client() -> None:
    """In the same order, so that a read has the types that Spark planned with."""
    assert list(SPARK_TYPES) == list(TYPES)
