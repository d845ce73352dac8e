# SPDX-License-Identifier: Apache-2.0
"""Reading of a partition: Arrow frames of the Indexer as record batches of exactly the wanted columns.

Invariant: each row of the partition is yielded a single time, also over broken streams. Ranges resume after the last
entry that was read. A partition of keys has no position: it is read again, and rows that were yielded before are
dropped.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc
from reput.indexer.v1.scan_service_pb2 import ScanFilter, ScanPartition, ScanRange, ScanRequest

from reput_client.core.call import Call, method_of
from reput_client.core.errors import ReputError
from reput_client.frames.answers import ScanAnswer
from reput_client.frames.calls import Attempts, BadAnswerError, Servers
from reput_client.frames.columns import LOG_APPEND_TIME, bad_answer, batches_of, conform, schema_of, sent_columns

ROW_IDENTITY = ("partition", "offset")
"""The columns that identify a row of a topic."""

ADDED = ("topic", "partition", "timestampType")
"""Columns that are the same for all rows of a frame of a range, and are not sent."""


@dataclass(frozen=True, slots=True)
class Scan:
    """What is read of a partition, and in what form it comes."""

    filter: ScanFilter
    """The filter of the plan."""
    columns: tuple[str, ...]
    """Columns of TYPES, in this order."""
    has_binary_key: bool = False
    """Keys are bytes, as in Kafka."""
    frame_size_bytes: int = 1 << 20
    """Bytes of a frame to aim at."""
    compression: str = ""
    """Compression of the frames: empty, `lz4` or `zstd`."""
    fail_on_data_loss: bool = True
    """Entries that expired since the plan end the read; otherwise they are left out."""

    @property
    def schema(self) -> pa.Schema:
        """The schema of the rows."""
        return schema_of(self.columns, has_binary_key=self.has_binary_key)


def read_partition(servers: Servers, scan: Scan, partition: ScanPartition) -> Iterator[pa.RecordBatch]:
    """Yield the rows of a planned partition. Raises CallEnded and BadAnswerError."""
    reader = (KeyReader if partition.keys else RangeReader)(partition, scan.schema)
    attempts = Attempts(servers, method_of(ScanRequest.DESCRIPTOR).path)
    while not reader.is_done():
        request = ScanRequest(
            partition=reader.remaining(),
            filter=scan.filter,
            columns=reader.sent_columns,
            frame_size_bytes=scan.frame_size_bytes,
            compression=scan.compression,
        )
        call: Call[ScanAnswer] = Call(request, parse=ScanAnswer.FromString)
        try:
            for answer in attempts.channels().stream(call, servers.answer_timeout_s):
                attempts.answered()
                yield from reader.rows(answer)
        except BadAnswerError:
            raise
        except ReputError as error:
            if scan.fail_on_data_loss or not reader.skip_lost(error):
                attempts.failed(error)
        else:
            return


class RangeReader:
    """Reads ranges. It keeps the ranges that are left. The first of them begins after the last entry that was read.

    `sent_columns` are the columns to request.
    """

    def __init__(self, partition: ScanPartition, schema: pa.Schema) -> None:
        self.left = ScanPartition(ranges=partition.ranges)
        self.schema = schema
        # An empty list would mean the default columns; a projection with only constants still needs the number of rows.
        self.sent_columns = [name for name in sent_columns(schema.names) if name not in ADDED] or ["offset"]

    def is_done(self) -> bool:
        """Return whether no range is left."""
        return not self.left.ranges

    def remaining(self) -> ScanPartition:
        """Return the ranges that are left."""
        return self.left

    def rows(self, answer: ScanAnswer) -> Iterator[pa.RecordBatch]:
        """Yield the rows of an answer, and drop its range when they were yielded. Raises BadAnswerError."""
        done = answer.range
        position = self.position_of(done)
        row_room = done.end_queue_offset - done.start_queue_offset
        constants = {"topic": done.topic, "partition": done.queue_id, "timestampType": LOG_APPEND_TIME}
        for batch in batches_of(answer.arrow_ipc):
            row_room -= batch.num_rows
            if row_room < 0:
                raise bad_answer(f"an answer for {_place(done)} has more rows than entries")
            yield conform(batch, self.schema, constants)
        self.advance(position, done)

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

    def position_of(self, done: ScanRange) -> int:
        """Return the number of ranges before the range that has these entries. Raises BadAnswerError."""
        for position, left in enumerate(self.left.ranges):
            is_same_queue = (left.topic, left.queue_id) == (done.topic, done.queue_id)
            edges = (left.start_queue_offset, done.start_queue_offset, done.end_queue_offset, left.end_queue_offset)
            if is_same_queue and list(edges) == sorted(edges):
                return position
        raise bad_answer(f"an answer for {_place(done)} is outside of what was asked for")

    def advance(self, position: int, done: ScanRange) -> None:
        """Drop the entries that were read, and the ranges before them, in which no entry passed the filter."""
        del self.left.ranges[:position]
        if done.end_queue_offset < self.left.ranges[0].end_queue_offset:
            self.left.ranges[0].start_queue_offset = done.end_queue_offset
        else:
            del self.left.ranges[0]


class KeyReader:
    """Reads keys. It keeps the identities of yielded rows. `sent_columns` are the columns to request."""

    def __init__(self, partition: ScanPartition, schema: pa.Schema) -> None:
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

    def remaining(self) -> ScanPartition:
        """Return all keys, from the start. `rows` drops rows that were yielded before."""
        self.seen = pa.concat_tables(self.yielded) if self.yielded else None
        return self.partition

    def rows(self, answer: ScanAnswer) -> Iterator[pa.RecordBatch]:
        """Yield the rows of an answer that were not yielded before the stream broke. Raises BadAnswerError."""
        constants = {"topic": self.partition.key_topic, "timestampType": LOG_APPEND_TIME}
        for batch in batches_of(answer.arrow_ipc):
            fresh = self.unseen(conform(batch, schema_of(self.sent_columns), {}))
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


def _place(done: ScanRange) -> str:
    return f"{done.topic} queue {done.queue_id} [{done.start_queue_offset}, {done.end_queue_offset})"
