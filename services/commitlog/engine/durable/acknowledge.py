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
from libs.machine.durations import Durations
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

    __slots__ = ("_began_s", "_durations", "_is_elected", "_reached", "_timeout_s", "_told")

    def __init__(
        self,
        told: int | Callable[[], int],
        reached: asyncio.Future[None] | None = None,
        timeout_s: float = 0.0,
        *,
        is_elected: bool = False,
        durations: Durations | None = None,
    ) -> None:
        """`durations` counts the wait when the acknowledgement is given."""
        self._told = told
        self._is_elected = is_elected
        self._reached = reached
        self._began_s = 0.0 if reached is None else _now_s()
        self._timeout_s = timeout_s
        self._durations = durations

    @property
    def is_settled(self) -> bool:
        """Whether the wait is over: the mark is reached or failed, or the deadline has passed."""
        return self._reached is None or self._reached.done() or self._left_s() <= 0

    @property
    def is_late(self) -> bool:
        """Whether the mark is not reached. A settled acknowledgement is late because its wait took too long."""
        return self._reached is not None and not self._reached.done()

    async def settle(self) -> None:
        """Wait until it is settled."""
        if self._reached is not None and not self._reached.done():
            await asyncio.wait([self._reached], timeout=max(self._left_s(), 0))

    def _left_s(self) -> float:
        return self._began_s + self._timeout_s - _now_s()

    def durability(self) -> int:
        """Return the durability that the batch has reached. Raises StoreSealed and LeaseOver."""
        if self._durations is not None:
            self._durations.count(_now_s() - self._began_s)
            self._durations = None
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
    durations: Durations
    """The waits of the batches for this durability."""


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
        memory = _Level(DURABILITY_MEMORY, marks.wrote, timeout_s, Durations())
        disk = _Level(DURABILITY_LOCAL_DISK, marks.flushed, timeout_s, Durations())
        replicate_timeout_s = config.replicate_timeout_ms / 1000
        replicated = _Level(DURABILITY_REPLICATED, marks.replicated, replicate_timeout_s, Durations())
        self.durations: dict[tuple[str, ...], Durations] = {
            ("memory",): memory.durations, ("local_disk",): disk.durations, ("replicated",): replicated.durations
        }  # fmt: skip
        """Times from the write of a batch to its acknowledgement, by the durability that it waited for."""
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
            level.durations.count_none()
            if self._check is not None:  # checked again when the answer is sent
                return Acknowledgement(lambda: self._reached(level.durability, end))
            return self._at_once.get(level.durability) or Acknowledgement(self._reached(level.durability, end))
        if level.mark is self._marks.replicated:
            self._marks.flushed.hurry(end)
        reached = level.mark.soon(end)
        told = functools.partial(self._reached, level.durability, end)
        is_elected = self._check is not None
        return Acknowledgement(told, reached, level.timeout_s, is_elected=is_elected, durations=level.durations)

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
