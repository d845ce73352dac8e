# SPDX-License-Identifier: Apache-2.0
"""Link: the CommitLog engine as the Indexer's LogSource and RecordSource, without gRPC in between.

It has the effect of `services/commitlog/rpc/log_servicer.py` and `services/indexer/rpc` together: the same calls of the
engine, the same bytes of columns, the same errors. Invariants: the log's code runs in the log's process, the Indexer's
in the Indexer's; a stream ends with DependencyUnavailable when the process that it came from is gone; a step may arrive
late, when the log has already changed or died.
"""

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Container, Coroutine, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from libs.formats.epoch import Epoch
from libs.formats.records import dispatch_columns
from libs.formats.records.dispatch_columns import DispatchBatch, Handshake, Heartbeat
from libs.formats.state.log_history import QueueEnd
from libs.requests.errors import DependencyUnavailable, RecordDamaged, ServiceError
from libs.segments.errors import StoreError
from services.commitlog import errors as log_errors
from services.commitlog.engine.follow import queue_offset_check as checks
from services.commitlog.engine.follow.dispatch import TailStep
from services.commitlog.engine.keep.checkpoint import IndexerReport
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.write.gate import Reason
from services.indexer import errors
from services.indexer.engine.log.source import LogRole, ProgressReport, RecordBlock
from tests.crash.sim.process import Killed, Process

T = TypeVar("T")
READ_SIZE_BYTES_MAX = 1 << 16
SERVICE = "commitlog"


class Server:
    """A CommitLog that serves. Its `groups` take appends as they come from the network: all of a turn together."""

    def __init__(self, log: OpenLog, process: Process) -> None:
        self.log = log
        self.process = process
        self.groups = log.groups


@dataclass(frozen=True, slots=True)
class Listener:
    """Hears the log: how far readers may read, and faults."""

    confirmed: Callable[[int], None] = lambda _physical_offset: None
    wrong: Callable[[str], None] = lambda _text: None
    begun_again: Container[tuple[str, int]] = ()
    """Queues whose numbers were dropped: the Indexer's ends may be others."""


