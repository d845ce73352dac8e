# SPDX-License-Identifier: Apache-2.0
"""WriterTable: the batches that the log has of each writer, so that a repeated batch is stored once.

Invariants: the table is a function of the log. It knows the last `batch_count_max` batches with a writer below its end,
and the next number of the last `writer_count_max` writers, both in the order of the log, and nothing else. So a start
that scans the log restores the table after a crash.
A writer numbers its batches from 0 without a gap. A batch that breaks this is refused, because the table cannot tell
whether it is new. A forgotten batch of a known writer is refused, too. A writer is forgotten after enough other writers
have written; then its first batch is accepted as new.
A writer of the store itself (SYSTEM_PREFIX) sends a batch only after the answer to the batch before it. So the table
keeps only its last batch, and its batches do not push out the batches of other writers.
The id of a writer of one batch (ONCE_PREFIX) identifies the batch, so a repeated request under this id gets the first
answer again. The table knows the last `once_count_max` of these batches, in addition to all others.
Callers: the loop that owns the log; recovery, before other code knows of the store.
Rules: docs/formats/commit_log.md section 13. RocketMQ has no counterpart.
"""

import heapq
from collections import OrderedDict
from collections.abc import Iterable
from operator import attrgetter
from typing import Self, TypeVar

from isal import isal_zlib
from msgspec import Struct

from libs.formats import fields, protobuf_wire
from libs.formats.errors import FormatError
from libs.formats.limits import INT64_MAX
from libs.formats.records import writer_stamp
from libs.formats.records.writer_stamp import WRITER_ID_SIZE_BYTES_MAX, WriterStamp
from libs.formats.state.queue_snapshot import WriterBatch
from libs.requests.errors import BadArgument, MalformedRequest
from services.commitlog.config import CommitLogConfig
from services.commitlog.errors import WriterContentDiffers, WriterForgotten, WriterSequenceGap

K = TypeVar("K")
V = TypeVar("V")

WRITER_SIZE_BYTES_MAX = 1_024
"""Largest size of the field, with room for fields of newer clients."""
SHOWN_SIZE_MAX = 80
SYSTEM_PREFIX = "rmq_sys_"
"""Prefix of the writer ids that only the store's own services may use, through AppendState."""
ONCE_PREFIX = "once/"
"""Prefix of the ids of writers of one batch."""

_START = attrgetter("start_physical_offset")


class WriterClaim(Struct, frozen=True):
    """The writer of a request, as the request states it. Checked without the table."""

    writer_id: str
    sequence: int
    checksum: int

    def stamp(self, *, start_physical_offset: int, plain_size_bytes: int) -> WriterStamp:
        """Return the batch's stamp at this offset. `plain_size_bytes` is the size of its records without the stamp."""
        size_bytes = plain_size_bytes + writer_stamp.property_size_bytes(self.writer_id)
        return WriterStamp(self.writer_id, self.sequence, self.checksum, start_physical_offset, size_bytes)


