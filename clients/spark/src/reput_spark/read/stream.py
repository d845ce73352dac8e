# SPDX-License-Identifier: Apache-2.0
"""The streaming source: micro-batches that end at the ends of the queues at the time of Spark's request.

Spark checkpoints only the ends of micro-batches. The start of a stream that begins at the ends of its queues is not
among them, and Spark asks for it several times, in several processes. So the first end carries the start along, as
`$start`, and the planning of the first micro-batch takes the start from there. Otherwise a query that is killed in its
first micro-batch would lose the messages that came between two such requests.
Spark pickles a reader to Python workers, so it holds plain values.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from reput_spark.errors import BadOption, DataLoss, QueueLeftOut
from reput_spark.read.reader import read_partition

if TYPE_CHECKING:
    import pyarrow as pa

    from reput_spark.read.options import ReadOptions
    from reput_spark.read.positions import Bounds, Positions

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

    HAS_ADMISSION_CONTROL = True
except ImportError:  # before 4.2
    HAS_ADMISSION_CONTROL = False

Offset = dict[str, Any]
PYTHON_STREAM = "PythonMicroBatchStream"
"""The text that the descriptions of all Python sources in a query's progress have."""
INITIAL, START = "$initial", "$start"
"""Names in offset JSON: the mark of a stream's initial offset, and the copy of this offset in the first end."""


