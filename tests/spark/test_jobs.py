# SPDX-License-Identifier: Apache-2.0
"""The jobs on a real store: each row that goes in comes out, once."""

import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import grpc
import pytest
from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.commitlog.v1 import append_service_pb2_grpc

from tests.support.fixed_service import FixedService
from tests.support.patience import LIMIT_S

pytest.importorskip("pyspark")

from reput_spark.jobs import backfill, export, incremental, trace

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]


@pytest.fixture(scope="module")
def targets(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """A CommitLog and an Indexer."""
    directory = tmp_path_factory.mktemp("store")
    log = FixedService("commitlog", directory / "log").start()
    indexer = FixedService("indexer", directory / "indexes", "--commitlog-target", log.target).start()
    with mock.patch.dict(os.environ, {"PYSPARK_PYTHON": sys.executable}):
        yield log.target, indexer.target
    indexer.stop()
    log.stop()


def append(target: str, topic: str, first: int, count: int) -> None:
    """Append messages with keys and different bodies."""
    messages = [
        append_pb.AppendMessage(
            topic=topic, body=b"%s-%d" % (topic.encode(), number), properties={"KEYS": f"K{number % 50}"}
        )
        for number in range(first, first + count)
    ]
    with grpc.insecure_channel(target) as channel:
        append_service_pb2_grpc.AppendServiceStub(channel).Append(
            append_pb.AppendRequest(messages=messages), timeout=LIMIT_S
        )


def told(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return the last line of a job."""
    line: dict[str, Any] = json.loads(capsys.readouterr().out.splitlines()[-1])
    return line


def test_jobs(targets: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Export, export the rows since then, append all to another topic, twice under the same name, and follow a key."""
    log, indexer = targets
    local = ["--master", "local[2]", "--json"]
    source = ["--endpoint", indexer, "--topic", "orders", *local]
    append(log, "orders", 0, 1000)
    append(log, "payments", 0, 100)
    lake, since = str(tmp_path / "lake"), str(tmp_path / "since")
    assert export.main([*source, "--output", lake]) == 0
    assert told(capsys)["row_count"] == 1000
    for first in (1000, 1200):
        assert incremental.main([*source, "--output", since, "--rows-per-batch", "700"]) == 0
        assert told(capsys)["row_count"] == (1000 if first == 1000 else 200)
        append(log, "orders", first, 200)
    assert incremental.main([*source, "--output", since, "--dry-run"]) == 0
    assert told(capsys)["rows"] == 200
    into = ["--commitlog", log, "--input", since, "--topic", "copies", "--name", "copy-1", *local]
    for _ in range(2):
        assert backfill.main(into) == 0
        assert told(capsys)["row_count"] == 1200
    everywhere = ["--endpoint", indexer, "--topic-pattern", ".*", "--key", "K7", *local]
    assert trace.main(everywhere) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines[-1] == {"row_count": 28 + 2 + 24, "topic_count": 3, "output": ""}
    assert [line["timestamp"] for line in lines[:-1]] == sorted(line["timestamp"] for line in lines[:-1])
    assert {line["key"] for line in lines[:-1]} == {"K7"}
    texts = sorted(line["value"] for line in lines[:-1] if line["topic"] == "copies")
    assert texts == sorted(f"orders-{number}" for number in range(7, 1200, 50))
