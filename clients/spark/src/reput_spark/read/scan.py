# SPDX-License-Identifier: Apache-2.0
"""Reading of a partition: Arrow frames of the Indexer as record batches of exactly the planned columns.

Invariant: each row of the partition is yielded a single time, also over broken streams. Ranges resume after the last
entry that was read. A partition of keys has no position: it is read again, and rows that were yielded before are
dropped. Runs on executors. A task that fails as a whole is not handled here; Spark runs it again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.compute as pc
from reput.indexer.v1 import scan_service_pb2
from reput_client.core.call import Call, method_of
from reput_client.core.errors import ReputError

from reput_spark import calls
from reput_spark.errors import BadAnswer
from reput_spark.read.answers import ScanAnswer
from reput_spark.read.plan import scan_filter
from reput_spark.read.schema import HEADERS, KEY, LOG_APPEND_TIME, PROPERTIES, arrow_schema, headers_of, sent_columns

if TYPE_CHECKING:
    from reput_spark.read.options import ReadOptions

ROW_IDENTITY = ("partition", "offset")
"""The columns that identify a row of a topic."""

ADDED = ("topic", "partition", "timestampType")
"""Columns that are the same for all rows of a frame of a range, and are not sent."""


def read(
    options: ReadOptions, columns: tuple[str, ...], partition: scan_service_pb2.ScanPartition
) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a partition. Raises CallFailed and BadAnswer."""
    schema = arrow_schema(columns, has_binary_key=options.has_binary_key)
    reader = KeyReader(partition, schema) if partition.keys else RangeReader(partition, schema)
    attempts = calls.Attempts(options, method_of(scan_service_pb2.ScanRequest.DESCRIPTOR).path)
    while not reader.is_done():
        request = scan_service_pb2.ScanRequest(
            partition=reader.remaining(),
            filter=scan_filter(options),
            columns=reader.sent_columns,
            frame_size_bytes=options.frame_size_bytes,
            compression=options.compression,
        )
        call: Call[ScanAnswer] = Call(request, parse=ScanAnswer.FromString)
        try:
            for answer in attempts.channels().stream(call, options.rpc_timeout_ms / 1000):
                attempts.answered()
                yield from reader.rows(answer)
        except ReputError as error:
            if options.fail_on_data_loss or not reader.skip_lost(error):
                attempts.failed(error)
        else:
            return


class RangeReader:
    """Reads ranges. It keeps the ranges that are left. The first of them begins after the last entry that was read.

    `sent_columns` are the columns to request.
    """

    def __init__(self, partition: scan_service_pb2.ScanPartition, schema: pa.Schema) -> None:
        self.left = scan_service_pb2.ScanPartition(ranges=partition.ranges)
        self.schema = schema
        # An empty list would mean the default columns; a projection with only constants still needs the number of rows.
        self.sent_columns = [name for name in sent_columns(schema.names) if name not in ADDED] or ["offset"]

    def is_done(self) -> bool:
        """Return whether no range is left."""
        return not self.left.ranges

    def remaining(self) -> scan_service_pb2.ScanPartition:
        """Return the ranges that are left."""
        return self.left

    def rows(self, answer: ScanAnswer) -> Iterator[pa.RecordBatch]:
        """Yield the rows of an answer, and drop its range when they were yielded. Raises BadAnswer."""
        done = answer.range
        constants = {"topic": done.topic, "partition": done.queue_id, "timestampType": LOG_APPEND_TIME}
        for batch in frames(answer.arrow_ipc):
            yield conform(batch, self.schema, constants)
        self.advance(done)

    def skip_lost(self, error: ReputError) -> bool:
        """Skip entries that expired since the plan, if the error says so. Returns whether entries were skipped.

        The first range that is left then begins at the oldest stored entry, or is dropped.
        """
        if self.is_done() or error.reason != "OFFSET_TRIMMED":
            return False
        first, kept_from = self.left.ranges[0], int(error.metadata["min"])
        if kept_from <= first.start_queue_offset:
            return False
        if kept_from < first.end_queue_offset:
            first.start_queue_offset = kept_from
        else:
            del self.left.ranges[0]
        return True

    def advance(self, done: scan_service_pb2.ScanRange) -> None:
        """Drop the range that was read, and the ranges before it, in which no entry passed the filter."""
        ranges = self.left.ranges
        while ranges:
            first = ranges[0]
            is_inside = (
                (first.topic, first.queue_id) == (done.topic, done.queue_id)
                and first.start_queue_offset <= done.start_queue_offset
                and done.end_queue_offset <= first.end_queue_offset
            )
            if is_inside and done.end_queue_offset < first.end_queue_offset:
                first.start_queue_offset = done.end_queue_offset
                return
            del ranges[0]
            if is_inside:
                return
        raise BadAnswer(
            f"an answer for {done.topic} queue {done.queue_id} "
            f"[{done.start_queue_offset}, {done.end_queue_offset}) is outside of what was asked for"
        )