class Follower(DataSourceStreamReader):
    """The part of the stream reader that is the same for all versions of Spark."""

    def __init__(self, options: ReadOptions, columns: tuple[str, ...]) -> None:
        if options.trigger_row_count_max is not None and not HAS_ADMISSION_CONTROL:
            raise BadOption("maxOffsetsPerTrigger", "needs Spark 4.2 or newer")
        self.options, self.columns = options, columns
        self.initial: Offset | None = None
        self.target: Positions | None = None
        """The ends at which a run with the trigger availableNow stops."""
        self.has_checked_topics = False

    def initialOffset(self) -> Offset:  # noqa: N802
        """Return the start of the stream, the same for the life of this process.

        Raises BadOption for a starting time in the future, DataLoss, NoMessageAtTime, CallFailed.
        """
        from reput_spark.read import positions, shards

        if self.initial is None:
            self._refuse_future()
            kept = shards.bounds(self.options)
            self._check_topics({}, kept)
            begin = shards.starts(self.options, kept)
            self.initial = {INITIAL: True, **positions.to_json(begin)}
        return self.initial

    def partitions(self, start: Offset, end: Offset) -> list[InputPartition]:
        """Cut a micro-batch. Raises DataLoss, QueueLeftOut, CallFailed."""
        from reput_spark.read import positions, shards

        begin = positions.from_json(end[START] if start.get(INITIAL) and START in end else start)
        self._check_chosen(begin)
        kept = shards.bounds(self.options)
        cut = {}
        for queue, stop in positions.from_json(end).items():
            first = kept.get(queue, (0, 0))[0]
            at = begin.get(queue, first)
            if at < first and self.options.fail_on_data_loss and at < stop:
                raise DataLoss(
                    topic=queue[0], queue_id=queue[1], option="the stream's position", value=at, kept=kept[queue]
                )
            cut[queue] = (max(at, first), stop)
        return [InputPartition(planned.pack()) for planned in shards.plan_ranges(self.options, cut)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a partition. If there are no partitions, Spark makes an empty partition without a value."""
        return read_partition(self.options, self.columns, partition)

    def commit(self, end: Offset) -> None:
        """Do nothing: positions are in Spark's checkpoint."""

    def stop(self) -> None:
        """Do nothing: channels belong to the process."""

    def following(self, start: Offset | None, row_count_max: int | None) -> Offset:
        """Return the end of the next micro-batch, `start` if there are no new entries.

        Raises DataLoss, QueueLeftOut, CallFailed.
        """
        from reput_spark.read import positions, shards

        begin = positions.from_json(start or {})
        self._check_chosen(begin)
        kept = shards.bounds_from(self.options, begin if self.options.fail_on_data_loss else {}, begin)
        if start is not None:
            self._check_topics(begin, kept)
        ends = {
            queue: min(end, self.target.get(queue, 0)) if self.target is not None else end
            for queue, (_, end) in kept.items()
        }
        for queue, at in begin.items():
            if ends.get(queue, 0) < at:
                self._check_lost(queue, at, kept.get(queue, (0, 0)))
                ends[queue] = at
        if row_count_max is not None:
            firsts = {queue: begin.get(queue, kept[queue][0]) for queue in ends}
            ends = positions.limited(firsts, ends, row_count_max)
        if start is not None and ends == begin:
            return start
        return positions.to_json(ends)

    def _refuse_future(self) -> None:
        """Raise BadOption if a stream would begin at a future time: the current ends lie before it."""
        time_ms, now_ms = self.options.start_time_ms, time.time_ns() // 1_000_000
        if time_ms is not None and time_ms > now_ms and self.options.fails_without_time:
            raise BadOption(
                "startingTimestamp",
                f"is {time_ms - now_ms} ms ahead of this machine's clock: start the stream then, or begin at the ends "
                "of now with startingOffsetsByTimestampStrategy=latest",
            )

    def _check_topics(self, begin: Positions, kept: Bounds) -> None:
        """Raise CallFailed for a topic that does not exist. Checked once per process. Read topics are known."""
        from reput_spark.read import shards

        if self.has_checked_topics:
            return
        known = {topic for topic, _ in (*begin, *kept)}
        named = self.options.topics or tuple(self.options.assigned)
        shards.check_topics(self.options, [topic for topic in named if topic not in known])
        self.has_checked_topics = True

    def _check_chosen(self, begin: Positions) -> None:
        """Raise QueueLeftOut for a position in a queue that the options leave out: it would not be read."""
        from reput_spark.read import positions

        for queue, at in begin.items():
            if self.options.fail_on_data_loss and not positions.is_chosen(self.options, queue):
                raise QueueLeftOut(*queue, at)

    def _check_lost(self, queue: tuple[str, int], at: int, kept: tuple[int, int]) -> None:
        is_target = self.target is not None and kept[1] >= at
        if self.options.fail_on_data_loss and not is_target:
            raise DataLoss(topic=queue[0], queue_id=queue[1], option="the stream's position", value=at, kept=kept)


if HAS_ADMISSION_CONTROL:

    class ReputStreamReader(Follower, SupportsTriggerAvailableNow):
        """The stream reader of Spark 4.2 and newer, with a rate limit, the trigger availableNow, and latest ends."""

        def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
            """Return the limit of the options: a number of entries, or all."""
            most = self.options.trigger_row_count_max
            return ReadAllAvailable() if most is None else ReadMaxRows(most)

        def latestOffset(self, start: Offset, limit: ReadLimit) -> Offset:  # noqa: N802
            """Return the end of the next micro-batch, as Follower.following does."""
            end = self.following(start, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
            return {START: _without_marks(start), **end} if start.get(INITIAL) and end is not start else end

        def reportLatestOffset(self) -> Offset | None:  # noqa: N802
            """Return the ends of all queues, for the progress of the query."""
            return self.following(None, None)

        def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
            """Let this run end at the current ends of the queues."""
            from reput_spark.read import shards

            self.target = {queue: end for queue, (_, end) in shards.bounds(self.options).items()}

else:

    class ReputStreamReader(Follower):  # type: ignore[no-redef]
        """The stream reader of Spark 4.1, which asks for ends without the start, and reads all entries at once."""

        def latestOffset(self) -> Offset:  # type: ignore[override]  # noqa: N802
            """Return the ends of all queues, with the start of a stream that began in this process."""
            end = self.following(None, None)
            return end if self.initial is None else {START: _without_marks(self.initial), **end}


def _without_marks(offset: Offset) -> Offset:
    return {name: queues for name, queues in offset.items() if not name.startswith("$")}


def lag(progress: Any) -> int:
    """Return the number of entries that a query has not read yet, from its `lastProgress`, for its sources in Python.

    Spark does not show the format of a source, so the query must have no other source in Python. Takes a
    StreamingQueryProgress or its dictionary. With a tag, entries that do not pass are counted, too.
    """
    from reput_spark.read.positions import from_json

    document = progress if isinstance(progress, dict) else json.loads(progress.json)
    behind = 0
    for source in document["sources"]:
        if PYTHON_STREAM not in source["description"]:
            continue
        end, latest = (from_json(_offset(source[name])) for name in ("endOffset", "latestOffset"))
        behind += sum(max(0, value - end.get(queue, 0)) for queue, value in latest.items())
    return behind


def _offset(found: Any) -> Offset:
    parsed: Offset = json.loads(found) if isinstance(found, str) else found or {}
    return parsed
