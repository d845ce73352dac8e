# SPDX-License-Identifier: Apache-2.0
"""AppendGroups: writes small requests that arrive in the same turn of the event loop as a single piece.

The costs of a piece (kernel, write, marks) then arise once for all its requests; each request stays a batch of its own.
Requests are grouped if several arrived in the turn before; otherwise a request is written at once.
Callers: the loop that owns the log.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from libs.formats.limits import KIB, MIB
from services.commitlog.engine.write.append import AppendedBatch, AppendPipeline

GROUPED_SIZE_BYTES_MAX = 64 * KIB
"""The cost of a larger request depends on its bytes, so grouping would not help."""
GROUP_SIZE_BYTES_MAX = MIB
"""The event loop does nothing else while it writes a piece."""
GROUP_COUNT_MAX = 64
"""More requests save almost nothing. Requests behind a request that is written alone are tried again."""


@dataclass(slots=True, eq=False)
class AppendWaiter:
    """A request of this turn. The result None for its batch means that the request has to be written alone."""

    request: bytes
    born_host: bytes
    batch: asyncio.Future[AppendedBatch | None]


@dataclass(slots=True, eq=False)
class AppendGroups:
    """The collector of the small requests of a turn."""

    _pipeline: AppendPipeline
    _request_size_bytes_max: int = GROUPED_SIZE_BYTES_MAX
    """Larger requests are written alone."""
    _waiting: list[AppendWaiter] = field(default_factory=list)
    _arrived_count: int = 0
    """Number of requests of this turn."""
    _is_grouping: bool = False
    """Whether several requests arrived in the turn before."""

    def __post_init__(self) -> None:
        self._request_size_bytes_max = min(self._request_size_bytes_max, self._pipeline.request_size_bytes_max)

    async def append(self, request: bytes, born_host: bytes) -> AppendedBatch:
        """See AppendPipeline.append."""
        if len(request) > self._request_size_bytes_max:
            return await self._pipeline.append(request, born_host)
        loop = asyncio.get_running_loop()
        if not self._arrived_count:
            loop.call_soon(self._end_turn)
        self._arrived_count += 1
        batch = None
        if self._is_grouping:
            waiter = AppendWaiter(request, born_host, loop.create_future())
            self._waiting.append(waiter)
            batch = await waiter.batch
        return batch or await self._pipeline.append(request, born_host)

    def append_turn(self, requests: Sequence[bytes], born_hosts: Sequence[bytes]) -> list[AppendedBatch | None]:
        """Append the requests of a turn at once. The result None means that a request has to be appended alone."""
        batches: list[AppendedBatch | None] = [None] * len(requests)
        small = [index for index, request in enumerate(requests) if len(request) <= self._request_size_bytes_max]
        start = 0
        while start < len(small):
            indexes = _within_group(small[start : start + GROUP_COUNT_MAX], requests)
            try:
                placed = self._pipeline.append_group(
                    [requests[index] for index in indexes], [born_hosts[index] for index in indexes]
                )
            except Exception:  # noqa: BLE001 - each of the other requests gets it when it is appended alone
                break
            for index, batch in zip(indexes, placed, strict=False):
                batches[index] = batch
            start += min(len(placed) + 1, len(indexes))
        return batches

    def _end_turn(self) -> None:
        """Write the requests of this turn. Requests that cannot be grouped are written alone."""
        self._is_grouping, self._arrived_count = self._arrived_count > 1, 0
        waiting, self._waiting = [waiter for waiter in self._waiting if not waiter.batch.done()], []
        start = 0
        while start < len(waiting):
            start += self._write(_bounded(waiting[start : start + GROUP_COUNT_MAX]))

    def _write(self, group: list[AppendWaiter]) -> int:
        """Write requests up to the first that has to be written alone. Returns the number of requests with a result."""
        batches: list[AppendedBatch | None] = []
        if len(group) > 1:
            try:
                batches += self._pipeline.append_group(
                    [waiter.request for waiter in group], [waiter.born_host for waiter in group]
                )
            except Exception as failure:  # noqa: BLE001 - it is the outcome of each of them
                for waiter in group:
                    waiter.batch.set_exception(failure)
                return len(group)
        if len(batches) < len(group):
            batches.append(None)
        for waiter, batch in zip(group, batches, strict=False):
            waiter.batch.set_result(batch)
        return len(batches)


def _within_group(indexes: list[int], requests: Sequence[bytes]) -> list[int]:
    """Return the first indexes, as many as fit into a piece with their requests."""
    size_bytes = 0
    for number, index in enumerate(indexes):
        size_bytes += len(requests[index])
        if size_bytes > GROUP_SIZE_BYTES_MAX:
            return indexes[:number]
    return indexes


def _bounded(waiting: list[AppendWaiter]) -> list[AppendWaiter]:
    """Return the first requests, as many as fit into a piece."""
    size_bytes = 0
    for number, waiter in enumerate(waiting):
        size_bytes += len(waiter.request)
        if size_bytes > GROUP_SIZE_BYTES_MAX:
            return waiting[:number]
    return waiting
