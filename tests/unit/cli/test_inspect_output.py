# SPDX-License-Identifier: Apache-2.0
"""The text output of `reput inspect`: small items as tables, others line by line, values as the file has them."""

import json
from pathlib import Path

import pytest

from cli.commands import inspect
from libs.formats.indexes import consume_queue
from tests.support import reference
from tests.support.reput_up import run_here

UNIT_COUNT = 250


@pytest.fixture
def queue_file(tmp_path: Path) -> Path:
    """A file of a queue with 250 units."""
    path = tmp_path / "consumequeue" / "orders" / "0" / f"{0:020d}"
    path.parent.mkdir(parents=True)
    units = (reference.queue_unit(200_000 * n, 12_345, consume_queue.tags_code("T")) for n in range(UNIT_COUNT))
    path.write_bytes(b"".join(units).ljust(20 * 300, b"\0"))
    return path


def test_units_are_a_table(queue_file: Path) -> None:
    """Titles are repeated after a hundred rows, and sizes are exact; the summary has a line for each figure."""
    result = run_here("inspect", str(queue_file))
    assert result.code == 0, result
    lines = result.output.splitlines()
    titles = [line for line in lines if line.split()[:2] == ["unit", "at"]]
    assert len(titles) == -(-UNIT_COUNT // inspect.TABLE_ROWS_MAX)
    assert lines[3].split()[:5] == ["2", "40", "2", "400000", "12345"]
    assert lines[-1].split() == ["finding", "count", "0"]
    assert str(queue_file) in lines
    assert "  size bytes" in {line[:12] for line in lines}


def test_others_are_line_by_line(tmp_path: Path) -> None:
    """Other items have a line for each field, with times in words beside the file's number."""
    values = {"time": 1_795_397_076_803, "trigger": "HOUR", "decisions": []}
    (tmp_path / "reput").mkdir()
    path = tmp_path / "reput" / "retention_history.jsonl"
    path.write_text(json.dumps(values) + "\n")
    lines = run_here("inspect", str(path)).output.splitlines()
    assert lines[0] == "run 0 at 0"
    assert lines[2].split() == ["trigger", "HOUR"]


def test_times_are_told_in_words(tmp_path: Path) -> None:
    """A time in words is beside the number of the file."""
    fields = inspect.exact({"store_time_ms": 1_795_397_076_803, "time_ms": 0, "properties": {"a": "b", "c": "d"}})
    assert fields == {
        "store time ms": "1795397076803 (2026-11-23T01:24:36.803Z)", "time ms": 0, "properties": "a=b, c=d"
    }  # fmt: skip
