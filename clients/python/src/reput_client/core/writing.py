# SPDX-License-Identifier: Apache-2.0
"""WriteQueue: the logic of a writer: its batches without an outcome, and the effects of outcomes. No I/O.

Invariants: the oldest kept batch has the number `first_sequence`, and the later batches have the next numbers without a
gap. A batch is kept until the log confirms that it is stored, and has the same bytes each time it is sent. So the log
recognizes it and stores it a single time. Without a writer id a batch that is sent again may be stored twice.
"""

from collections import deque
from dataclasses import dataclass

import grpc
from reput.commitlog.v1.append_service_pb2 import AppendOutcome, Writer

from reput_client.core.encode import CHUNK_SIZE_BYTES_MAX, request_end
from reput_client.core.errors import DeadlineExceededError, from_status, too_large


@dataclass(slots=True)
class Written:
    """The totals of a writer: messages and bytes that are known to be stored."""

    message_count: int = 0
    size_bytes: int = 0
    repeated_message_count: int = 0
    """Messages of batches that the log had already stored."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Encoded messages, as chunks of a request in sequence, and their number."""

    messages: bytes
    message_count: int


class WriteQueue:
    """The batches of a writer without an outcome, limited to `window_bytes` bytes."""

    def __init__(self, writer_id: str, *, first_sequence: int = 0, durability: int, window_bytes: int) -> None:
        self.writer_id, self.first_sequence = writer_id, first_sequence
        self.written = Written()
        self.weak_count = 0
        """Batches stored with less durability than requested, without a writer id that would allow another attempt."""
        self._durability, self._window_bytes = durability, window_bytes
        self._kept: deque[Batch] = deque()
        self._kept_size_bytes = 0

    @property
    def is_idle(self) -> bool:
        """Whether every batch is known to be stored."""
        return not self._kept

    @property
    def is_over_window(self) -> bool:
        """Whether more than the window is kept, so that the next batch should wait."""
        return self._kept_size_bytes > self._window_bytes

    def add(self, batch: Batch) -> None:
        """Keep a batch. Raises InvalidArgumentError (BATCH_TOO_LARGE) if it is too large for a request."""
        if len(batch.messages) > CHUNK_SIZE_BYTES_MAX:
            raise too_large("BATCH_TOO_LARGE", "messages", len(batch.messages), CHUNK_SIZE_BYTES_MAX)
        self._kept.append(batch)
        self._kept_size_bytes += len(batch.messages)

    def requests(self, first: int = 0) -> list[bytes]:
        """Return the requests of the batches that are kept, in order. -1 means only the youngest."""
        numbered = list(enumerate(self._kept, self.first_sequence))
        return [batch.messages + self._end(sequence) for sequence, batch in numbered[first:]]

    def on_outcome(self, outcome: AppendOutcome) -> None:
        """Apply the log's answer to the oldest batch.

        Raises ReputError if the batch was refused, or is stored with less durability than requested, and ValueError for
        an inconsistent answer. The batch is kept then.
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
        """Continue as another writer, whose first batch is the oldest kept batch."""
        self.writer_id, self.first_sequence = writer_id, 0

    def clear(self) -> None:
        """Drop all kept batches."""
        self._kept.clear()
        self._kept_size_bytes = 0

    def _end(self, sequence: int) -> bytes:
        writer = Writer(id=self.writer_id, sequence=sequence) if self.writer_id else None
        return request_end(self._durability, writer)
