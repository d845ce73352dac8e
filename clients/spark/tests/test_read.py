# SPDX-License-Identifier: Apache-2.0
"""`reput_spark.load`, `count`, `append` in a real Spark: the requests of the Indexer, and the rows."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

import reput_spark
from reput_spark.errors import BadOption
from reput_spark.read.describe import described
from reput_spark.read.options import parse

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = [
    pytest.mark.slow,
    # PySpark's own use of sockets and of deprecated calls is not ours to mend.
    pytest.mark.filterwarnings("ignore"),
]
AT_50 = "TIMESTAMP '2023-11-14T22:13:20.050Z'"
"""Store time of the rows with offset 50."""


@pytest.fixture(scope="module")
def spark(spark_process: SparkSession) -> SparkSession:
    """A session in a zone that is not UTC."""
    session = spark_process.newSession()
    session.conf.set("spark.sql.session.timeZone", "Asia/Shanghai")
    return session


def read(spark: SparkSession, indexer: Any, where: Any = None, **options: Any) -> DataFrame:
    """Return `reput_spark.load` from the fake Indexer."""
    return reput_spark.load(spark, where=where, endpoint=indexer.endpoint, subscribe="orders", **options)


def asked(indexer: Any) -> Any:
    """The last plan that was asked for."""
    from reput.indexer.v1 import scan_service_pb2

    return [request for request in indexer.requests if isinstance(request, scan_service_pb2.PlanScanRequest)][-1]


@pytest.mark.parametrize(
    ("where", "offsets", "start_ms", "end_ms"),
    [
        (f"timestamp >= {AT_50}", range(50, 100), 50, None),
        (f"timestamp > {AT_50} AND tag = 'even'", range(52, 100, 2), 51, None),
        ("timestamp < '2023-11-15 06:13:20.050'", range(50), None, 50),
        (f"timestamp BETWEEN {AT_50} AND {AT_50} + INTERVAL 9 MILLISECONDS", range(50, 60), 50, 60),
        ("to_date(timestamp) = DATE '2023-11-15'", range(100), -22_400_000, 64_000_000),
        (f"timestamp >= {AT_50} OR offset = 3", [3, *range(50, 100)], None, None),
        ("timestamp >= current_timestamp() - INTERVAL 10 YEARS", range(100), "some", None),
        ("timestamp <= current_timestamp()", range(100), None, None),
    ],
)
def test_times_in_a_condition(
    spark: SparkSession, indexer: Any, where: str, offsets: Any, start_ms: Any, end_ms: int | None
) -> None:
    """Bounds on the store time reach the Indexer, in the session's zone. The rows fulfil the condition."""
    indexer.fill("orders", 1, 100)
    frame = read(spark, indexer, where)
    assert sorted(row.offset for row in frame.collect()) == list(offsets)
    passes = asked(indexer).filter
    first = 1_700_000_000_000
    assert passes.HasField("start_time") == (start_ms is not None)
    if isinstance(start_ms, int):
        assert passes.start_time.ToMilliseconds() == first + start_ms
    assert (passes.end_time.ToMilliseconds() - first if passes.HasField("end_time") else None) == end_ms


def test_columns_with_an_index(spark: SparkSession, indexer: Any) -> None:
    """Queues, offsets, keys, tags and topics in a condition are asked of the Indexer, and stay in the query."""
    from pyspark.sql import functions

    indexer.fill("orders", 4, 100)
    frame = read(spark, indexer, (functions.col("partition") == 2) & functions.col("offset").between(90, 200))
    assert sorted((row.partition, row.offset) for row in frame.collect()) == [(2, offset) for offset in range(90, 100)]
    assert list(asked(indexer).queue_ids) == [2]
    (cut,) = asked(indexer).ranges
    assert (cut.queue_id, cut.start_queue_offset, cut.end_queue_offset) == (2, 90, 100)
    assert sum(len(scan.partition.ranges) for scan in indexer.scans()) == 1
    frame = read(spark, indexer, "key IN ('k1', 'k2') AND tag = 'even' AND length(value) > 0")
    assert frame.count() == 4 * 20
    assert sorted(asked(indexer).filter.keys) == ["k1", "k2"]
    assert asked(indexer).filter.tag_expression == "even"
    frame = read(spark, indexer, f"key IN ({', '.join(repr(f'k{n}') for n in range(20))})")  # a set, for Spark
    assert frame.count() == 400
    assert len(asked(indexer).filter.keys) == 20
    request_count = len(indexer.requests)
    assert read(spark, indexer, "topic = 'payments'").count() == 0
    assert read(spark, indexer, "partition = 1 AND partition = 2").count() == 0
    assert len(indexer.requests) == request_count, "nothing was asked"


def test_one_read_may_be_used_twice(spark: SparkSession, indexer: Any) -> None:
    """All frames made from a narrow read are correct: the condition belongs to its read only."""
    indexer.fill("orders", 4, 100)
    frame = read(spark, indexer, f"timestamp >= {AT_50}")
    assert frame.where("partition = 1").count() == 50
    assert frame.count() == 200
    both = frame.where("partition = 1").union(frame.where("partition = 2")).groupBy("partition").count()
    assert sorted(both.collect()) == [(1, 50), (2, 50)]
    other = read(spark, indexer, "offset < 10")
    assert frame.join(other, "offset").count() == 0
    assert other.count() == 40


