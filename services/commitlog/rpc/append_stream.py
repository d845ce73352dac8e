# SPDX-License-Identifier: Apache-2.0
"""AppendStream: a pipelined stream of batches.

A reading task reads requests, appends them and queues their outcomes. The responder sends outcomes in request order.
All ready outcomes share a response: outcomes of requests that came together, of the same sync, or of the time that the
response before took. A third task ends a stream that brings no request for long.
Invariants: each appended or refused request has a single outcome, in order. A request that needs the request before it
is not appended if that one was refused, so that the sender can send that one again before it. The bytes of requests
without a sent outcome are bounded; at the bound the stream is not read. A caller that does not read its outcomes fills
only its own window: requests that no longer wait for durability do not use the common budget.
Callers: a single servicer call, in the loop that owns the log.
"""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from functools import partial

from msgspec import Struct

from libs.requests.errors import Stopping
from libs.runtime.rpc.errors import status_of
from libs.runtime.trust.rights.access import RefusedRequest
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.durable.acknowledge import Acknowledgement
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.write.append import AppendedBatch
from services.commitlog.engine.write.inflight import InflightBudget
from services.commitlog.errors import LeaseOver, StoreSealed, StreamIdle
from services.commitlog.rpc.append_result import AppendResultEncoder, encoder_of, error_outcome, stream_response
from services.commitlog.rpc.error_table import ERROR_TABLE

RESPONSE_SIZE_BYTES_MAX = 1 << 20
"""A response with this many bytes of outcomes is sent even if more outcomes are ready."""

OUTCOME_SIZE_BYTES = 1_024
"""Memory of an outcome in addition to its request, so that many small requests are bounded, too."""


_REFUSED = Acknowledgement(0)
"""The acknowledgement of an error, which waits for nothing."""


class PendingOutcome(Struct, frozen=True):
    """The outcome of a request: a batch with its acknowledgement, or a serialized AppendOutcome with an error."""

    size_bytes: int
    result: AppendedBatch | bytes
    acknowledgement: Acknowledgement = _REFUSED


@dataclass(slots=True, eq=False)
class AppendStreamSession:
    """A stream of batches. `_inflight` bounds the bytes that wait for durability over all callers."""

    _log: OpenLog
    _inflight: InflightBudget
    _born_host: bytes
    _config: CommitLogConfig
    _encoder: AppendResultEncoder = field(init=False)
    _window: InflightBudget = field(init=False)
    _idle_since_s: float | None = None
    """When the wait for a request began, by the loop's clock. None while a request is processed."""
    _is_too_idle: bool = False
    _was_refused: bool = False
    """Whether the last request was refused."""
    _outcomes: deque[PendingOutcome] = field(default_factory=deque)
    _arrived: asyncio.Event = field(default_factory=asyncio.Event)
    _reading: asyncio.Task[None] | None = None

    def __post_init__(self) -> None:
        self._encoder = encoder_of(self._log.store_host)
        self._window = InflightBudget("bytes of one stream", self._config.append_stream_inflight_bytes_max)

    def stop(self) -> None:
        """Read no further request. The stream ends with STOPPING after the remaining outcomes."""
        if self._reading is not None:
            self._reading.cancel()

    async def responses(self, requests: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Yield serialized AppendStreamResponses until the caller has closed its side and has every outcome."""
        self._reading = asyncio.create_task(self._read(requests), name="append stream")
        self._reading.add_done_callback(lambda _: self._arrived.set())
        idling = asyncio.create_task(self._end_when_idle(), name="append stream: idle")
        try:
            while await self._wait_for_outcome():
                await self._outcomes[0].acknowledgement.settle()
                outcomes, size_bytes = self._pop_ready()
                yield stream_response(outcomes)
                self._window.give_back(size_bytes)
            if self._is_too_idle:
                raise StreamIdle(timeout_ms=self._config.append_stream_idle_timeout_ms)
            if self._reading.cancelled():
                raise Stopping
            self._reading.result()
        finally:
            self._reading.cancel()
            idling.cancel()

    async def _end_when_idle(self) -> None:
        """Stop reading after no request came for too long. Wakes only when this may be due."""
        if not self._config.append_stream_idle_timeout_ms:
            return
        assert self._reading is not None
        clock, timeout_s = asyncio.get_running_loop().time, self._config.append_stream_idle_timeout_ms / 1000
        while True:
            since_s = self._idle_since_s
            idle_s = 0.0 if since_s is None or self._outcomes else clock() - since_s
            if idle_s >= timeout_s:
                self._is_too_idle = True
                self._reading.cancel()
                return
            await asyncio.sleep(timeout_s - idle_s)

    async def _read(self, requests: AsyncIterator[bytes]) -> None:
        clock = asyncio.get_running_loop().time
        self._idle_since_s = clock()
        async for request in requests:
            self._idle_since_s = None
            await self._window.charge_waiting(len(request) + OUTCOME_SIZE_BYTES)
            await self._inflight.charge_waiting(len(request))
            acknowledgement = _REFUSED
            try:
                outcome = await self._append(request)
                acknowledgement = outcome.acknowledgement
            finally:
                acknowledgement.when_reached(partial(self._inflight.give_back, len(request)))
            self._outcomes.append(outcome)
            self._arrived.set()
            self._idle_since_s = clock()

    async def _append(self, request: bytes) -> PendingOutcome:
        size_bytes = len(request) + OUTCOME_SIZE_BYTES
        try:
            if isinstance(request, RefusedRequest):
                raise request.error  # noqa: TRY301 - it has an outcome as any other refusal
            batch = await self._log.pipeline.append(request, self._born_host, is_behind_refused=self._was_refused)
            acknowledgement = self._log.acknowledgements.of(batch)
            self._was_refused = False
            return PendingOutcome(size_bytes, batch, acknowledgement)
        except Exception as failure:  # noqa: BLE001 - becomes the status of this outcome; the stream goes on
            self._was_refused = True
            return PendingOutcome(size_bytes, error_outcome(status_of(failure, ERROR_TABLE)))

    async def _wait_for_outcome(self) -> bool:
        """Wait for the next outcome. Returns whether there is one."""
        assert self._reading is not None
        while not self._outcomes and not self._reading.done():
            self._arrived.clear()
            await self._arrived.wait()
        return bool(self._outcomes)

    def _pop_ready(self) -> tuple[list[bytes], int]:
        """Pop the settled outcomes at the head, at least one. Returns them serialized, and their size in the window."""
        popped: list[bytes] = []
        window_bytes = response_bytes = 0
        while self._outcomes and response_bytes < RESPONSE_SIZE_BYTES_MAX:
            head = self._outcomes[0]
            if popped and not head.acknowledgement.is_settled:
                break
            popped.append(self._encode(self._outcomes.popleft()))
            window_bytes += head.size_bytes
            response_bytes += len(popped[-1])
        return popped, window_bytes

    def _encode(self, outcome: PendingOutcome) -> bytes:
        if isinstance(outcome.result, bytes):
            return outcome.result
        try:
            durability = outcome.acknowledgement.durability()
        except (StoreSealed, LeaseOver) as failure:
            return error_outcome(status_of(failure, ERROR_TABLE))
        return self._encoder.response(outcome.result, durability, is_late=outcome.acknowledgement.is_late)
