# SPDX-License-Identifier: Apache-2.0
"""Errors of the data source. They are sent between processes, so each pickles with its attributes."""

from __future__ import annotations

import sys


class ReputSparkError(Exception):
    """Base of all errors of this package."""


class BadOption(ReputSparkError):
    """An option is unknown, malformed, out of range or contradicts another option. Raised while Spark plans."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(option, problem)
        self.option, self.problem = option, problem

    def __str__(self) -> str:
        return f"option {self.option!r}: {self.problem}"


class WrongPython(ReputSparkError):
    """The interpreter that Spark runs lacks a package that the data source needs."""

    def __init__(self, program: str, problem: str) -> None:
        super().__init__(program, problem)
        self.program, self.problem = program, problem

    def __str__(self) -> str:
        return (
            f"Spark's Python, {self.program}, {self.problem}; set PYSPARK_PYTHON={sys.executable} before the session "
            "starts, or install reput-spark for the Python that Spark runs"
        )


class BadSchema(ReputSparkError):
    """The schema given by the user has a column that does not exist, or a column of another type."""


class BadRow(ReputSparkError):
    """A row can't be a message."""

    def __init__(self, column: str, problem: str) -> None:
        super().__init__(column, problem)
        self.column, self.problem = column, problem

    def __str__(self) -> str:
        return f"column {self.column!r} {self.problem}"


class DataLoss(ReputSparkError):
    """A requested offset is not in the queue: its entry has expired, or was never written."""

    def __init__(self, *, topic: str, queue_id: int, option: str, value: int, kept: tuple[int, int]) -> None:
        super().__init__(topic, queue_id, option, value, kept)
        self.topic, self.queue_id, self.option, self.value, self.kept = topic, queue_id, option, value, kept

    def __reduce__(self) -> tuple[object, ...]:
        return _data_loss, (self.topic, self.queue_id, self.option, self.value, self.kept)

    def __str__(self) -> str:
        return (
            f"{self.option} {self.value} of {self.topic} queue {self.queue_id} is outside of what is kept, "
            f"[{self.kept[0]}, {self.kept[1]}]; failOnDataLoss=false reads what is there"
        )


def _data_loss(topic: str, queue_id: int, option: str, value: int, kept: tuple[int, int]) -> DataLoss:
    return DataLoss(topic=topic, queue_id=queue_id, option=option, value=value, kept=kept)


class QueueLeftOut(ReputSparkError):
    """A stream's checkpoint has a queue that its options do not name any more."""

    def __init__(self, topic: str, queue_id: int, value: int) -> None:
        super().__init__(topic, queue_id, value)
        self.topic, self.queue_id, self.value = topic, queue_id, value

    def __str__(self) -> str:
        return (
            f"the stream's checkpoint is at {self.value} of {self.topic} queue {self.queue_id}, and the options do not "
            "name this queue any more: name it again (subscribe, subscribePattern, assign, queues), begin with another "
            "checkpointLocation, or set failOnDataLoss=false, which goes on without it"
        )


class NoMessageAtTime(ReputSparkError):
    """A queue has no message at or after its starting time."""

    def __init__(self, topic: str, queue_id: int, time_ms: int) -> None:
        super().__init__(topic, queue_id, time_ms)
        self.topic, self.queue_id, self.time_ms = topic, queue_id, time_ms

    def __str__(self) -> str:
        return (
            f"{self.topic} queue {self.queue_id} has no message at or after {self.time_ms} ms; "
            "startingOffsetsByTimestampStrategy=latest begins at its end"
        )


class CallFailed(ReputSparkError):
    """A call failed for good: refused, or still failing after all retries."""

    def __init__(self, method: str, endpoint: str, code: str, details: str) -> None:
        super().__init__(method, endpoint, code, details)
        self.method, self.endpoint, self.code, self.details = method, endpoint, code, details

    def __str__(self) -> str:
        return f"{self.method} at {self.endpoint}: {self.code}: {self.details}"


class ReplayChanged(ReputSparkError):
    """A batch with other rows was written before under the same writer id and number."""

    def __init__(self, writer_id: str, sequence: int, details: str) -> None:
        super().__init__(writer_id, sequence, details)
        self.writer_id, self.sequence, self.details = writer_id, sequence, details

    def __str__(self) -> str:
        return f"batch {self.sequence} of writer {self.writer_id}: {self.details}"


class BadAnswer(ReputSparkError):
    """The Indexer's answer contradicts the request, or is not the requested Arrow data."""
