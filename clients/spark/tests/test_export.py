# SPDX-License-Identifier: Apache-2.0
"""The export command without Spark: dry runs, wrong usage, errors and exit codes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from reput_spark.errors import BadOption, CallFailed, NoMessageAtTime
from reput_spark.jobs.export import main
from reput_spark.jobs.outcome import (
    EXIT_DAMAGED,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_NOT_FOUND,
    EXIT_REFUSED,
    EXIT_UNAVAILABLE,
    EXIT_USAGE,
    cause_of,
    first_cause,
)

if TYPE_CHECKING:
    from pathlib import Path


def test_dry_run_prints_the_plan(indexer: Any, capsys: pytest.CaptureFixture[str]) -> None:
    """A dry run prints partitions, rows and bytes, and needs neither Spark nor an output."""
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
    indexer.made.add("orders")
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
        (["--endpoint", "a:1", "--topic", "orders", "--dry-run", "--start", "noon"], "--start"),
        (["--endpoint", "a:1", "--topic", "orders", "--dry-run", "--keys-file", "no-such-file"], "no-such-file"),
        (["--endpoint", "a:1", "--topic", "orders", "--dry-run", "--option", "x"], "NAME=VALUE"),
        (["--endpoint", "a:1", "--topic", "orders", "--dry-run", "--option", "x=1"], "no such option"),
    ],
)
def test_wrong_usage(arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong usage names the mistake and exits with 2, before Spark is started."""
    assert main(arguments) == EXIT_USAGE
    assert words in capsys.readouterr().err


def test_unreachable_indexer(capsys: pytest.CaptureFixture[str]) -> None:
    """An Indexer that does not answer gives a single line and exit code 4."""
    arguments = ["--endpoint", "127.0.0.1:1", "--topic", "orders", "--dry-run", "--option", "numRetries=0"]
    assert main(arguments) == EXIT_UNAVAILABLE
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert error.startswith("error: UNAVAILABLE: can't be reached; is the Indexer running (`reput up`), ")


def test_help_names_every_flag(capsys: pytest.CaptureFixture[str]) -> None:
    """--help explains the flags and exit codes."""
    assert main(["--help"]) == EXIT_DONE
    printed = capsys.readouterr().out
    assert all(flag in printed for flag in ("--key", "--start", "--dry-run", "--output", "Exit codes"))


def test_first_cause_of_a_worker_error() -> None:
    """Of Spark's pages of stack trace, only the line of this package's error is printed."""
    text = "Job aborted\n  at org.apache\nreput_spark.errors.CallFailed: Scan at a:1: UNAVAILABLE: gone\n  at x"
    assert first_cause(RuntimeError(text)) == "CallFailed: Scan at a:1: UNAVAILABLE: gone"
    assert first_cause(RuntimeError("[PATH_ALREADY_EXISTS] exists\nmore")) == "[PATH_ALREADY_EXISTS] exists"
    assert first_cause(RuntimeError()) == "RuntimeError"


@pytest.mark.parametrize(
    ("error", "line", "code"),
    [
        (CallFailed("a.B/C", "i:1", "NOT_FOUND", "TOPIC_NOT_FOUND: no topic x"), "TOPIC_NOT_FOUND: no topic x", 3),
        (CallFailed("a.B/C", "i:1", "DEADLINE_EXCEEDED", "too long"), "DEADLINE_EXCEEDED: too long", EXIT_UNAVAILABLE),
        (CallFailed("a.B/C", "i:1", "DATA_LOSS", "RECORD_DAMAGED: at 7"), "RECORD_DAMAGED: at 7", EXIT_DAMAGED),
        (CallFailed("a.B/C", "i:1", "PERMISSION_DENIED", "no"), "PERMISSION_DENIED: no", EXIT_REFUSED),
        (BadOption("tag", "is odd"), "BAD_OPTION: option 'tag': is odd", EXIT_USAGE),
        (
            NoMessageAtTime("t", 0, 5),
            f"NO_MESSAGES: {NoMessageAtTime('t', 0, 5)}",
            EXIT_NOT_FOUND,
        ),
        (FileNotFoundError(2, "No such file", "lake"), "FILE: lake: No such file", EXIT_FAILED),
        (RuntimeError("reput_spark.errors.BadRow: column 'value' is null"), "BAD_ROW: column 'value' is null", 5),
        (RuntimeError("[PATH_NOT_FOUND] Path x does not exist"), "PATH_NOT_FOUND: Path x does not exist", 3),
        (RuntimeError("odd\nmore"), "FAILED: odd", EXIT_FAILED),
    ],
)
def test_errors_and_exit_codes(error: Exception, line: str, code: int) -> None:
    """A reason, a line and an exit code, whether an error came from the driver or through Spark."""
    cause = cause_of(error)
    assert (f"{cause.reason}: {cause.text}", cause.code) == (line, code)
