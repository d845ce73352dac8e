# SPDX-License-Identifier: Apache-2.0
"""A leader and a follower whose tails want each scanned piece, and a tail that reads in the background."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from typing import Any

from libs.formats.records import dispatch_columns
from libs.formats.records.dispatch_columns import DispatchBatch
from libs.kernel.scan import scan_cy
from libs.kernel.scan.scan_columns import ScanColumns
from services.commitlog.engine.follow.dispatch import TailStep
from services.commitlog.engine.open_log import OpenLog
from tests.support.commitlog import Machine, append, message
from tests.support.patience import eventually
from tests.support.replication import Wire, caught_up

DELAYS, DELAYS_MS = "2s 3m 1d", (2_000, 180_000, 86_400_000)


@contextlib.asynccontextmanager
async def two(**changes: Any) -> AsyncIterator[tuple[OpenLog, OpenLog, Wire, Machine, Machine]]:
    """A leader and a follower whose tails want each scanned piece, of any size. Both have a message."""
    changes = {"dispatch_size_bytes_min": 0, "message_delay_level": DELAYS, **changes}
    one, other = Machine(**changes), Machine(**changes)
    leader = await one.start()
    wire = Wire(leader)
    follower = await other.start(leader=wire.at(), role="slave", replica_id="b", reconnect_ms_max=100)
    await append(leader, message())
    await caught_up(follower, leader)
    try:
        yield leader, follower, wire, one, other
    finally:
        await other.stop(follower)
        await one.stop(leader)
    assert one.failures == other.failures == []


def rows(batch: DispatchBatch) -> Iterator[tuple[Any, ...]]:
    """The records of a batch with all their values, whatever the numbers of their queues."""
    key_at = 0
    for at in range(len(batch.physical_offsets)):
        queue, key_end = int(batch.queue_indexes[at]), key_at + int(batch.key_counts[at])
        yield (
            int(batch.physical_offsets[at]),
            int(batch.record_sizes[at]),
            None if queue < 0 else (*batch.queues[queue], queue in batch.batch_queues),
            int(batch.queue_offsets[at]),
            int(batch.tags_codes[at]),
            int(batch.store_times_ms[at]),
            batch.key_hashes[key_at:key_end].tolist(),
        )
        key_at = key_end


class Tail:
    """A tail that reads in the background, and all that it has sent."""

    def __init__(self, log: OpenLog, *, count_max: int = 1000) -> None:
        self.rows: list[tuple[Any, ...]] = []
        self.at = 0
        self.shared_count = 0
        """Number of steps that were not scanned by the tail."""
        self._log = log
        tail = log.followers.tail(start_physical_offset=0, record_count_max=count_max)
        self._reading = asyncio.create_task(self._read(tail.steps()))

    async def _read(self, steps: AsyncGenerator[TailStep, None]) -> None:
        async with contextlib.aclosing(steps):
            async for step in steps:
                start, end = step.start_physical_offset, step.end_physical_offset
                assert start == self.at
                if step.response:
                    self.shared_count += 1
                    assert step.response == scanned_anew(self._log, start, end)
                if step.response or step.columns is not None:
                    batch = dispatch_columns.decode(step.response or dispatch_columns.encode(step.columns, start, end))
                    assert isinstance(batch, DispatchBatch)
                    assert (batch.start_physical_offset, batch.end_physical_offset) == (start, end)
                    self.rows += rows(batch)
                self.at = end

    async def end(self) -> None:
        """Wait until it has all visible records, and end it."""
        await eventually(lambda: self._reading.done() or self.at == self._log.marks.visible.value)
        await self.leave()

    async def leave(self) -> None:
        """End it where it is."""
        self._reading.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._reading


def scanned_anew(log: OpenLog, start: int, end: int) -> bytes:
    """The response of a scan of the log's own bytes."""
    segment = log.chain.find(start)
    base, columns = segment.base_physical_offset, ScanColumns(10_000, 40_000, DELAYS_MS)
    scan_cy.scan(segment.buffer, start - base, end - base, base, True, columns)
    assert base + columns.end_position == end
    return dispatch_columns.encode(columns, start, end)
