# SPDX-License-Identifier: Apache-2.0
"""The export command without Spark: dry runs, wrong usage, errors and exit codes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from reput_spark.jobs.command import EXIT_DONE, EXIT_FAILED, EXIT_USAGE, first_cause
from reput_spark.jobs.export import main

if TYPE_CHECKING:
    from pathlib import Path


def test_dry_run_prints_the_plan(indexer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run tells partitions, rows and bytes, and needs neither Spark nor an output."""
    indexer.fill("orders", 2, 1000)
    arguments = ["--endpoint", indexer.endpoint, "--topic", "orders", "--dry-run"]
    assert main(arguments) == EXIT_DONE
    printed = capsys.readouterr().out.splitlines()
    assert "orders/1 [0, 1000)" in printed[2]
    assert printed[-1].startswith("plan: partitions=2 rows=2000 bytes=200000 keys=0")
    assert main([*arguments, "--json"]) == EXIT_DONE
    assert json.loads(capsys.readouterr().out) == {"partitions": 2, "rows": 2000, "bytes": 200_000, "keys": 0}


def test_keys_come_from_flags_and_a_file(indexer: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All keys, named either way, are looked up."""
    (tmp_path / "keys").write_text("k3\n\nk4\n")
    arguments = ["--endpoint", indexer.endpoint, "--topic", "orders", "--dry-run", "--key", "k1"]
    assert main([*arguments, "--keys-file", str(tmp_path / "keys")]) == EXIT_DONE
    assert list(indexer.requests[0].filter.keys) == ["k1", "k3", "k4"]
    assert "keys=3" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--topic", "orders"], "--endpoint"),
        (["--endpoint", "a:1", "--topic", "orders"], "--output"),
        (["--endpoint", "a", "--topic", "orders", "--dry-run"], "host:port"),
        (["--endpoint", "a:1", "--topic", "orders", "--dry-run", "--start", "noon"], "startingTimestamp"),
        (["--endpoint", "a:1", "--topic", "orders", "--dry-run", "--keys-file", "no-such-file"], "no-such-file"),
        (["--endpoint", "a:1", "--topic", "orders", "--dry-run", "--option", "x"], "NAME=VALUE"),
        (["--endpoint", "a:1", "--topic", "orders", "--dry-run", "--option", "x=1"], "no such option"),
    ],
)
def test_wrong_usage(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong usage names what is wrong and exits with 2, before anything is started."""
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == EXIT_USAGE
    assert words in capsys.readouterr().err


def test_unreachable_indexer(capsys: pytest.CaptureFixture[str]) -> None:
    """An Indexer that does not answer is one line and exit code 1."""
    arguments = ["--endpoint", "127.0.0.1:1", "--topic", "orders", "--dry-run", "--option", "numRetries=0"]
    assert main(arguments) == EXIT_FAILED
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "PlanScan at 127.0.0.1:1: UNAVAILABLE" in error


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    """--help explains the flags and exit codes."""
    with pytest.raises(SystemExit) as caught:
        main(["--help"])
    assert caught.value.code == 0
    printed = capsys.readouterr().out
    assert all(flag in printed for flag in ("--key", "--start", "--dry-run", "--output", "Exit codes"))


def test_first_cause_of_a_worker_error() -> None:
    """Of Spark's pages of stack trace, the line of our own error is told."""
    text = "Job aborted\n  at org.apache\nreput_spark.errors.CallFailed: Scan at a:1: UNAVAILABLE: gone\n  at x"
    assert first_cause(RuntimeError(text)) == "CallFailed: Scan at a:1: UNAVAILABLE: gone"
    assert first_cause(RuntimeError("[PATH_ALREADY_EXISTS] exists\nmore")) == "[PATH_ALREADY_EXISTS] exists"
    assert first_cause(RuntimeError()) == "RuntimeError"
