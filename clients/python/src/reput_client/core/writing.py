# SPDX-License-Identifier: Apache-2.0
"""WriteQueue: the writer's brain: its batches without an outcome, and what an outcome means for them. No I/O.

Invariants: the oldest batch that is kept has the number `first_sequence`, those behind it the next ones without a gap.
A batch is kept until the log says that it is stored, and gives the same bytes each time it is sent; so the log knows it
again and stores it once. Without a writer id a batch that is sent again may be stored twice.
"""

from collections import deque
from dataclasses import dataclass

import grpc
from reput.commitlog.v1.append_service_pb2 import AppendOutcome, Writer

from reput_client.core.encode import CHUNK_SIZE_BYTES_MAX, request_end
from reput_client.core.errors import DeadlineExceededError, from_status, too_large


@dataclass(slots=True)
class Written:
    """What a writer knows to be stored."""

    message_count: int = 0
    size_bytes: int = 0
    repeated_message_count: int = 0
    """Messages whose batch the log had already."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Messages as they stand in a request, one chunk behind the other, and how many there are."""

    messages: bytes
    message_count: int


class WriteQueue:
    """See the module. More than `window_bytes` without an outcome are too much."""

    def __init__(self, writer_id: str, *, first_sequence: int = 0, durability: int, window_bytes: int) -> None:
        self.writer_id, self.first_sequence = writer_id, first_sequence
        self.written = Written()
        self.weak_count = 0
        """Batches that are stored less safely than was asked for, without a writer id that allows to ask again."""
        self._durability, self._window_bytes = durability, window_bytes
        self._kept: deque[Batch] = deque()
        self._kept_size_bytes = 0

    @property
    def is_idle(self) -> bool:
        """Whether every batch is known to be stored."""
        return not self._kept

    @property
    def is_over_window(self) -> bool:
        """Whether so much is kept that the next batch should wait."""
        return self._kept_size_bytes > self._window_bytes

    def add(self, batch: Batch) -> None:
        """Keep a batch. Raises InvalidArgumentError (BATCH_TOO_LARGE) for one that no request carries."""
        if len(batch.messages) > CHUNK_SIZE_BYTES_MAX:
            raise too_large("BATCH_TOO_LARGE", "messages", len(batch.messages), CHUNK_SIZE_BYTES_MAX)
        self._kept.append(batch)
        self._kept_size_bytes += len(batch.messages)

    def requests(self, first: int = 0) -> list[bytes]:
        """Return the requests of the batches that are kept, in order. -1 means the youngest alone."""
        numbered = list(enumerate(self._kept, self.first_sequence))
        return [batch.messages + self._end(sequence) for sequence, batch in numbered[first:]]

    def on_outcome(self, outcome: AppendOutcome) -> None:
        """Apply the log's answer to the oldest batch.

        Raises ReputError if the batch was refused, or is stored less safely than was asked for, and ValueError for an
        answer that can't be right; the batch is kept then.
        """
        if not self._kept:
            raise ValueError("the server answered more batches than it was sent")
        if outcome.HasField("error"):
            raise from_status(outcome.error)
        is_weak = outcome.result.durability < self._durability
        if is_weak and self.writer_id:
            text = "a batch is stored, but not yet as safely as was asked for"
            raise DeadlineExceededError(text, code=grpc.StatusCode.DEADLINE_EXCEEDED)
        self.weak_count += is_weak
        batch = self._kept.popleft()
        self._kept_size_bytes -= len(batch.messages)
        self.first_sequence += 1
        self.written.message_count += batch.message_count
        self.written.size_bytes += len(batch.messages)
        if outcome.result.is_repeated:
            self.written.repeated_message_count += batch.message_count

    def rename(self, writer_id: str) -> None:
        """Go on as another writer, whose first batch is the oldest one that is kept."""
        self.writer_id, self.first_sequence = writer_id, 0

    def clear(self) -> None:
        """Keep nothing any more."""
        self._kept.clear()
        self._kept_size_bytes = 0

    def _end(self, sequence: int) -> bytes:
        writer = Writer(id=self.writer_id, sequence=sequence) if self.writer_id else None
        return request_end(self._durability, writer)
