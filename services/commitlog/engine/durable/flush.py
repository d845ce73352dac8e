# SPDX-License-Identifier: Apache-2.0
"""Flusher: makes the log durable, in the background and for those who wait for it.

Invariants: one sync at a time, in a worker thread; whoever arrives while it runs shares the next one (group commit);
after the first failed sync nothing is ever acknowledged as durable again, and all who wait are told so. What the pool
has collected is committed before each sync, so that the store time of a sync covers all that was written before it.
With synchronous flushing readers see what is synced, so whatever is written is synced at once, whether somebody waits
for it or not.
Callers: the loop that owns the log. The flushed offset covers whole batches only, across segments and without a hole.
Rules: docs/formats/store_checkpoint.md; RocketMQ's counterparts are GroupCommitService, FlushRealTimeService and
FlushDiskWatcher.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from libs.machine.clock import Clock
from libs.machine.fs import PAGE_SIZE_BYTES
from libs.segments.chain import SegmentChain
from libs.segments.errors import SyncFailed
from services.commitlog.config import CommitLogConfig
from services.commitlog.errors import StoreSealed

_log = logging.getLogger(__name__)


class Flusher:
    """Background flush and group commit of one chain.

    `on_flushed` hears of each sync that moved the flushed offset, with the store time of the last record that it is
    known to cover. `on_sealed` hears of the first failure, once.
    """

    def __init__(
        self,
        chain: SegmentChain,
        clock: Clock,
        config: CommitLogConfig,
        *,
        last_store_time_ms: Callable[[], int],
        on_flushed: Callable[[int], None],
        on_sealed: Callable[[Exception], None],
    ) -> None:
        self.flushed_physical_offset = chain.flushed_physical_offset
        self.sync_count = 0
        self._chain = chain
        self._clock = clock
        self._config = config
        self._last_store_time_ms = last_store_time_ms
        self._on_flushed = on_flushed
        self._on_sealed = on_sealed
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._wake = asyncio.Event()
        self._thorough_at_s = 0.0
        self._is_sealed = False
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="sync")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to flush. Once."""
        assert self._task is None
        self._thorough_at_s = self._clock.monotonic_s() + self._config.flush_thorough_interval_ms / 1000
        self._task = asyncio.create_task(self._run(), name="flush")
        self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """Sync what is left, unless the store is sealed, and end. May be repeated."""
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        if not self._is_sealed and self._chain.max_physical_offset > self.flushed_physical_offset:
            await self._sync()
        self._executor.shutdown()

    def flushed(self, end_physical_offset: int) -> asyncio.Future[None]:
        """A future that is done when all bytes below this offset are durable. Raises StoreSealed, now or later.

        Calls come with offsets that never go back. Whoever gives up waiting leaves the future alone.
        """
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if end_physical_offset <= self.flushed_physical_offset:
            future.set_result(None)
        elif self._is_sealed:
            raise StoreSealed
        else:
            assert not self._waiters or self._waiters[-1][0] <= end_physical_offset
            self._waiters.append((end_physical_offset, future))
            self._wake.set()
        return future

    def wake(self) -> None:
        """Look now whether there is something to sync."""
        self._wake.set()

    async def sync_now(self) -> None:
        """Wait until everything that is written now is durable. Raises StoreSealed."""
        await self.flushed(self._chain.max_physical_offset)

    async def _run(self) -> None:
        while not self._is_sealed:
            try:
                async with asyncio.timeout(self._config.flush_interval_ms / 1000):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            if self._waiters or self._is_due():
                await self._sync()

    def _ended(self, task: asyncio.Task[None]) -> None:
        """A flush that died of a bug must not go unseen: nobody would be told that nothing is durable any more."""
        if not task.cancelled() and (error := task.exception()) is not None:
            assert isinstance(error, Exception)
            self.seal(error)

    def _is_due(self) -> bool:
        """Whether the background flush has something to do; counts page numbers as RocketMQ's isAbleToFlush does."""
        written, flushed = self._chain.committed_physical_offset, self.flushed_physical_offset
        if written == flushed:
            return False
        if self._config.flush_mode == "sync":
            return True
        size_bytes = self._chain.segment_size_bytes
        if self._clock.monotonic_s() >= self._thorough_at_s or written // size_bytes > flushed // size_bytes:
            return True
        return written // PAGE_SIZE_BYTES - flushed // PAGE_SIZE_BYTES >= self._config.flush_pages_min

    async def _sync(self) -> None:
        covered_time_ms = self._last_store_time_ms()
        loop = asyncio.get_running_loop()
        try:
            flushed = await asyncio.shield(loop.run_in_executor(self._executor, self._commit_and_sync))
        except (SyncFailed, OSError) as error:
            self.seal(error)
            return
        self.sync_count += 1
        self._thorough_at_s = self._clock.monotonic_s() + self._config.flush_thorough_interval_ms / 1000
        if flushed > self.flushed_physical_offset:
            self.flushed_physical_offset = flushed
            self._on_flushed(covered_time_ms)
        while self._waiters and self._waiters[0][0] <= flushed:
            future = self._waiters.popleft()[1]
            if not future.done():
                future.set_result(None)

    def _commit_and_sync(self) -> int:
        self._chain.commit()
        return self._chain.sync()

    def seal(self, cause: Exception) -> None:
        """Promise nothing from now on, because a sync or a commit failed; the first cause counts."""
        if self._is_sealed:
            return
        error = cause if isinstance(cause, SyncFailed) else self._sync_failed(cause)
        _log.error("%s", error)
        self._is_sealed = True
        waiters, self._waiters = self._waiters, deque()
        for _, future in waiters:
            if not future.done():
                future.set_exception(StoreSealed())
                future.exception()  # whoever gave up waiting does not ask for it
        self._on_sealed(error)

    def _sync_failed(self, cause: Exception) -> SyncFailed:
        """What could not even begin, such as mapping a file, has failed as well."""
        error = SyncFailed(path=self._chain.directory, position=self.flushed_physical_offset, reason=str(cause))
        error.__cause__ = cause
        return error
