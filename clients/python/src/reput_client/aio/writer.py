# SPDX-License-Identifier: Apache-2.0
"""AsyncWriter: appends numbered batches over an AppendStream, each stored a single time even if it is sent again.

`send_once` does the same with a single message, as the only batch of its own writer.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import grpc
from reput.commitlog.v1.append_service_pb2 import AppendOutcome, AppendRequest, AppendResult
from reput.commitlog.v1.append_service_pb2 import Writer as WriterOfBatch
from reput.commitlog.v1.log_service_pb2 import ReadRecordsRequest

from reput_client.aio.channels import AsyncChannels
from reput_client.aio.closing import AsyncClosing
from reput_client.aio.streams import AsyncRequests, next_in_time
from reput_client.core.call import Call
from reput_client.core.encode import Encoder, request_end
from reput_client.core.errors import ReputError, from_rpc_error, nonsense, stream_ended
from reput_client.core.process.birthplace import Birthplace
from reput_client.core.retry import RetryPolicy, is_followed, is_passing
from reput_client.core.sending import ONCE_PREFIX, Stored, as_first
from reput_client.core.types import Durability, NewMessage, SendResult
from reput_client.core.writing import Batch, WriteQueue, Written


class AsyncWriter(AsyncClosing):
    """Appends batches, each stored a single time. Made by `AsyncClient.writer`. Close it, or let `async with` do that.

    A batch without an outcome, because the connection broke or no answer came, is sent again. The log recognizes it by
    the writer's id and the batch's number. A program that starts again may append the same batches with the same
    numbers: stored batches are not stored again. Batches are stored in the order of the calls, each as a whole. Used by
    a single caller at a time. When a method raises ReputError, batches without an outcome are kept, and `flush` sends
    them again. An `async with` block that ends with an exception drops them.
    """

    def __init__(self, open_stream: "Callable[[], AsyncAppendStream]", batches: WriteQueue, retry: RetryPolicy) -> None:
        self._open_stream, self._batches, self._retry = open_stream, batches, retry
        self._encoder = Encoder(makes_unique_ids=False, makes_born_times=False)
        self._stream: AsyncAppendStream | None = None
        self._failure_count = self._follow_count = 0
        self._birthplace = Birthplace()

    def __repr__(self) -> str:
        return f"AsyncWriter({self._batches.writer_id!r}, next_sequence={self.next_sequence})"

    @property
    def next_sequence(self) -> int:
        """Number of the first batch that is not known to be stored. Another writer of this id continues with it."""
        return self._batches.first_sequence

    async def append(self, messages: Sequence[NewMessage]) -> None:
        """Send the next batch. Waits only while more than `window_bytes` bytes have no outcome.

        A batch has 1 to 32,768 messages and at most 16 MiB. The same messages give the same batch: the writer makes no
        unique ids, and a message without a born time gets its store time. Raises ValueError or TypeError for messages
        that can't be encoded; then nothing was sent. Raises ReputError as `flush` does.
        """
        if not messages:
            raise ValueError("a batch has at least one message")
        chunks = [self._encoder.encode(message)[0] for message in messages]
        await self.append_encoded(Batch(b"".join(chunks), len(chunks)))

    async def append_encoded(self, batch: Batch) -> None:
        """Send a batch like `append`, given as encoded messages."""
        self._birthplace.check("writer")
        self._batches.add(batch)
        if self._stream is not None:
            self._stream.send(self._batches.requests(-1))
        else:
            self._open()
        while self._batches.is_over_window:
            await self._settle()

    async def flush(self) -> Written:
        """Wait until all batches are stored. Returns the totals of this writer so far.

        Raises ReputError for a batch that is refused, also if the log has other content under its number, and when the
        retries are used up.
        """
        self._birthplace.check("writer")
        while not self._batches.is_idle:
            await self._settle()
        return self._batches.written

    async def close(self) -> None:
        """Flush, then end the stream. May be repeated."""
        if not self._birthplace.is_here:  # its process closes it
            return
        try:
            await self.flush()
        finally:
            self._drop()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is not None:
            self._batches.clear()
        await self.close()

    def _open(self) -> "AsyncAppendStream":
        """Open a new stream, and send all batches without an outcome."""
        self._stream = self._open_stream()
        self._stream.send(self._batches.requests())
        return self._stream

    def _drop(self) -> None:
        """Drop the stream."""
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    async def _settle(self) -> None:
        """Apply the next outcomes. After a failure wait for the next attempt, or raise the error if there is none."""
        stream = self._stream or self._open()
        try:
            for outcome in await stream.outcomes():
                self._batches.on_outcome(outcome)
                self._failure_count = self._follow_count = 0
        except (ReputError, ValueError) as failure:
            error = failure if isinstance(failure, ReputError) else nonsense(failure)
        else:
            return
        stream.on_failure(error)
        self._drop()  # the batches in flight behind a refused batch are refused as well
        if is_followed(error, self._follow_count):
            self._follow_count += 1
            return
        self._follow_count = 0
        delay_s = self._retry.backoff_s(self._failure_count, error) if is_passing(error) else None
        if delay_s is None:
            self._failure_count = 0
            raise error
        self._failure_count += 1
        await asyncio.sleep(delay_s)


class AsyncAppendStream:
    """An AppendStream, with the requests that gRPC has not fetched yet."""

    def __init__(self, channels: AsyncChannels) -> None:
        self._timeout_s = channels.options.timeout_s
        self._requests = AsyncRequests()
        self._channels, self._target = channels, channels.target("commitlog")
        self._call = channels.append_stream(aiter(self._requests))

    def send(self, requests: list[bytes]) -> None:
        """Queue serialized requests. GRPC sends them soon."""
        for request in requests:
            self._requests.put_nowait(request)

    async def outcomes(self) -> list[AppendOutcome]:
        """Return the next outcomes, in the order of the requests. Raises ReputError."""
        try:
            response = await next_in_time(self._call, self._timeout_s)
        except grpc.RpcError as failure:
            raise from_rpc_error(failure, "commitlog", self._target) from None
        if response is None:
            raise stream_ended()
        return list(response.outcomes)

    def on_failure(self, error: ReputError) -> None:
        """Log the error that ends this stream, and change the target of the next stream if the error asks for it."""
        self._channels.on_failure("commitlog", self._target, error)

    def close(self) -> None:
        """End the stream. Requests without an outcome are given up."""
        self._requests.put_nowait(None)
        self._call.cancel()


async def send_once(channels: AsyncChannels, once_id: str, message: NewMessage, durability: Durability) -> SendResult:
    """Store a message if none has this id, and return where it is stored: see `AsyncClient.send_once`."""
    chunk, unique_id = Encoder(makes_unique_ids=True).encode(message)
    end = request_end(durability, WriterOfBatch(id=ONCE_PREFIX + once_id))
    answer: Any = await channels.run(Call(AppendRequest.FromString(chunk + end)))
    result: AppendResult = answer.result
    if result.is_repeated:
        place, first = ReadRecordsRequest(physical_offsets=[result.start_physical_offset]), None
        with contextlib.suppress(ReputError):  # the message is stored even if reading it fails
            first = next(iter((await channels.run(Call(place))).messages), None)
        unique_id = as_first(result, first)
    return Stored(result, [unique_id]).at(0)
