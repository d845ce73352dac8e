# SPDX-License-Identifier: Apache-2.0
"""Exports on a standalone cluster equal the source, by key and by time, and tasks run on its workers."""

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from unittest import mock

import grpc
import pyarrow.parquet as pq
import pytest
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.commitlog.v1 import append_service_pb2_grpc

from tests.support.fixed_service import FixedService
from tests.support.patience import LIMIT_S

pytest.importorskip("pyspark")

from reput_spark.jobs import export

from tests.support.spark_cluster import SparkCluster

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
BATCH_COUNT, BATCH_SIZE, KEY_COUNT = 20, 500, 40


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SparkCluster]:
    """A master with two workers."""
    with SparkCluster(tmp_path) as running, mock.patch.dict(os.environ, {"PYSPARK_PYTHON": sys.executable}):
        yield running


def test_exports_equal_the_source(tmp_path: Path, cluster: SparkCluster, capsys: pytest.CaptureFixture[str]) -> None:
    """An export has exactly the rows of the source that have the key, or lie in the time range."""
    log = FixedService("commitlog", tmp_path / "log").start()
    indexer = FixedService("indexer", tmp_path / "indexes", "--commitlog-target", log.target).start()
    try:
        times_ms = fill(log.target)
        source = ["--endpoint", indexer.target, "--topic", "orders", "--master", cluster.url, "--json"]
        cut = times_ms[BATCH_COUNT // 2]
        for flags, wanted in (
            (["--key", "K7"], {number for number in range(BATCH_COUNT * BATCH_SIZE) if number % KEY_COUNT == 7}),
            (
                ["--start", str(cut), "--option", "minPartitions=4"],
                {number for number in range(BATCH_COUNT * BATCH_SIZE) if times_ms[number // BATCH_SIZE] >= cut},
            ),
        ):
            output = tmp_path / flags[0].strip("-")
            assert export.main([*source, *flags, "--output", str(output)]) == 0
            assert json.loads(capsys.readouterr().out.splitlines()[-1])["row_count"] == len(wanted)
            found = [int(value) for value in pq.read_table(output).column("value").to_pylist()]
            assert sorted(found) == sorted(wanted)
    finally:
        indexer.stop()
        log.stop()
    executors = {path.name for path in (tmp_path / "work").glob("app-*/*")}
    assert {"0", "1"} <= executors


def fill(target: str) -> list[int]:
    """Append numbered messages with keys, and return the store time of each batch."""
    times_ms = []
    with grpc.insecure_channel(target) as channel:
        stub = append_service_pb2_grpc.AppendServiceStub(channel)
        for batch in range(BATCH_COUNT):
            request = append_pb.AppendRequest()
            for number in range(batch * BATCH_SIZE, (batch + 1) * BATCH_SIZE):
                key = {"KEYS": f"K{number % KEY_COUNT}"}
                request.messages.add(topic="orders", queue_id=number % 4, body=b"%d" % number, properties=key)
            times_ms.append(stub.Append(request, timeout=LIMIT_S).result.store_time_ms)
            time.sleep(0.005)
    return times_ms
