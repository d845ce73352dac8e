# SPDX-License-Identifier: Apache-2.0
"""The jobs besides export, without Spark: dry runs, wrong usage, help."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from reput_spark import errors
from reput_spark.jobs import backfill, export, incremental, outcome, trace
from reput_spark.jobs.outcome import EXIT_DONE, EXIT_FAILED, EXIT_USAGE

if TYPE_CHECKING:
    from pathlib import Path

Main = Callable[[Sequence[str]], int]
MAINS: dict[str, Main] = {
    "reput-export": export.main,
    "reput-export-incremental": incremental.main,
    "reput-trace": trace.main,
    "reput-backfill": backfill.main,
}


@pytest.mark.parametrize("name", MAINS)
def test_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """--help names the command, its flags, an example and its exit codes."""
    assert MAINS[name](["--help"]) == EXIT_DONE
    printed = capsys.readouterr().out
    words = (f"Example: {name} ", "--dry-run", "--json", "--master", "Exit codes: 0 done")
    assert all(word in printed for word in words)


@pytest.mark.parametrize(
    ("name", "arguments", "words"),
    [
        ("reput-trace", ["--endpoint", "a:1", "--topic", "t"], "--key"),
        ("reput-trace", ["--endpoint", "a:1", "--key", "k"], "--topic"),
        ("reput-trace", ["--endpoint", "a:1", "--topic", "t", "--topic-pattern", "x", "--key", "k"], "give one of"),
        ("reput-trace", ["--endpoint", "a:1", "--topic-pattern", "(", "--key", "k"], "regular expression"),
        ("reput-export-incremental", ["--endpoint", "a:1", "--topic", "t"], "--output"),
        ("reput-export-incremental", ["--endpoint", "a", "--topic", "t", "--output", "x"], "host:port"),
        (
            "reput-export-incremental",
            ["--endpoint", "a:1", "--topic", "t", "--output", "x", "--option", "key=k"],
            "batch",
        ),
        ("reput-backfill", ["--commitlog", "a:1"], "--input"),
        ("reput-backfill", ["--commitlog", "a", "--input", "x"], "host:port"),
        ("reput-backfill", ["--commitlog", "a:1", "--input", "x", "--name", "a b"], "--name"),
    ],
)
def test_wrong_usage(name: str, arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Exit code 2 and the mistake, before Spark is started."""
    assert MAINS[name](arguments) == EXIT_USAGE
    assert words in capsys.readouterr().err


def test_trace_over_all_topics(indexer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A pattern becomes the topics that there are."""
    indexer.fill("orders", 2, 10)
    indexer.fill("payments", 1, 10)
    assert (
        trace.main(["--endpoint", indexer.endpoint, "--topic-pattern", ".*", "--key", "k1", "--dry-run"]) == EXIT_DONE
    )
    printed = capsys.readouterr().out
    assert "1 keys of orders" in printed
    assert "1 keys of payments" in printed


def test_incremental_goes_on_where_the_checkpoint_says(
    indexer: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan begins at the first run's start, then at the end of the last micro-batch."""
    indexer.fill("orders", 2, 100)
    arguments = ["--endpoint", indexer.endpoint, "--topic", "orders", "--output", str(tmp_path), "--dry-run", "--json"]
    assert incremental.main(arguments) == EXIT_DONE
    assert json.loads(capsys.readouterr().out)["rows"] == 200
    assert incremental.main([*arguments, "--start", "1700000000090"]) == EXIT_DONE
    assert json.loads(capsys.readouterr().out)["rows"] == 20
    offsets = tmp_path / "_reput_checkpoint" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "9").write_text('v1\n{}\n{"orders": {"0": 1}}\n')
    (offsets / "10").write_text('v1\n{}\n{"$start": {"orders": {"0": 0}}, "orders": {"0": 95, "1": 60}}\n')
    assert incremental.main(arguments) == EXIT_DONE
    assert json.loads(capsys.readouterr().out)["rows"] == 45
    assert incremental.main([*arguments, "--checkpoint", "nosuch://x"]) == EXIT_USAGE


def test_backfill_tells_what_it_would_append(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Rows, files and columns, from the footers alone."""
    lake = tmp_path / "topic=orders" / "date=2026-01-01"
    lake.mkdir(parents=True)
    table = {"key": ["a", "b"], "value": [b"1", b"2"], "partition": pa.array([0, 1], pa.int32()), "offset": [7, 8]}
    pq.write_table(pa.table(table), lake / "part.parquet")
    arguments = ["--commitlog", "a:1", "--input", str(tmp_path), "--dry-run", "--json"]
    assert backfill.main(arguments) == EXIT_DONE
    told = json.loads(capsys.readouterr().out)
    assert (told["rows"], told["files"], sorted(told["columns"])) == (2, 1, ["key", "topic", "value"])
    assert backfill.main([*arguments, "--keep-queues"]) == EXIT_DONE
    assert "partition" in json.loads(capsys.readouterr().out)["columns"]
    assert backfill.main(arguments[:-1]) == EXIT_DONE
    assert "not written: " in capsys.readouterr().out
    assert backfill.main(["--commitlog", "a:1", "--input", str(tmp_path / "nothing"), "--dry-run"]) == EXIT_FAILED
    assert capsys.readouterr().err.startswith("error: FILE: ")


def test_each_error_has_a_reason_and_an_exit_code() -> None:
    """A job that fails by an error of this package says which: no kind is left out of the table."""
    kinds = {kind.__name__ for kind in errors.ReputSparkError.__subclasses__()}
    assert kinds - {"CallFailed"} == set(outcome.OWN)
