# SPDX-License-Identifier: Apache-2.0
"""Appender: one task's batches through an AppendStream, in order, each until the log says that it is stored.

Invariants: a batch is kept until its outcome has come, and what is kept is bounded; after a broken stream everything
that is kept is sent again, in the same order and with the same bytes. With a writer id the log stores each batch once
then; without one a batch may be stored twice, never left out.
Runs on executors, in one thread. Not handled: what the rows are (rows.py), which writer this is (sink.py).
"""

from __future__ import annotations

import contextlib
import logging
import queue
import uuid
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from google.rpc import error_details_pb2
from reput.commitlog.v1 import append_service_pb2

from reput_spark import calls
from reput_spark.errors import CallFailed, ReplayChanged
from reput_spark.write.rows import varint

if TYPE_CHECKING:
    from google.rpc.status_pb2 import Status

    from reput_spark.write.options import WriteOptions

METHOD = "/reput.commitlog.v1.AppendService/AppendStream"
MESSAGE_COUNT_MAX = 32_768
"""Most messages of a batch; the CommitLog's own limit."""

PASSING_REASONS = {"STORE_FULL", "WINDOW_FULL", "STOPPING", "RECOVERING", "QUEUE_OFFSETS_UNKNOWN"}
"""Refusals that pass while nothing of the batch was stored."""

CHANGED_REASONS = {"WRITER_CONTENT_DIFFERS", "WRITER_FORGOTTEN"}
"""Refusals of a batch that can't be the one that is stored, or that nobody remembers."""

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class Pending:
    """A batch without an outcome: its messages as they stand in a request, and how many there are."""

    messages: bytes
    message_count: int


@dataclass(slots=True)
class Totals:
    """What a task did."""

    row_count: int = 0
    size_bytes: int = 0
    repeated_row_count: int = 0
    """Rows whose batch the log had already."""


class Appender:
    """See the module. Use as a context; `finish` before its end, or what is not stored is given up."""

    def __init__(self, options: WriteOptions, writer_id: str, sleep: Callable[[float], None] | None = None) -> None:
        """`writer_id` is empty for batches that may be stored twice."""
        self.totals = Totals()
        self._options = options
        self._writer_id = writer_id
        self._first_sequence = 0
        """Of the oldest batch that is kept."""
        self._pending: deque[Pending] = deque()
        self._pending_size_bytes = 0
        self._chunks: list[bytes] = []
        self._chunks_size_bytes = 0
        self._stream: Stream | None = None
        self._attempts = calls.Attempts(options, METHOD, **({} if sleep is None else {"sleep": sleep}))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()

    def put(self, chunk: bytes) -> None:
        """Append one message. Waits while too much is under way. Raises CallFailed and ReplayChanged."""
        if self._chunks_size_bytes >= self._options.batch_size_bytes or len(self._chunks) == MESSAGE_COUNT_MAX:
            self._send()
        self._chunks.append(chunk)
        self._chunks_size_bytes += len(chunk)

    def finish(self) -> Totals:
        """Wait until everything is stored. Raises as `put`."""
        if self._chunks:
            self._send()
        while self._pending:
            self._settle_next()
        return self.totals

    def _send(self) -> None:
        batch = Pending(b"".join(self._chunks), len(self._chunks))
        self._chunks, self._chunks_size_bytes = [], 0
        while self._pending and self._pending_size_bytes + len(batch.messages) > self._options.window_size_bytes:
            self._settle_next()
        self._pending.append(batch)
        self._pending_size_bytes += len(batch.messages)
        if self._stream is None:
            self._open()
        else:
            self._stream.send(self._request(len(self._pending) - 1))

    def _open(self) -> Stream:
        """A new stream, with everything that is kept."""
        self._stream = Stream(self._options, self._attempts)
        for index in range(len(self._pending)):
            self._stream.send(self._request(index))
        return self._stream

    def _request(self, index: int) -> bytes:
        """The request of a batch that is kept: its messages, the durability, the writer."""
        durability = b"\x10" + varint(self._options.durability) if self._options.durability else b""
        if not self._writer_id:
            return self._pending[index].messages + durability
        writer = append_service_pb2.Writer(id=self._writer_id, sequence=self._first_sequence + index)
        raw = writer.SerializeToString()
        return b"".join((self._pending[index].messages, durability, b"\x1a", varint(len(raw)), raw))

    def _settle_next(self) -> None:
        """Take the next answer of the stream, which is opened again if it broke."""
        try:
            outcomes = (self._stream or self._open()).outcomes()
        except self._attempts.errors as error:
            self._close()
            self._attempts.failed(error)
            return
        for outcome in outcomes:
            if outcome.HasField("error"):
                self._refused(outcome.error)
                return
            if outcome.result.durability < self._options.durability:
                self._too_weak()
                return
            self._stored(outcome.result.is_repeated)

    def _stored(self, is_repeated: bool) -> None:
        batch = self._pending.popleft()
        self._pending_size_bytes -= len(batch.messages)
        self._first_sequence += 1
        self._attempts.progressed()
        self.totals.row_count += batch.message_count
        self.totals.size_bytes += len(batch.messages)
        self.totals.repeated_row_count += batch.message_count if is_repeated else 0

    def _too_weak(self) -> None:
        """The oldest batch is stored, but its sync took too long: ask again, or without a writer believe it."""
        if self._writer_id:
            self._close()
            self._attempts.again("DEADLINE_EXCEEDED", "a batch is stored, but not on the disk yet", is_passing=True)
        else:
            _log.warning("a batch was not on the disk when it was acknowledged")
            self._stored(is_repeated=False)

    def _refused(self, status: Status) -> None:
        """The oldest batch was refused. Raises CallFailed or ReplayChanged, unless there is a way on."""
        self._close()
        info = error_details_pb2.ErrorInfo()
        for detail in status.details:
            detail.Unpack(info)
        if info.reason in CHANGED_REASONS:
            if self._options.changed_replay == "fail":
                raise ReplayChanged(self._writer_id, self._first_sequence, status.message)
            _log.warning("%s; the rest of this partition is appended under another writer id", status.message)
            self._writer_id = f"{self._writer_id[:160]}~{uuid.uuid4().hex}"
            self._first_sequence = 0
            return
        self._attempts.again(info.reason or str(status.code), status.message, is_passing=info.reason in PASSING_REASONS)

    def _close(self) -> None:
        if self._stream is not None:
            self._stream.close()
            self._stream = None


class Stream:
    """One AppendStream. gRPC reads requests in a thread of its own; what it has not read waits here."""

    def __init__(self, options: WriteOptions, attempts: calls.Attempts) -> None:
        self._timeout_s = options.rpc_timeout_ms / 1000
        self._requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        open_stream: Any = attempts.channel().stream_stream(
            METHOD, response_deserializer=calls.parser(append_service_pb2.AppendStreamResponse)
        )
        self._call: Any = open_stream(iter(self._requests.get, None), metadata=calls.metadata(options))

    def send(self, request: bytes) -> None:
        """Send a serialized request, soon."""
        self._requests.put(request)

    def outcomes(self) -> list[append_service_pb2.AppendOutcome]:
        """The next outcomes, in the order of the requests. Raises grpc.RpcError."""
        response = calls.next_in_time(self._call, self._timeout_s)
        if response is None:
            raise CallFailed(METHOD, "", "INTERNAL", "the server ended the stream although requests are open")
        return list(response.outcomes)

    def close(self) -> None:
        """Give up whatever has no outcome."""
        self._requests.put(None)
        with contextlib.suppress(Exception):
            self._call.cancel()
