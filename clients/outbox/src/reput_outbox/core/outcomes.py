# SPDX-License-Identifier: Apache-2.0
"""The meaning of a failed send for the batch: which rows are set aside, or what is asked first."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from reput_client import FailedPreconditionError, InvalidArgumentError, NotFoundError, ReputError

from reput_outbox.core.rows import Row

TOPIC_REASONS = frozenset({"TOPIC_NOT_FOUND", "TOPIC_FORBIDDEN", "TOPIC_SET_APART", "BAD_TOPIC_NAME"})
"""Reasons that refuse all rows of a topic."""
_INDEX = re.compile(r"messages\[(\d+)\]")


@dataclass(frozen=True, slots=True)
class Refused:
    """The store refuses these rows of the batch, and stored nothing of it."""

    rows: Sequence[Row]
    reason: str


@dataclass(frozen=True, slots=True)
class Halved:
    """The store refuses the batch and does not say which row is wrong."""

    first_id: int
    """The first row of the second half, which leaves the batch."""


@dataclass(frozen=True, slots=True)
class Behind:
    """The store has lost batches: its next number is lower."""

    number: int


@dataclass(frozen=True, slots=True)
class Doubtful:
    """The number is used up or the writer is forgotten: the rows may be stored."""

    reason: str


@dataclass(frozen=True, slots=True)
class Passing:
    """The batch is sent again later, as it is."""

    reason: str


Failure = Refused | Halved | Behind | Doubtful | Passing


def failure_of(error: Exception, rows: Sequence[Row]) -> Failure:
    """Return the meaning of an error for a batch of these rows."""
    if not isinstance(error, ReputError):
        return _refused(rows, f"{type(error).__name__}: {error}")
    if error.reason == "WRITER_SEQUENCE_GAP":
        return Behind(int(error.metadata["expected"]))
    if error.reason in {"WRITER_FORGOTTEN", "WRITER_CONTENT_DIFFERS"}:
        return Doubtful(error.reason)
    reason = str(error)
    named = _named(error, rows)
    if error.reason in TOPIC_REASONS:
        topic = named.topic if named else error.metadata.get("topic", "")
        if found := [row for row in rows if row.topic == topic]:
            return Refused(found, reason)
        return _refused(rows, reason)
    if isinstance(error, InvalidArgumentError):
        return Refused([named], reason) if named else _refused(rows, reason)
    if isinstance(error, NotFoundError | FailedPreconditionError) and named:
        return Refused([named], reason)
    return Passing(reason)


def _named(error: ReputError, rows: Sequence[Row]) -> Row | None:
    """Return the row whose message the error names."""
    for text in (*error.fields, error.metadata.get("field", "")):
        if (found := _INDEX.search(text)) and int(found[1]) < len(rows):
            return rows[int(found[1])]
    return None


def _refused(rows: Sequence[Row], reason: str) -> Refused | Halved:
    """Return a refusal whose row is not known: the batch is halved until a single row is left."""
    return Refused(rows, reason) if len(rows) == 1 else Halved(rows[len(rows) // 2].id)
