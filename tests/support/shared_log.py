# SPDX-License-Identifier: Apache-2.0
"""Indexers that follow copies of a log, each on its own disk, where a single copy leads."""

import contextlib
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from libs.formats.epoch import Epoch
from libs.formats.records.dispatch_columns import DispatchBatch, Handshake, Heartbeat
from libs.formats.state.log_history import QueueEnd
from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs
from libs.requests.errors import DependencyUnavailable
from services.indexer.config import IndexerConfig
from services.indexer.engine.build import build
from services.indexer.engine.indexer import Indexer
from services.indexer.engine.log.source import LogRole, ProgressReport, RecordBlock
from services.indexer.errors import GroupsUnknown
from tests.support.fake_log import FakeLog
from tests.support.fake_sink import FakeSink
from tests.support.indexer import SMALL
from tests.support.patience import eventually

QUICK = replace(SMALL, share_interval_ms=10, consumer_offset_interval_ms=10)


@dataclass(slots=True)
class LogCopy:
    """LogSource and RecordSource of a log, seen at a copy of it."""

    log: FakeLog
    log_role: LogRole
    is_silent: bool = False
    """Whether it refuses reports."""

    def follow(
        self, start_physical_offset: int, epoch: int, epochs: Sequence[Epoch] = ()
    ) -> AsyncGenerator[Handshake | DispatchBatch | Heartbeat, None]:
        """See LogSource."""
        return self.log.follow(start_physical_offset, epoch, epochs)

    async def report(self, report: ProgressReport) -> LogRole:
        """See LogSource."""
        await self.log.report(report)
        if self.is_silent or report.epoch != self.log.epoch:
            raise DependencyUnavailable("commitlog", "STALE_EPOCH")
        return self.log_role

    async def check_queue_offsets(
        self, pages: AsyncGenerator[list[QueueEnd], None], *, epoch: int, history_id: str, is_complete: bool
    ) -> int:
        """See LogSource."""
        return await self.log.check_queue_offsets(pages, epoch=epoch, history_id=history_id, is_complete=is_complete)

    async def read(
        self, physical_offsets: NDArray[np.int64], record_sizes: NDArray[np.int32] | None = None
    ) -> RecordBlock:
        """See RecordSource."""
        return await self.log.read(physical_offsets, record_sizes)

    async def has_topic(self, topic: str) -> bool:
        """See RecordSource."""
        return await self.log.has_topic(topic)


@dataclass(slots=True)
class Side:
    """A copy, and the disk of its Indexer. Both outlive the Indexers that run on them."""

    copy: LogCopy
    sink: FakeSink
    clock: ManualClock
    fs: MemoryFs = field(default_factory=MemoryFs)
    config: IndexerConfig = QUICK

    @contextlib.asynccontextmanager
    async def running(self, *, is_killed: bool = False) -> AsyncIterator[Indexer]:
        """Run an Indexer that follows. It is stopped in order, or ended without its last steps."""
        log = self.copy.log
        indexer = build(
            self.config, self.fs, self.clock,
            source=self.copy, records=self.copy, on_failure=log.failures.append, sink=self.sink,
        )  # fmt: skip
        indexer.open()
        indexer.start()
        try:
            await eventually(lambda: indexer.follow.states.heard.is_set() and bool(log.reports))
            yield indexer
        finally:
            indexer.drain()
            await (indexer.abandon() if is_killed else indexer.close())


class Copies:
    """A log with two copies: `leader` and `follower`, which may change places."""

    def __init__(self) -> None:
        self.log = FakeLog(step_ms=0)
        self.log.tells_epochs = True
        self.sink = FakeSink(self.log)
        self.clock = ManualClock()
        self.leader = self.side(is_leader=True)
        self.follower = self.side(is_leader=False)

    @property
    def copy_count(self) -> int:
        """How often the whole state was copied into the log."""
        parts = [record.copy for record in self.sink.shared if record.copy is not None]
        return sum(part.index == 0 for part in parts)

    def side(self, *, is_leader: bool) -> Side:
        """Return a further copy, whose Indexer has an empty disk."""
        return Side(LogCopy(self.log, LogRole(is_leader, is_replicated=True)), self.sink, self.clock)

    def change_places(self) -> None:
        """Make the follower the leader, in a new epoch, and the leader the follower."""
        self.leader, self.follower = self.follower, self.leader
        self.leader.copy.log_role = LogRole(is_leader=True, is_replicated=True)
        self.follower.copy.log_role = LogRole(is_leader=False, is_replicated=True)
        self.log.lose_tail(self.log.end_physical_offset)


def found(indexer: Indexer, group: str = "g", topic: str = "T", queue_id: int = 0) -> int | None:
    """Return the Indexer's answer."""
    indexer.follow.shared_state.check_known()
    return indexer.groups.find(group, topic, queue_id)


def knows(indexer: Indexer, expected: int | None, group: str = "g") -> bool:
    """Whether the Indexer knows its groups and has this offset."""
    with contextlib.suppress(GroupsUnknown):
        return found(indexer, group) == expected
    return False
