# SPDX-License-Identifier: Apache-2.0
"""The streaming source on Spark 4.1, which asks for ends without telling the start."""

from __future__ import annotations

import importlib.util
import json
import sys
from types import ModuleType
from typing import Any
from unittest import mock

import pytest

pytest.importorskip("pyspark")

from reput_spark.errors import BadOption
from reput_spark.read.options import parse


@pytest.fixture
def old() -> ModuleType:
    """`reput_spark.read.stream` as it is where PySpark has no admission control."""
    found = importlib.util.find_spec("reput_spark.read.stream")
    assert found is not None
    assert found.loader is not None
    module = importlib.util.module_from_spec(found)
    with mock.patch.dict(sys.modules, {"pyspark.sql.streaming.datasource": None}):
        found.loader.exec_module(module)
    assert not module.HAS_ADMISSION_CONTROL
    return module


def reader(old: ModuleType, indexer: Any, **options: str) -> Any:
    """A reader in a process of its own."""
    given = {"endpoint": indexer.endpoint, "subscribe": "orders", "retryIntervalMs": "0", **options}
    return old.ReputStreamReader(parse(given, is_stream=True), ("value",))


def offsets(one: Any, start: dict[str, Any], end: dict[str, Any]) -> list[int]:
    """Offsets of the rows of a micro-batch."""
    batches = [batch for partition in one.partitions(start, end) for batch in one.read(partition)]
    return sorted(json.loads(row["value"])[2] for batch in batches for row in batch.to_pylist())


def test_a_stream_and_its_restart(old: ModuleType, indexer: Any) -> None:
    """Every end of the process that began carries the start. A new process continues without it."""
    indexer.fill("orders", 1, 5)
    before = reader(old, indexer)
    initial = before.initialOffset()
    indexer.fill("orders", 1, 8)
    end = before.latestOffset()
    assert end == {"$start": {"orders": {"0": 5}}, "orders": {"0": 8}}
    assert before.latestOffset() == end
    after = reader(old, indexer)
    indexer.fill("orders", 1, 9)
    assert offsets(after, after.initialOffset(), end) == offsets(before, initial, end) == [5, 6, 7]
    third = reader(old, indexer)
    assert third.latestOffset() == {"orders": {"0": 9}}
    assert offsets(third, end, third.latestOffset()) == [8]


def test_a_rate_limit_is_refused(old: ModuleType, indexer: Any) -> None:
    """Ignoring it would read everything at once."""
    with pytest.raises(BadOption, match=r"needs Spark 4\.2"):
        reader(old, indexer, maxOffsetsPerTrigger="10")
