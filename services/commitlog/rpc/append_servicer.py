# SPDX-License-Identifier: Apache-2.0
"""AppendService on raw bytes: a request stays bytes from the socket to the segment."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Sequence
from functools import partial

from msgspec import Struct, field

from libs.requests.errors import ServiceError
from libs.runtime.http2.turns import TurnCall
from libs.runtime.rpc.first_step import Rest, failure
from libs.runtime.rpc.handlers import Context
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.durable.acknowledge import Acknowledgement
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.write.append import AppendedBatch
from services.commitlog.engine.write.inflight import InflightBudget
from services.commitlog.rpc.append_result import encoder_of
from services.commitlog.rpc.append_stream import AppendStreamSession
from services.commitlog.rpc.peer import born_host

RAW_METHODS = ("Append", "AppendState", "AppendStream")
"""Methods that take requests as bytes."""


class AppendServicer(Struct, frozen=True, eq=False):
    """The servicer of reput.commitlog.v1.AppendService. `_streams` bounds the streams, `_inflight` their bytes."""

    _log: Callable[[], OpenLog]
    _streams: InflightBudget
    _inflight: InflightBudget
    _config: CommitLogConfig
    sessions: set[AppendStreamSession] = field(default_factory=set)
    """The open streams."""

    async def Append(self, request: bytes, context: Context) -> bytes:
        """Append a batch. Answers when the batch has its durability."""
        log = self._log()
        return await self._answer(log, request, context, log.groups.append)

    def append_turn(self, requests: Sequence[bytes], calls: Sequence[TurnCall]) -> Sequence[bytes | Rest | None]:
        """Append the batches of a turn of the event loop together, as many as fit into groups.

        The outcome of a batch is its answer, or the wait for its durability, or None if `Append` has to be called.
        """
        size_bytes = sum(map(len, requests))
        try:
            log = self._log()
            self._inflight.charge(size_bytes)
        except ServiceError:  # each call gets its own refusal
            return [None] * len(requests)
        try:
            batches = log.groups.append_turn(requests, [born_host(call.peer()) for call in calls])
        finally:
            self._inflight.give_back(size_bytes)
        return [
            None if batch is None else self._outcome(log, batch, len(request))
            for request, batch in zip(requests, batches, strict=True)
        ]

    def _outcome(self, log: OpenLog, batch: AppendedBatch, size_bytes: int) -> bytes | Rest:
        try:
            acknowledgement = log.acknowledgements.of(batch)
            if acknowledgement.is_settled:
                encoder = encoder_of(log.store_host)
                return encoder.response(batch, acknowledgement.durability(), is_late=acknowledgement.is_late)
        except Exception as error:  # noqa: BLE001 - it is the outcome of this call
            return failure(error)
        return partial(self._settled, log, batch, acknowledgement, size_bytes)

    async def _settled(
        self, log: OpenLog, batch: AppendedBatch, acknowledgement: Acknowledgement, size_bytes: int
    ) -> bytes:
        """Wait for the durability of a batch whose request was taken, and return its answer."""
        with self._inflight.held_anyway(size_bytes):
            await acknowledgement.settle()
        encoder = encoder_of(log.store_host)
        return encoder.response(batch, acknowledgement.durability(), is_late=acknowledgement.is_late)

    async def AppendState(self, request: bytes, context: Context) -> bytes:
        """Append a batch of the store's own services."""
        log = self._log()
        return await self._answer(log, request, context, log.pipeline.append_state)

    async def _answer(
        self, log: OpenLog, request: bytes, context: Context, append: Callable[[bytes, bytes], Awaitable[AppendedBatch]]
    ) -> bytes:
        size_bytes = len(request)
        self._inflight.charge(size_bytes)
        try:
            batch = await append(request, born_host(context.peer()))
            acknowledgement = log.acknowledgements.of(batch)
            await acknowledgement.settle()
        finally:
            self._inflight.give_back(size_bytes)
        encoder = encoder_of(log.store_host)
        return encoder.response(batch, acknowledgement.durability(), is_late=acknowledgement.is_late)

    async def AppendStream(self, requests: AsyncIterator[bytes], context: Context) -> AsyncGenerator[bytes, None]:
        """See AppendStreamSession."""
        with self._streams.held(1):
            session = AppendStreamSession(self._log(), self._inflight, born_host(context.peer()), self._config)
            self.sessions.add(session)
            try:
                async for response in session.responses(requests):
                    yield response
            finally:
                self.sessions.discard(session)

    def drain(self) -> None:
        """End the streams after their outstanding outcomes."""
        for session in self.sessions:
            session.stop()
