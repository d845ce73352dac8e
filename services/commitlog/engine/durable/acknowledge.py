# SPDX-License-Identifier: Apache-2.0
"""Acknowledgements: batches wait for their durability and are then acknowledged. A durability is a mark of the log.

Invariants: the batch is stored, independent of the answer. An answer names only a durability that its mark has reached,
and REPLICATED only while the in-sync set has another member. All batches that wait for the disk share a sync. If a mark
takes too long, the answer has a lower durability.
Callers: the loop that owns the log.
"""

import asyncio
import functools
from collections.abc import Callable
from typing import NamedTuple

from libs.log.watermark import Watermark
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.write.append import AppendedBatch
from services.commitlog.engine.write.marks import (
    DURABILITY_LOCAL_DISK,
    DURABILITY_MEMORY,
    DURABILITY_REPLICATED,
    DURABILITY_STORE,
    Marks,
)
from services.commitlog.errors import LeaseOver, StoreSealed


class Acknowledgement:
    """The acknowledgement of a batch. Without a wait it is settled from the start, with a known durability."""

    __slots__ = ("_deadline_s", "_is_elected", "_reached", "_told")

    def __init__(
        self,
        told: int | Callable[[], int],
        reached: asyncio.Future[None] | None = None,
        deadline_s: float = 0.0,
        *,
        is_elected: bool = False,
    ) -> None:
        self._told = told
        self._is_elected = is_elected
        self._reached = reached
        self._deadline_s = deadline_s

    @property
    def is_settled(self) -> bool:
        """Whether the wait is over: the mark is reached or failed, or the deadline has passed."""
        return self._reached is None or self._reached.done() or _now_s() >= self._deadline_s

    @property
    def is_late(self) -> bool:
        """Whether the mark is not reached. A settled acknowledgement is late because its wait took too long."""
        return self._reached is not None and not self._reached.done()

    async def settle(self) -> None:
        """Wait until it is settled."""
        if self._reached is not None and not self._reached.done():
            await asyncio.wait([self._reached], timeout=max(self._deadline_s - _now_s(), 0))

    def durability(self) -> int:
        """Return the durability that the batch has reached. Raises StoreSealed and LeaseOver."""
        if self._reached is not None and self._reached.done():
            try:
                self._reached.result()
            except StoreSealed:
                if self._is_elected:  # this log ends, and the next leader may have the batch
                    raise LeaseOver from None
                raise
        return self._told if isinstance(self._told, int) else self._told()

    def when_reached(self, act: Callable[[], None]) -> None:
        """Call `act` when the mark is reached or failed, also after the deadline, or at once if it already is."""
        if self._reached is None or self._reached.done():
            act()
        else:
            self._reached.add_done_callback(lambda _: act())


class _Level(NamedTuple):
    """A durability that a request asks for, with its mark."""

    durability: int
    mark: Watermark
    timeout_s: float


class Acknowledgements:
    """The factory of a log's acknowledgements. `is_shared` returns whether the in-sync set has another member.

    `check` raises when durabilities below REPLICATED may not be acknowledged any more, because another log may lead.
    """

    def __init__(
        self,
        marks: Marks,
        config: CommitLogConfig,
        is_shared: Callable[[], bool] = lambda: False,
        check: Callable[[], None] | None = None,
    ) -> None:
        timeout_s = config.sync_timeout_ms / 1000
        memory = _Level(DURABILITY_MEMORY, marks.wrote, timeout_s)
        disk = _Level(DURABILITY_LOCAL_DISK, marks.flushed, timeout_s)
        replicated = _Level(DURABILITY_REPLICATED, marks.replicated, config.replicate_timeout_ms / 1000)
        store = disk if config.flush_mode == "sync" else memory
        self._levels = {
            DURABILITY_STORE: replicated if marks.is_replicated_at_once else store,
            DURABILITY_MEMORY: memory,
            DURABILITY_LOCAL_DISK: disk,
            DURABILITY_REPLICATED: replicated,
        }
        self._marks = marks
        self._is_shared = is_shared
        self._check = check
        self._at_once = {level.durability: Acknowledgement(level.durability) for level in (memory, disk)}

    def of(self, batch: AppendedBatch) -> Acknowledgement:
        """Return the acknowledgement of this batch. It waits at most for the level's time-out. Raises LeaseOver."""
        level, end = self._levels[batch.requested_durability], batch.end_physical_offset
        if self._check is not None:
            self._check()
        if end <= level.mark.value:
            if self._check is not None:  # checked again when the answer is sent
                return Acknowledgement(lambda: self._reached(level.durability, end))
            return self._at_once.get(level.durability) or Acknowledgement(self._reached(level.durability, end))
        if level.mark is self._marks.replicated:
            self._marks.flushed.hurry(end)
        reached = level.mark.soon(end)
        deadline_s, is_elected = _now_s() + level.timeout_s, self._check is not None
        told = functools.partial(self._reached, level.durability, end)
        return Acknowledgement(told, reached, deadline_s, is_elected=is_elected)

    def _reached(self, asked: int, end: int) -> int:
        """Return the highest durability, up to the requested, of a batch with this end."""
        marks = self._marks
        if asked == DURABILITY_REPLICATED and marks.replicated.value >= end and self._is_shared():
            return DURABILITY_REPLICATED
        if self._check is not None:
            self._check()
        return DURABILITY_LOCAL_DISK if asked > DURABILITY_MEMORY and marks.flushed.value >= end else DURABILITY_MEMORY


def _now_s() -> float:
    return asyncio.get_running_loop().time()