class WriterTable:
    """The last batches and the next batch numbers of the writers."""

    def __init__(self, batch_count_max: int, writer_count_max: int, once_count_max: int) -> None:
        self.end_physical_offset = 0
        """The table has seen all batches that begin below this offset."""
        self._batch_count_max = batch_count_max
        self._writer_count_max = writer_count_max
        self._once_count_max = once_count_max
        # all in the order of the log
        self._batches: OrderedDict[tuple[str, int], WriterBatch] = OrderedDict()
        self._next_sequences: OrderedDict[str, int] = OrderedDict()
        self._once: OrderedDict[tuple[str, int], WriterBatch] = OrderedDict()

    @classmethod
    def of(cls, config: CommitLogConfig) -> Self:
        """Return an empty table with the configured bounds."""
        return cls(config.writer_batch_count_max, config.writer_count_max, config.once_count_max)

    def __len__(self) -> int:
        return len(self._batches) + len(self._once)

    @property
    def last(self) -> WriterBatch | None:
        """The newest batch."""
        newest = [next(reversed(batches.values())) for batches in (self._batches, self._once) if batches]
        return max(newest, key=_START, default=None)

    def batches(self) -> list[WriterBatch]:
        """Return all batches, oldest first."""
        return list(heapq.merge(self._batches.values(), self._once.values(), key=_START))

    def next_sequences(self) -> list[tuple[str, int]]:
        """Return the next number of each writer. The writer that has been idle for longest comes first."""
        return list(self._next_sequences.items())

    def restore(
        self, batches: Iterable[WriterBatch], next_sequences: Iterable[tuple[str, int]], end_physical_offset: int
    ) -> None:
        """Begin with the batches and numbers of a snapshot, which covers the log below an offset."""
        self._next_sequences.update(next_sequences)
        for batch in batches:
            self.note(batch)
        self.end_physical_offset = end_physical_offset

    def note(self, batch: WriterBatch) -> None:
        """Record a batch of the log. A batch that the table has seen is skipped, so a scan may begin early."""
        if batch.start_physical_offset < self.end_physical_offset:
            return
        self.end_physical_offset = batch.start_physical_offset + 1
        if is_once(batch.writer_id):
            _put_last(self._once, (batch.writer_id, 0), batch, self._once_count_max)
            return
        if is_system_writer(batch.writer_id):
            self._batches.pop((batch.writer_id, batch.sequence - 1), None)
        _put_last(self._batches, (batch.writer_id, batch.sequence), batch, self._batch_count_max)
        forgotten = _put_last(self._next_sequences, batch.writer_id, batch.sequence + 1, self._writer_count_max)
        if forgotten is not None and is_system_writer(forgotten[0]):  # it may use its last number again
            self._batches.pop((forgotten[0], forgotten[1] - 1), None)

    def remove_last(self) -> None:
        """Forget the newest batch, which is incomplete in the log and gets truncated."""
        batch = self.last
        assert batch is not None
        writer_id, sequence = batch.writer_id, batch.sequence
        self.end_physical_offset = batch.start_physical_offset
        if is_once(writer_id):
            del self._once[writer_id, 0]
            return
        del self._batches[writer_id, sequence]
        if sequence > 0:
            self._next_sequences[writer_id] = sequence
        else:
            del self._next_sequences[writer_id]

    def stored(self, claim: WriterClaim) -> WriterBatch | None:
        """Return the batch that the log has for this claim, or None if the claim is for the writer's next batch.

        Raises WriterSequenceGap, WriterContentDiffers or WriterForgotten for any other claim.
        """
        if is_once(claim.writer_id):
            return self._once.get((claim.writer_id, 0))
        batch = self._batches.get((claim.writer_id, claim.sequence))
        if batch is None:
            expected = self._next_sequences.get(claim.writer_id)
            if claim.sequence == (expected or 0):
                return None
            if expected is not None and claim.sequence > expected:
                raise WriterSequenceGap(claim.writer_id, claim.sequence, expected=expected)
            raise WriterForgotten(claim.writer_id, claim.sequence)
        if batch.checksum != claim.checksum:
            raise WriterContentDiffers(claim.writer_id, claim.sequence)
        return batch


def is_system_writer(writer_id: str) -> bool:
    """Return whether this is a writer of the store itself."""
    return writer_id.startswith(SYSTEM_PREFIX)


def is_once(writer_id: str) -> bool:
    """Return whether this is a writer of one batch."""
    return writer_id.startswith(ONCE_PREFIX)


def _put_last(kept: OrderedDict[K, V], key: K, value: V, count_max: int) -> tuple[K, V] | None:
    """Put an item at the end of a dictionary. Returns the first item if it had to be removed."""
    kept[key] = value
    kept.move_to_end(key)
    return kept.popitem(last=False) if len(kept) > count_max else None


def claim_of(request: bytes, writer: bytes) -> WriterClaim:
    """Read the writer of a request. Raises MalformedRequest or BadArgument."""
    if len(writer) > WRITER_SIZE_BYTES_MAX:
        raise BadArgument("is too large", field="writer", value=len(writer), limit=WRITER_SIZE_BYTES_MAX)
    writer_id, sequence = _read_writer(writer)
    if not writer_stamp.is_writer_id(writer_id):
        shown, limit = writer_id[:SHOWN_SIZE_MAX], WRITER_ID_SIZE_BYTES_MAX
        reason = f"must be 1 to {limit} printable ASCII characters without spaces"
        raise BadArgument(reason, field="writer.id", value=shown, limit=limit)
    if not 0 <= sequence < INT64_MAX:
        raise BadArgument("must be 0 or more", field="writer.sequence", value=sequence, limit=0)
    if is_once(writer_id) and sequence:
        reason = f"must be 0, because a writer whose id begins with {ONCE_PREFIX} has one batch"
        raise BadArgument(reason, field="writer.sequence", value=sequence, limit=0)
    return WriterClaim(writer_id, sequence, isal_zlib.crc32(request))


def _read_writer(writer: bytes) -> tuple[str, int]:
    writer_id, sequence = "", 0
    try:
        for number, _, value in protobuf_wire.fields(writer):
            if number == fields.WRITER_ID:
                if not isinstance(value, memoryview):
                    raise MalformedRequest("writer.id has the wrong wire type")
                writer_id = str(value, "utf-8", "replace")
            elif number == fields.WRITER_SEQUENCE:
                if not isinstance(value, int):
                    raise MalformedRequest("writer.sequence has the wrong wire type")
                sequence = protobuf_wire.signed(value)
    except FormatError as error:
        raise MalformedRequest(f"writer: {error}") from error
    return writer_id, sequence
