# SPDX-License-Identifier: Apache-2.0
"""The report of a failed job: `error: REASON: text` and an exit code, both as for `reput`."""

from __future__ import annotations

import re
import sys
from typing import NamedTuple

from reput_spark import errors

EXIT_DONE, EXIT_FAILED, EXIT_USAGE, EXIT_NOT_FOUND, EXIT_UNAVAILABLE, EXIT_REFUSED, EXIT_DAMAGED = range(7)

MEANINGS = {
    EXIT_DONE: "done",
    EXIT_FAILED: "failed in another way, Spark's own errors among them",
    EXIT_USAGE: "the command line is wrong",
    EXIT_NOT_FOUND: "what was asked for does not exist",
    EXIT_UNAVAILABLE: "a service can't be reached, is not ready, or did not answer in time",
    EXIT_REFUSED: "a service refused",
    EXIT_DAMAGED: "stored bytes are damaged",
}
"""Exit codes and their meanings in `--help`."""

CALL = re.compile(r"\S+ at \S+: ([A-Z_]+): (.*)")
"""The text of CallFailed: its code, and the details behind it."""
CALL_EXITS = {
    "NOT_FOUND": EXIT_NOT_FOUND,
    "UNAVAILABLE": EXIT_UNAVAILABLE,
    "DEADLINE_EXCEEDED": EXIT_UNAVAILABLE,
    "DATA_LOSS": EXIT_DAMAGED,
    "INTERNAL": EXIT_FAILED,
    "UNKNOWN": EXIT_FAILED,
}
"""Exit codes by gRPC's codes; other codes are refusals."""
OWN = {
    "BadOption": ("BAD_OPTION", EXIT_USAGE),
    "BadSchema": ("BAD_SCHEMA", EXIT_USAGE),
    "BadRow": ("BAD_ROW", EXIT_REFUSED),
    "DataLoss": ("OFFSET_NOT_KEPT", EXIT_NOT_FOUND),
    "QueueLeftOut": ("QUEUE_LEFT_OUT", EXIT_USAGE),
    "NoMessageAtTime": ("NO_MESSAGES", EXIT_NOT_FOUND),
    "ReplayChanged": ("REPLAY_CHANGED", EXIT_REFUSED),
    "BadAnswer": ("BAD_ANSWER", EXIT_FAILED),
    "WrongPython": ("WRONG_PYTHON", EXIT_FAILED),
}
"""Errors of this package by the names of their classes: reason and exit code."""
SPARK = re.compile(r"\[([A-Z_.0-9]+)\] (.*)")
SPARK_EXITS = {"PATH_NOT_FOUND": EXIT_NOT_FOUND}


class Cause(NamedTuple):
    """The cause of a failed job: a reason, a line of text, and the exit code."""

    reason: str
    text: str
    code: int


def failures() -> tuple[type[Exception], ...]:
    """Return the expected errors of a job. Any other error is a bug and keeps its stack trace."""
    known = (errors.ReputSparkError, OSError, ImportError)
    try:
        from py4j.protocol import Py4JError  # type: ignore[import-untyped]
        from pyspark.errors import PySparkException
    except ImportError:
        return known
    return (*known, PySparkException, Py4JError)


def failed(error: BaseException) -> int:
    """Print an error on standard error, in a single line. Returns the exit code."""
    cause = cause_of(error)
    sys.stderr.write(f"error: {cause.reason}: {cause.text}\n")
    return cause.code


def cause_of(error: BaseException) -> Cause:
    """Return the cause of a failed job."""
    if isinstance(error, OSError):
        named = f"{error.filename}: {error.strerror}" if error.filename is not None else str(error)
        return Cause("FILE", " ".join(named.split()), EXIT_FAILED)
    line = first_cause(error)
    name, _, text = line.partition(": ")
    if isinstance(error, errors.ReputSparkError):
        name, text = type(error).__name__, line
    if name == "CallFailed" and (call := CALL.fullmatch(text)):
        code, details = call.groups()
        reason, _, said = details.partition(": ")
        if not re.fullmatch("[A-Z][A-Z_]+", reason):
            reason, said = code, details
        return Cause(reason, said, CALL_EXITS.get(code, EXIT_REFUSED))
    if name in OWN:
        reason, code = OWN[name]
        return Cause(reason, text, code)
    if spark := SPARK.fullmatch(line):
        return Cause(spark[1], spark[2], SPARK_EXITS.get(spark[1], EXIT_FAILED))
    return Cause("FAILED", line, EXIT_FAILED)


def first_cause(error: BaseException) -> str:
    """Return the line of an error with its cause: Spark wraps a worker's error in pages of stack trace."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    own = [line for line in lines if line.startswith("reput_spark.errors.")]
    return own[-1].removeprefix("reput_spark.errors.") if own else (lines[0] if lines else type(error).__name__)
