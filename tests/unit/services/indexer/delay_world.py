# SPDX-License-Identifier: Apache-2.0
"""The world of the tests of delayed messages: a fake log and its front, a disk and a clock in memory."""

import asyncio
import contextlib
from collections.abc import AsyncIterator

from libs.formats import store_layout
from libs.formats.config import delay_offsets_json
from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs
from services.indexer.engine.deliver.delay_delivery import DelayDelivery
from services.indexer.engine.indexer import Indexer
from tests.support.fake_log import FakeLog
from tests.support.fake_sink import FakeSink
from tests.support.indexer import DATA_DIR, running

PATH = DATA_DIR / store_layout.DELAY_OFFSETS


class World:
    """A log, a disk and a clock, which outlive the Indexers that a test runs on them."""

    def __init__(self) -> None:
        self.log = FakeLog(step_ms=0)
        self.sink = FakeSink(self.log)
        self.fs = MemoryFs()
        self.clock = ManualClock()

    @contextlib.asynccontextmanager
    async def delivering(self) -> AsyncIterator[tuple[Indexer, DelayDelivery]]:
        """An Indexer that follows the log and delivers delayed messages, stopped in order at the end."""
        async with running(self.log, self.fs, clock=self.clock, sink=self.sink) as indexer:
            assert indexer.follow.delivery is not None
            yield indexer, indexer.follow.delivery

    def offsets(self) -> dict[int, int]:
        """The offsets in the file, by level."""
        return delay_offsets_json.loads(self.fs.read(PATH).decode()).offsets if self.fs.exists(PATH) else {}

    def write_offsets(self, text: str) -> None:
        """Put a file where the Indexer looks for it."""
        self.fs.make_directory(PATH.parent)
        self.fs.write_atomic(PATH, text.encode())


async def settle(rounds: int = 10) -> None:
    """Give all loops time for some steps, so that a forbidden step could have happened."""
    await asyncio.sleep(0.003 * rounds)