class KeyReader:
    """Reads keys. It keeps the identities of yielded rows. `sent_columns` are the columns to request."""

    def __init__(self, partition: scan_service_pb2.ScanPartition, schema: pa.Schema) -> None:
        self.partition = partition
        self.schema = schema
        self.sent_columns = [name for name in sent_columns((*schema.names, *ROW_IDENTITY)) if name != "timestampType"]
        self.yielded: list[pa.Table] = []
        self.seen: pa.Table | None = None

    def is_done(self) -> bool:
        """Return False: only the end of the stream ends the read."""
        return False

    def skip_lost(self, error: ReputError) -> bool:
        """Return False: the index does not find expired messages."""
        del error
        return False

    def remaining(self) -> scan_service_pb2.ScanPartition:
        """Return all keys, from the start. `rows` drops rows that were yielded before."""
        self.seen = pa.concat_tables(self.yielded) if self.yielded else None
        return self.partition

    def rows(self, answer: ScanAnswer) -> Iterator[pa.RecordBatch]:
        """Yield the rows of an answer that were not yielded before the stream broke. Raises BadAnswer."""
        constants = {"topic": self.partition.key_topic, "timestampType": LOG_APPEND_TIME}
        for batch in frames(answer.arrow_ipc):
            fresh = self.unseen(batch)
            if fresh.num_rows:
                yield conform(fresh, self.schema, constants)
                self.yielded.append(pa.Table.from_batches([fresh]).select(list(ROW_IDENTITY)))

    def unseen(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a frame that were not yielded before the stream broke."""
        if self.seen is None:
            return batch
        is_seen = pa.repeat(False, batch.num_rows)
        for queue_id in pc.unique(batch["partition"]):
            in_queue = pc.equal(self.seen["partition"], queue_id)
            known = self.seen.filter(in_queue)["offset"].combine_chunks()
            here = pc.and_(pc.equal(batch["partition"], queue_id), pc.is_in(batch["offset"], value_set=known))
            is_seen = pc.or_(is_seen, here)
        return batch.filter(pc.invert(is_seen))


def frames(arrow_ipc: memoryview) -> Iterator[pa.RecordBatch]:
    """Yield the record batches of an answer, without copying. Raises BadAnswer."""
    if not arrow_ipc:
        return
    try:
        with pa.ipc.open_stream(pa.py_buffer(arrow_ipc)) as stream:
            yield from stream
    except pa.ArrowInvalid as error:
        raise BadAnswer(f"a frame is not Arrow IPC: {error}") from error


def conform(batch: pa.RecordBatch, schema: pa.Schema, constants: Mapping[str, object]) -> pa.RecordBatch:
    """Return a batch with exactly the columns of `schema`. Missing columns come from `constants`. Raises BadAnswer."""
    columns: list[pa.Array[Any]] = []
    for field in schema:
        position = batch.schema.get_field_index(field.name)
        if position >= 0:
            column = batch.column(position)
            if field.name == KEY and pa.types.is_string(column.type):
                column = column.cast(field.type)  # the same bytes
        elif field.name == HEADERS and batch.schema.get_field_index(PROPERTIES) >= 0:
            column = headers_of(batch[PROPERTIES])
        elif field.name in constants:
            column = pa.repeat(pa.scalar(constants[field.name], field.type), batch.num_rows)
        else:
            raise BadAnswer(f"column {field.name!r} is missing in a frame")
        if not column.type.equals(field.type):
            raise BadAnswer(f"column {field.name!r} came as {column.type}, not {field.type}")
        columns.append(column)
    return pa.RecordBatch.from_arrays(columns, schema=schema)
