# SPDX-License-Identifier: Apache-2.0
"""AppendStream: one pipelined stream of batches.

A reading task takes requests, appends them and queues their outcomes; the responder sends outcomes in request order,
several in one response. Outcomes that wait for nothing are collected for about a millisecond; those behind a sync are
collected by the sync itself. A third task ends a stream that brings nothing for long.
Invariants: one outcome for each request that was appended or refused, in order; the bytes of requests without a sent
outcome are bounded, and while the bound is reached the stream is not read. A caller that does not read its outcomes
fills its own window only: what no longer waits for durability is out of the common budget.
Callers: one servicer call; the loop that owns the log.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass

from libs.runtime.rpc.errors import Stopping, status_of
from services.commitlog.engine.commit_log import DURABILITY_LOCAL_DISK, DURABILITY_MEMORY, CommitLog
from services.commitlog.engine.write.append import AppendedBatch
from services.commitlog.engine.write.inflight import InflightBudget
from services.commitlog.errors import StreamIdle
from services.commitlog.rpc.append_result import AppendResultEncoder, error_outcome, stream_response
from services.commitlog.rpc.error_table import ERROR_TABLE

RESPONSE_SIZE_BYTES_MAX = 1 << 20
"""A response with this many bytes of outcomes is sent although more are ready."""

OUTCOME_SIZE_BYTES = 1_024
"""What an outcome takes in memory besides its request, so that many small requests are bounded too."""


@dataclass(frozen=True, slots=True)
class PendingOutcome:
    """What became of one request: a batch, or a serialized AppendOutcome with an error.

    `sync` is what the batch waits for, until `deadline_s` of the loop's clock.
    """

    size_bytes: int
    batch: AppendedBatch | None
    error: bytes
    sync: asyncio.Future[None] | None
    deadline_s: float


class AppendStreamSession:
    """One stream. `inflight` bounds what waits for durability over all callers."""

    def __init__(
        self, commit_log: CommitLog, encoder: AppendResultEncoder, inflight: InflightBudget, born_host: bytes
    ) -> None:
        config = commit_log.config
        self._commit_log = commit_log
        self._encoder = encoder
        self._inflight = inflight
        self._window = InflightBudget("bytes of one stream", config.append_stream_inflight_bytes_max)
        self._born_host = born_host
        self._delay_s = config.acknowledge_delay_ms / 1000
        self._count_max = config.acknowledge_count_max
        self._sync_timeout_s = config.sync_timeout_ms / 1000
        self._idle_timeout_ms = config.append_stream_idle_timeout_ms
        self._idle_since_s: float | None = None
        """When it began to wait for a request, by the loop's clock; None while it works on one."""
        self._is_too_idle = False
        self._outcomes: deque[PendingOutcome] = deque()
        self._arrived = asyncio.Event()
        self._many_wait = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Read no further request; the stream ends with STOPPING after the outcomes that are left."""
        if self._reading is not None:
            self._reading.cancel()

    async def responses(self, requests: AsyncIterator[bytes]) -> AsyncGenerator[bytes, None]:
        """Serialized AppendStreamResponses until the caller has closed its side and has every outcome."""
        self._reading = asyncio.create_task(self._read(requests), name="append stream")
        self._reading.add_done_callback(lambda _: self._arrived.set())
        idling = asyncio.create_task(self._end_when_idle(), name="append stream: idle")
        try:
            while await self._wait_for_outcome():
                await self._collect()
                outcomes, size_bytes = self._take_ready()
                yield stream_response(outcomes)
                self._window.give_back(size_bytes)
            if self._is_too_idle:
                raise StreamIdle(timeout_ms=self._idle_timeout_ms)
            if self._reading.cancelled():
                raise Stopping
            self._reading.result()
        finally:
            self._reading.cancel()
            idling.cancel()

    async def _end_when_idle(self) -> None:
        """Stop reading when no request came for long; looks only when that may be so."""
        if not self._idle_timeout_ms:
            return
        assert self._reading is not None
        clock, timeout_s = asyncio.get_running_loop().time, self._idle_timeout_ms / 1000
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
            await self._window.take_waiting(len(request) + OUTCOME_SIZE_BYTES)
            await self._inflight.take_waiting(len(request))
            sync = None
            try:
                outcome = await self._append(request)
                sync = outcome.sync
            finally:
                self._give_back_after(sync, len(request))
            self._outcomes.append(outcome)
            self._arrived.set()
            if len(self._outcomes) >= self._count_max:
                self._many_wait.set()
            self._idle_since_s = clock()

    async def _append(self, request: bytes) -> PendingOutcome:
        batch = sync = None
        error = b""
        try:
            batch = await self._commit_log.append(request, self._born_host)
            sync = self._commit_log.sync_of(batch)
        except Exception as failure:  # noqa: BLE001 - becomes the status of this outcome; the stream goes on
            error = error_outcome(status_of(failure, ERROR_TABLE))
        deadline_s = asyncio.get_running_loop().time() + self._sync_timeout_s
        return PendingOutcome(len(request) + OUTCOME_SIZE_BYTES, batch, error, sync, deadline_s)

    def _give_back_after(self, sync: asyncio.Future[None] | None, size_bytes: int) -> None:
        """Give back what was taken of the common budget once nothing waits for durability any more."""
        if sync is None or sync.done():
            self._inflight.give_back(size_bytes)
        else:
            sync.add_done_callback(lambda _: self._inflight.give_back(size_bytes))

    async def _wait_for_outcome(self) -> bool:
        """Wait for the next outcome; False when none will come."""
        assert self._reading is not None
        while not self._outcomes:
            if self._reading.done():
                return False
            self._arrived.clear()
            await self._arrived.wait()
        return True

    async def _collect(self) -> None:
        """Wait until the first outcome is settled, and a little longer for more of those that need no waiting."""
        assert self._reading is not None
        first = self._outcomes[0]
        if first.sync is not None:
            timeout_s = first.deadline_s - asyncio.get_running_loop().time()
            await asyncio.wait([first.sync], timeout=max(timeout_s, 0))
        elif self._delay_s and len(self._outcomes) < self._count_max and not self._reading.done():
            self._many_wait.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._delay_s):
                    await self._many_wait.wait()

    def _take_ready(self) -> tuple[list[bytes], int]:
        """The settled outcomes at the head, serialized, at least one; and what they took of the window."""
        now_s = asyncio.get_running_loop().time()
        taken: list[bytes] = []
        window_bytes = response_bytes = 0
        while self._outcomes and response_bytes < RESPONSE_SIZE_BYTES_MAX:
            head = self._outcomes[0]
            if taken and head.sync is not None and not head.sync.done() and now_s < head.deadline_s:
                break
            taken.append(self._encode(self._outcomes.popleft()))
            window_bytes += head.size_bytes
            response_bytes += len(taken[-1])
        return taken, window_bytes

    def _encode(self, outcome: PendingOutcome) -> bytes:
        if outcome.batch is None:
            return outcome.error
        if outcome.sync is None or not outcome.sync.done():
            return self._encoder.response(outcome.batch, DURABILITY_MEMORY)
        failure = outcome.sync.exception()
        if failure is not None:
            assert isinstance(failure, Exception)
            return error_outcome(status_of(failure, ERROR_TABLE))
        return self._encoder.response(outcome.batch, DURABILITY_LOCAL_DISK)
