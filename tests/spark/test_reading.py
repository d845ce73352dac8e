# SPDX-License-Identifier: Apache-2.0
"""`reput_spark.load` on a real store returns the rows of a filter in Spark, and the Indexer sends few rows."""

import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import grpc
import pytest
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.commitlog.v1 import append_service_pb2_grpc
from reput.indexer.v1 import index_service_pb2, index_service_pb2_grpc

from tests.support.fixed_service import FixedService
from tests.support.patience import LIMIT_S
from tests.support.surroundings import free_port

pytest.importorskip("pyspark")

import reput_spark
from pyspark.sql import SparkSession, functions

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]

BATCH_COUNT, BATCH_ROW_COUNT, QUEUE_COUNT = 4, 2_000, 4
ROW_COUNT = BATCH_COUNT * BATCH_ROW_COUNT
BODY = b"x" * 1_000
SENT_ROWS = "reput_indexer_index_scanned_rows_total"
SENT_BYTES = "reput_indexer_index_scanned_frames_bytes_total"


class Store(NamedTuple):
    """A store, and the count of rows and bytes that its Indexer has sent so far."""

    indexer: str
    metrics: str
    times_ms: list[int]
    """Times between the batches."""

    def sent(self, figure: str) -> int:
        """Return the rows or bytes of scans so far."""
        with urllib.request.urlopen(f"http://{self.metrics}/metrics", timeout=LIMIT_S) as answer:
            lines = answer.read().decode().splitlines()
        values = [line.rpartition(" ")[2] for line in lines if line.startswith((f"{figure} ", f"{figure}{{"))]
        return int(float(values[0])) if values else 0


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """A store with batches at different store times, 50 keys and two tags."""
    directory: Path = tmp_path_factory.mktemp("store")
    port = free_port()
    log = FixedService("commitlog", directory / "log").start()
    flags = ("--commitlog-target", log.target, "--metrics-port", str(port))
    indexer = FixedService("indexer", directory / "indexes", *flags).start()
    times_ms = []
    with grpc.insecure_channel(log.target) as channel, grpc.insecure_channel(indexer.target) as index_channel:
        stub = append_service_pb2_grpc.AppendServiceStub(channel)
        for batch in range(BATCH_COUNT):
            messages = [message(batch * BATCH_ROW_COUNT + number) for number in range(BATCH_ROW_COUNT)]
            stub.Append(append_pb.AppendRequest(messages=messages), timeout=LIMIT_S)
            time.sleep(0.02)
            times_ms.append(int(time.time() * 1000))
            time.sleep(0.02)
        index = index_service_pb2_grpc.IndexServiceStub(index_channel)
        while index.GetStatus(index_service_pb2.GetStatusRequest()).indexed_physical_offset < ROW_COUNT * len(BODY):
            time.sleep(0.02)
    yield Store(indexer.target, f"127.0.0.1:{port}", times_ms)
    indexer.stop()
    log.stop()


def message(number: int) -> append_pb.AppendMessage:
    """Return a message."""
    properties = {"KEYS": f"K{number % 50}", "TAGS": "even" if number % 2 == 0 else "odd"}
    return append_pb.AppendMessage(topic="orders", queue_id=number % QUEUE_COUNT, body=BODY, properties=properties)


@pytest.fixture(scope="module")
def spark(spark_process: SparkSession) -> SparkSession:
    """A separate session."""
    session = spark_process.newSession()
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session


def places(frame: Any) -> set[tuple[int, int]]:
    """The places of the rows. Each place occurs once."""
    rows = [tuple(row) for row in frame.select("partition", "offset").collect()]
    assert len(rows) == len(set(rows))
    return set(rows)


@pytest.mark.parametrize(
    ("where", "row_count", "sent_row_count"),
    [
        ("timestamp >= timestamp_millis({0})", ROW_COUNT * 3 // 4, ROW_COUNT * 3 // 4),
        ("timestamp > timestamp_millis({0}) AND timestamp <= timestamp_millis({1})", ROW_COUNT // 4, ROW_COUNT // 4),
        ("timestamp < timestamp_millis({1}) AND partition IN (1, 3)", ROW_COUNT // 4, ROW_COUNT // 4),
        ("key = 'K7'", ROW_COUNT // 50, ROW_COUNT // 50),
        ("key IN ('K7', 'K8') AND timestamp < timestamp_millis({0})", 2 * ROW_COUNT // 200, 2 * ROW_COUNT // 200),
        ("tag = 'odd' AND offset BETWEEN 100 AND 199", 2 * 100, 2 * 100),
        ("partition = 2 AND offset >= 1990", 10, 10),
        ("topic = 'orders' AND length(value) > 5 AND key LIKE 'K1%'", ROW_COUNT * 11 // 50, ROW_COUNT),
        ("topic = 'payments'", 0, 0),
        ("timestamp < TIMESTAMP '2001-01-01'", 0, 0),
    ],
)
def test_conditions(store: Store, spark: SparkSession, where: str, row_count: int, sent_row_count: int) -> None:
    """The rows are the rows of Spark's own filter, and the Indexer sends no more than the condition needs."""
    condition = where.format(*store.times_ms)
    options = {"endpoint": store.indexer, "subscribe": "orders"}
    expected = places(spark.read.format("reput").options(**options).load().where(condition))
    before = store.sent(SENT_ROWS)
    found = places(reput_spark.load(spark, where=condition, **options))
    assert store.sent(SENT_ROWS) - before == sent_row_count
    assert found == expected
    assert len(found) == row_count


def test_counts_and_columns(store: Store, spark: SparkSession) -> None:
    """A count of a topic sends no bytes.

    A count of some rows and a read of a few columns send a small part of the bodies.
    """
    options = {"endpoint": store.indexer, "subscribe": "orders"}
    before = store.sent(SENT_BYTES)
    assert reput_spark.count(spark, **options) == ROW_COUNT
    assert store.sent(SENT_BYTES) == before
    assert reput_spark.count(spark, where=functions.col("tag") == "odd", **options) == ROW_COUNT // 2
    keys = reput_spark.load(spark, columns=["key"], **options)
    assert keys.distinct().count() == 50
    sent_bytes = store.sent(SENT_BYTES) - before
    assert 0 < sent_bytes < ROW_COUNT * len(BODY) / 20


def test_a_time_that_goes_on(store: Store, spark: SparkSession) -> None:
    """A condition with the current time bounds the read from below only, and is evaluated when the query runs."""
    options = {"endpoint": store.indexer, "subscribe": "orders"}
    frame = reput_spark.load(spark, where="timestamp BETWEEN now() - INTERVAL 1 DAY AND now()", **options)
    assert places(frame) == places(spark.read.format("reput").options(**options).load())
    old = reput_spark.load(spark, where="timestamp < now() - INTERVAL 1 DAY", **options)
    assert places(old) == set()
