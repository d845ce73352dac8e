# SPDX-License-Identifier: Apache-2.0
"""What a batch waits for before it is acknowledged, and as what: a durability is a mark of the log.

Invariants: the batch is stored whatever the answer; an answer names no durability that its mark has not reached. Who
waits for the disk shares a sync with all who wait; one that takes too long lowers the durability in the answer.
Callers: the loop that owns the log.
"""

import asyncio
from collections.abc import Callable

from libs.log.watermark import Watermark
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.write.append import AppendedBatch
from services.commitlog.engine.write.marks import Marks

DURABILITY_STORE, DURABILITY_MEMORY, DURABILITY_LOCAL_DISK, DURABILITY_REPLICATED = range(4)


class Acknowledgement:
    """That of one batch. With nothing to wait for it is settled from the start."""

    __slots__ = ("_deadline_s", "_durability", "_reached")

    def __init__(self, durability: int, reached: asyncio.Future[None] | None = None, deadline_s: float = 0.0) -> None:
        self._durability = durability
        self._reached = reached
        self._deadline_s = deadline_s

    @property
    def has_waited(self) -> bool:
        """Whether there was something to wait for."""
        return self._reached is not None

    @property
    def is_settled(self) -> bool:
        """Whether nothing is waited for any more."""
        return self._reached is None or self._reached.done() or _now_s() >= self._deadline_s

    async def settle(self) -> None:
        """Wait until it is settled."""
        if self._reached is not None:
            await asyncio.wait([self._reached], timeout=max(self._deadline_s - _now_s(), 0))

    def durability(self) -> int:
        """Return the durability that was reached when it was settled. Raises StoreSealed."""
        if self._reached is None:
            return self._durability
        if not self._reached.done():
            return DURABILITY_MEMORY
        self._reached.result()
        return self._durability

    def when_reached(self, act: Callable[[], None]) -> None:
        """Call `act` when the mark is there or has failed, however long after the deadline, and at once if it has."""
        if self._reached is None or self._reached.done():
            act()
        else:
            self._reached.add_done_callback(lambda _: act())


class Acknowledgements:
    """Makes the acknowledgements of one log."""

    def __init__(self, marks: Marks, config: CommitLogConfig) -> None:
        memory, disk = (DURABILITY_MEMORY, marks.wrote), (DURABILITY_LOCAL_DISK, marks.flushed)
        self._levels: dict[int, tuple[int, Watermark]] = {
            DURABILITY_STORE: disk if config.flush_mode == "sync" else memory,
            DURABILITY_MEMORY: memory,
            DURABILITY_LOCAL_DISK: disk,
            DURABILITY_REPLICATED: disk,  # without replicas
        }
        self._at_once = {durability: Acknowledgement(durability) for durability, _ in (memory, disk)}
        self._timeout_s = config.sync_timeout_ms / 1000

    def of(self, batch: AppendedBatch) -> Acknowledgement:
        """Return what this batch waits for, at most the sync time-out."""
        durability, mark = self._levels[batch.requested_durability]
        if batch.end_physical_offset <= mark.value:
            return self._at_once[durability]
        return Acknowledgement(durability, mark.soon(batch.end_physical_offset), _now_s() + self._timeout_s)


def _now_s() -> float:
    return asyncio.get_running_loop().time()
