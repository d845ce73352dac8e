# SPDX-License-Identifier: Apache-2.0
"""A CommitLog engine on a disk in memory whose calls are counted, and ways to let its store grow."""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any

from services.commitlog.engine.open_log import OpenLog
from tests.cost.counting_fs import CountingFs
from tests.support.commitlog import Machine, append, fill, message

BODY = bytes(8_000)
TOPIC = "orders"


class CountedMachine(Machine):
    """A Machine with a CountingFs."""

    fs: CountingFs

    def __init__(self, **config: Any) -> None:
        super().__init__(**config)
        self.fs = CountingFs(self.fs)

    @contextlib.asynccontextmanager
    async def running(self, **changes: Any) -> AsyncIterator[OpenLog]:
        """Open the store for a block, after its own topics were written: their files are not counted later."""
        async with super().running(**changes) as log:
            await log.topics.create_internal_topics()
            await log.topics.finish()
            yield log


Growth = Callable[[OpenLog], Awaitable[None]]
"""Adds something to a store."""


async def nothing(log: OpenLog) -> None:
    """Leave the store small."""
    del log


async def many_topics(log: OpenLog) -> None:
    """A thousand more topics, each with a message."""
    for names in _in_parts([f"topic-{number}" for number in range(1_000)], 250):
        await append(log, *(message(topic=name) for name in names))


async def many_segments(log: OpenLog) -> None:
    """Twenty segments."""
    await fill(log, 20, BODY)


async def high_queue_offset(log: OpenLog) -> None:
    """A queue that had a million messages."""
    log.topics.table.set_next_queue_offset(TOPIC.encode(), 0, 1_000_000)


async def begin_segment(log: OpenLog) -> None:
    """Let the log begin a segment, so that later records fit into it, and end the snapshots that this wakes."""
    await fill(log, len(log.chain.segments) + 1, BODY)
    await log.snapshot.loop.stop()
    await log.snapshot.save()


def _in_parts(names: list[str], size: int) -> Iterator[list[str]]:
    return (names[start : start + size] for start in range(0, len(names), size))
