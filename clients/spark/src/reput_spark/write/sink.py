# SPDX-License-Identifier: Apache-2.0
"""The sink: the classes that Spark calls to write, in batches and in streams.

A task's batches name their writer: query, micro-batch and partition in a stream, job and partition in a batch write.
The attempt is no part of the name. So a task that runs again, and a micro-batch that a restarted query writes again,
find their rows in the log, as far as they are the same rows in the same order.
Spark pickles these objects to Python workers, so they hold plain values.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from reput_spark.errors import BadOption

if TYPE_CHECKING:
    import pyarrow as pa

    from reput_spark.write.options import WriteOptions

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"
"""Local properties of the tasks of a streaming query."""

_log = logging.getLogger(__name__)


@dataclass
class PartitionCommit(WriterCommitMessage):
    """The totals of a task: rows and bytes written, and rows that the log had already."""

    row_count: int
    size_bytes: int
    repeated_row_count: int


class ReputBatchSink(DataSourceArrowWriter):
    """`df.write.format("reput")`. Each save is a separate job: saving a DataFrame twice stores it twice."""

    def __init__(self, options: WriteOptions, *, overwrite: bool) -> None:
        if overwrite:
            raise BadOption("mode", "a log can't be overwritten; use mode('append')")
        self.options = options
        self.job_id = options.writer_id or f"spark-{uuid.uuid4().hex}"

    def check_reach(self) -> None:
        """Raise CallFailed if no CommitLog answers, before tasks begin and wait for it. Runs on the driver."""
        from reput.commitlog.v1.log_service_pb2 import GetStatusRequest

        from reput_spark.calls import check_reach

        check_reach(self.options, GetStatusRequest())

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PartitionCommit:  # type: ignore[override]
        """Write a partition. Runs in a task."""
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        return write(self.options, f"{self.job_id}/{partition}", iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log that all partitions are stored."""
        tell(messages, self.job_id)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Log that a partition failed for good. Rows that other partitions have stored stay."""
        tell(messages, f"{self.job_id}, which failed")


class ReputStreamSink(DataSourceStreamArrowWriter):
    """The sink of a stream: `df.writeStream.format("reput")`."""

    def __init__(self, options: WriteOptions) -> None:
        self.options = options
        self.run_id = f"spark-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> PartitionCommit:  # type: ignore[override]
        """Write a partition of a micro-batch. Runs in a task."""
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "Spark runs this in a task"
        query_id, batch_id = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        # Without them a restarted query is treated as another query, and rows that it writes again are stored again.
        name = f"spark-{query_id}/{batch_id}" if query_id and batch_id else self.run_id
        return write(self.options, f"{name}/{context.partitionId()}", iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log that all partitions of a micro-batch are stored."""
        tell(messages, f"micro-batch {batchId}")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """Log that a partition failed for good: Spark writes the micro-batch again when the query is started again."""
        tell(messages, f"micro-batch {batchId}, which failed")


def write(options: WriteOptions, writer_id: str, batches: Iterator[pa.RecordBatch]) -> PartitionCommit:
    """Append the rows of a partition. Raises BadRow, CallFailed, ReplayChanged."""
    from reput_spark.write.appending import Appender
    from reput_spark.write.rows import Encoder

    encoder = Encoder(options)
    with Appender(options, writer_id if options.is_idempotent else "") as appender:
        for batch in batches:
            for chunk in encoder.chunks(batch):
                appender.put(chunk)
        stored = appender.finish()
    return PartitionCommit(stored.message_count, stored.size_bytes, stored.repeated_message_count)


def tell(messages: Sequence[WriterCommitMessage | None], name: str) -> None:
    """Log the number of rows and bytes that were written."""
    written = [message for message in messages if isinstance(message, PartitionCommit)]
    _log.info(
        "%s: %d rows in %d bytes, of which %d rows were there already",
        name,
        sum(task.row_count for task in written),
        sum(task.size_bytes for task in written),
        sum(task.repeated_row_count for task in written),
    )
