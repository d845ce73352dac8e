# SPDX-License-Identifier: Apache-2.0
"""Appender: appends a task's messages in batches with a writer of the Python client, which keeps unstored batches.

Runs on executors, in a single thread. The encoding of rows is in rows.py, the writer id comes from sink.py.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable
from typing import TYPE_CHECKING, Self

from reput_client.core.errors import ReputError
from reput_client.core.sending import BATCH_MESSAGE_COUNT_MAX
from reput_client.core.writing import Batch, WriteQueue, Written
from reput_client.sync.writer import AppendStream, Writer

from reput_spark import calls
from reput_spark.errors import ReplayChanged

if TYPE_CHECKING:
    from reput_client.sync.channels import Channels

    from reput_spark.write.options import WriteOptions

PATH = "reput.commitlog.v1.AppendService/AppendStream"

CHANGED_REASONS = {"WRITER_CONTENT_DIFFERS", "WRITER_FORGOTTEN"}
"""Refusals of a batch that differs from the stored batch, or whose number the log does not remember."""

_log = logging.getLogger(__name__)


class Appender:
    """The appender of a task, for a `with` block. Call `finish` at its end, or unstored batches are dropped."""

    def __init__(self, options: WriteOptions, writer_id: str) -> None:
        """`writer_id` is empty for batches that may be stored twice."""
        self._options = options
        self._batches = WriteQueue(writer_id, durability=options.durability, window_bytes=options.window_size_bytes)
        self._writer = Writer(lambda: AppendStream(self._channels()), self._batches, calls.servers(options).retry)
        self._chunks: list[bytes] = []
        self._chunks_size_bytes = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._batches.clear()
        self._writer.close()

    def put(self, chunk: bytes) -> None:
        """Append a message. Waits while the window is full. Raises CallFailed and ReplayChanged."""
        if self._chunks_size_bytes >= self._options.batch_size_bytes or len(self._chunks) == BATCH_MESSAGE_COUNT_MAX:
            self._send()
        self._chunks.append(chunk)
        self._chunks_size_bytes += len(chunk)

    def finish(self) -> Written:
        """Wait until all messages are stored. Returns the totals. Raises as `put`."""
        if self._chunks:
            self._send()
        self._do(self._writer.flush)
        if self._batches.weak_count:
            _log.warning("%d batches were not on the disk when they were acknowledged", self._batches.weak_count)
        return self._batches.written

    def _send(self) -> None:
        batch = Batch(b"".join(self._chunks), len(self._chunks))
        self._chunks, self._chunks_size_bytes = [], 0
        self._do(lambda: self._writer.append_encoded(batch))

    def _channels(self) -> Channels:
        """Return the current channels, which keep the last known leader in this process."""
        return calls.channels_to(self._options, ",".join(self._options.endpoints))

    def _do(self, step: Callable[[], object]) -> None:
        """Run a step of the writer. A changed replay continues under another writer id, if that is allowed."""
        while True:
            try:
                step()
            except ReputError as error:
                if error.reason not in CHANGED_REASONS:
                    raise calls.failure(PATH, self._channels().target("commitlog"), error) from None
                self._go_on_as_another(error)
                step = self._writer.flush
            else:
                return

    def _go_on_as_another(self, error: ReputError) -> None:
        writer_id = self._batches.writer_id
        if self._options.changed_replay == "fail":
            raise ReplayChanged(writer_id, self._batches.first_sequence, error.text) from None
        _log.warning("%s; the rest of this partition is appended under another writer id", error.text)
        self._batches.rename(f"{writer_id[:160]}~{uuid.uuid4().hex}")