class Link:
    """Connects to the log that `server` returns at the moment."""

    def __init__(
        self,
        server: Callable[[], Server | None],
        chance: random.Random,
        *,
        record_count_max: int,
        delay_ms_max: int,
        listener: Listener,
    ) -> None:
        self._server = server
        self._chance = chance
        self._record_count_max = record_count_max
        self._delay_ms_max = delay_ms_max
        self._listener = listener

    async def follow(
        self, start_physical_offset: int, epoch: int, epochs: Sequence[Epoch] = ()
    ) -> AsyncGenerator[Handshake | DispatchBatch | Heartbeat, None]:
        """See LogSource."""
        server = self._connect()
        log = server.log

        async def shake() -> Handshake:
            shake = log.followers.handshake(start_physical_offset, epoch, epochs)
            steps.append(
                log.followers.tail(
                    start_physical_offset=shake.start_physical_offset, record_count_max=self._record_count_max
                ).steps()
            )
            return Handshake(
                shake.common_end_physical_offset,
                shake.epoch,
                shake.min_physical_offset,
                shake.confirmed_physical_offset,
                shake.history_id,
                epochs=tuple(shake.epochs),
            )

        steps: list[AsyncGenerator[TailStep, None]] = []
        yield await self._call(server, shake)
        try:
            while True:
                yield await self._call(server, lambda: self._next_step(log, steps[0]))
        finally:
            if not server.process.is_dead:
                await self._call(server, lambda: _closed(steps[0]))

    async def report(self, report: ProgressReport) -> LogRole:
        """See LogSource."""
        server = self._connect()

        async def take() -> None:
            server.log.followers.report(
                IndexerReport(
                    report.indexed_physical_offset,
                    report.flushed_physical_offset,
                    report.queue_flushed_time_ms,
                    report.index_flushed_time_ms,
                    report.epoch,
                    report.history_id,
                )
            )

        await self._call(server, take)
        return LogRole()

    async def check_queue_offsets(
        self, pages: AsyncGenerator[list[QueueEnd], None], *, epoch: int, history_id: str, is_complete: bool
    ) -> int:
        """See LogSource."""
        server = self._connect()
        found = [[checks.QueueEnd(*msgspec.structs.astuple(end)) for end in page] async for page in pages]

        async def compare() -> int:
            check = server.log.queue_offsets
            server.log.followers.check(epoch, history_id)
            are_unknown = server.log.gate.holds(Reason.QUEUE_OFFSETS_UNKNOWN)
            verdicts = [await check.compare(page) for page in found]
            check.finish(is_complete=is_complete)
            contradicting_count = sum(verdict.contradicting_count for verdict in verdicts)
            may_differ = any((end.topic, end.queue_id) in self._listener.begun_again for page in found for end in page)
            is_raised = any(verdict.raised_count for verdict in verdicts)
            if not may_differ and (contradicting_count or (is_raised and not are_unknown)):
                self._listener.wrong(f"the log's queue offsets are not the Indexer's: {found}, {verdicts}")
            return contradicting_count

        return await self._call(server, compare)

    async def has_topic(self, topic: str) -> bool:
        """See RecordSource."""
        return self._connect().log.topics.find(topic) is not None

    async def read(
        self, physical_offsets: NDArray[np.int64], record_sizes: NDArray[np.int32] | None = None
    ) -> RecordBlock:
        """See RecordSource."""
        server = self._connect()
        offsets = physical_offsets.tolist()
        sizes = [] if record_sizes is None else record_sizes.tolist()

        async def read() -> RecordBlock:
            batch = server.log.reader.read(offsets, sizes, size_bytes_max=READ_SIZE_BYTES_MAX)
            records = b"".join(piece for run in batch.runs for piece in run.raw())
            found = np.array(batch.sizes, np.int32)
            ends = np.cumsum(found, dtype=np.int64)
            return RecordBlock(records, ends - found, found, server.log.chain.min_physical_offset)

        return await self._call(server, read)

    def _connect(self) -> Server:
        server = self._server()
        if server is None:
            raise DependencyUnavailable(SERVICE, "nobody listens")
        return server

    async def _next_step(self, log: OpenLog, steps: AsyncGenerator[TailStep, None]) -> DispatchBatch | Heartbeat:
        """The next step as it would come off the wire."""
        step = await anext(steps)
        if step.columns is None and not step.response:
            heartbeat = Heartbeat(log.marks.visible.value, log.chain.min_physical_offset)
            self._listener.confirmed(heartbeat.confirmed_physical_offset)
            return heartbeat
        self._listener.confirmed(step.end_physical_offset)
        data = step.response or dispatch_columns.encode(
            step.columns, step.start_physical_offset, step.end_physical_offset
        )
        batch = dispatch_columns.decode(data)
        assert isinstance(batch, DispatchBatch)
        return batch

    async def _call(self, server: Server, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Run a call in the log's process; its answer may take its time, and be lost with the log."""
        await self._delay()
        if server.process.is_dead:
            raise DependencyUnavailable(SERVICE, "the connection broke")
        task = server.process.start(work())
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError:
            task.cancel()
            await asyncio.wait([task])
            raise
        if task.cancelled():
            raise DependencyUnavailable(SERVICE, "the connection broke")
        error = task.exception()
        if error is not None:
            raise _translated(error)
        await self._delay()
        return task.result()

    async def _delay(self) -> None:
        if self._delay_ms_max and self._chance.random() < 0.3:
            await asyncio.sleep(self._chance.randint(0, self._delay_ms_max) / 1000)


async def _closed(steps: AsyncGenerator[TailStep, None]) -> None:
    await steps.aclose()


def _translated(error: BaseException) -> BaseException:
    """The error that the table of `services/indexer/rpc/log/errors.py` makes of an error of the log."""
    match error:
        case RecordDamaged():
            return error
        case log_errors.NotARecord():
            return errors.NotARecord(error.value)
        case log_errors.BeyondMaxOffset():
            return errors.LogEndsEarlier(SERVICE, str(error))
        case ServiceError() | StoreError() | OSError() | Killed():
            return DependencyUnavailable(SERVICE, f"{type(error).__name__}: {error}")
    return error