def test_only_columns_that_are_needed(spark: SparkSession, indexer: Any) -> None:
    """Only columns of a read and of its condition are sent. The frame has the requested columns."""
    indexer.fill("orders", 1, 10)
    frame = read(spark, indexer, "offset >= 5 AND tag IS NULL", columns="Key, timestamp")
    assert frame.columns == ["key", "timestamp"]
    assert [row.key for row in frame.collect()] == ["k0", "k2", "k4"]
    assert set(indexer.scans()[-1].columns) == {"key", "timestamp", "tag", "offset"}
    plain = spark.read.format("reput").options(endpoint=indexer.endpoint, subscribe="orders", columns="tag, offset")
    assert plain.load().columns == ["tag", "offset"]
    assert plain.load().count() == 10
    assert list(indexer.scans()[-1].columns) == ["tag", "offset"]
    with pytest.raises(BadOption, match="no column 'bodi'"):
        read(spark, indexer, columns=["bodi"])
    with pytest.raises(Exception, match="names other columns than the schema"):
        plain.schema("offset bigint").load().collect()


def test_counts_move_no_bodies(spark: SparkSession, indexer: Any) -> None:
    """A whole topic is counted by the plan alone, a filtered topic by its offsets."""
    indexer.fill("orders", 2, 100)
    options = {"endpoint": indexer.endpoint, "subscribe": "orders"}
    assert reput_spark.count(spark, **options) == 200
    assert indexer.scans() == []
    assert reput_spark.count(spark, where="tag = 'even'", **options) == 100
    assert reput_spark.count(spark, key="k1", **options) == 40
    assert {name for scan in indexer.scans() for name in scan.columns} <= {"offset", "tag", "partition"}


def test_plans_tell_what_is_read(spark: SparkSession, indexer: Any) -> None:
    """The scan has a name with topic, condition and server, in the plan and so in Spark's pages."""
    indexer.fill("orders", 1, 10)
    frame = read(spark, indexer, f"timestamp >= {AT_50} AND key = 'k1'")
    plan = frame._jdf.queryExecution().executedPlan().toString()
    assert f"BatchScan reput orders key k1 from 2023-11-14T22:13:20.050Z at {indexer.endpoint}" in plan


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"subscribe": "a,b,c,d"}, "reput a,b,c,… (4) at i:1"),
        ({"subscribePattern": "o.*", "queues": "0,2"}, "reput /o.*/ queues 0,2 at i:1"),
        ({"assign": '{"a": [0, 1]}', "tag": "x||y"}, "reput a[0,1] tag x||y at i:1"),
        (
            {"subscribe": "a", "endingTimestamp": "1970-01-01T00:00:00.001Z"},
            "reput a to 1970-01-01T00:00:00.001Z at i:1",
        ),
        ({"subscribe": "a", "endingTimestamp": "253402300799999"}, "reput a to 9999-12-31T23:59:59.999Z at i:1"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": 1}}'}, "reput a between given positions at i:1"),
    ],
)
def test_descriptions(given: dict[str, str], words: str) -> None:
    """A line with topics, filters and addresses."""
    assert described(parse({"endpoint": "i:1"} | given)) == words
    assert len(described(parse({"endpoint": "i:1", "subscribe": "a", "tag": "x" * 999}))) == 300


def test_binary_keys(spark: SparkSession, indexer: Any) -> None:
    """Keys come as bytes where an option or a schema wants them so, of ranges and of lookups."""
    indexer.fill("orders", 1, 10)
    frame = read(spark, indexer, binaryKey=True, includeHeaders=True)
    assert dict(frame.dtypes)["key"] == "binary"
    assert {bytes(row.key) for row in frame.collect()} == {b"k0", b"k1", b"k2", b"k3", b"k4"}
    frame = read(spark, indexer, "key = 'k1'", binaryKey=True)
    assert [bytes(row.key) for row in frame.collect()] == [b"k1", b"k1"]
    assert list(asked(indexer).filter.keys) == ["k1"]
    options = {"endpoint": indexer.endpoint, "subscribe": "orders"}
    plain = spark.read.schema("key binary, offset bigint").format("reput").options(**options).load()
    assert bytes(plain.first().key) == b"k0"  # type: ignore[union-attr]


def test_a_service_that_is_down(spark: SparkSession) -> None:
    """A read and a write name the unreachable service in this package's words, after a few attempts."""
    options = {"numRetries": 9, "retryIntervalMs": 1}
    with pytest.raises(Exception, match=r"is the Indexer running \(`reput up`\).*option 'store' or 'endpoint'"):
        reput_spark.load(spark, endpoint="127.0.0.1:1", subscribe="orders", **options).count()
    one = spark.sql("SELECT 'x' AS value")
    with pytest.raises(Exception, match=r"is the CommitLog running .*option 'store' or 'commitlog.endpoint'"):
        reput_spark.append(one, commitlog_endpoint="127.0.0.1:1", topic="orders", **options)
