# SPDX-License-Identifier: Apache-2.0
"""CommitLoop: copies what the pool has collected into the files, in the background.

Invariants: one commit of this loop at a time, in a worker thread (the flusher commits too, before each sync; the chain
makes them take turns); after a failed commit the store is sealed as after a failed sync.
Callers: the loop that owns the log; only with a pool. Copying is pwrite in a thread and not a store into the mapping:
that would hold the GIL, and so the event loop, for all of the copy, and end the process where the disk refuses.
RocketMQ's counterpart is CommitRealTimeService.
"""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from libs.machine.clock import Clock
from libs.machine.fs import PAGE_SIZE_BYTES
from libs.segments.chain import SegmentChain
from services.commitlog.config import CommitLogConfig
from services.commitlog.errors import StoreSealed


class CommitLoop:
    """Background commit of one chain.

    `on_committed` hears of each commit that moved the committed offset, `on_failed` of the one that failed.
    """

    def __init__(
        self,
        chain: SegmentChain,
        clock: Clock,
        config: CommitLogConfig,
        *,
        on_committed: Callable[[], None],
        on_failed: Callable[[Exception], None],
    ) -> None:
        self._chain = chain
        self._clock = clock
        self._config = config
        self._on_committed = on_committed
        self._on_failed = on_failed
        self._waiters: list[asyncio.Future[None]] = []
        self._wake = asyncio.Event()
        self._thorough_at_s = 0.0
        self._executor = ThreadPoolExecutor(max_workers=1, thread_name_prefix="commit")
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to commit. Once."""
        assert self._task is None
        self._thorough_at_s = self._clock.monotonic_s() + self._config.commit_thorough_interval_ms / 1000
        self._task = asyncio.create_task(self._run(), name="commit")
        self._task.add_done_callback(self._ended)

    async def stop(self) -> None:
        """End, without a last commit: the flusher's last sync does that. May be repeated."""
        if self._task is not None:
            task, self._task = self._task, None
            task.cancel()
            await asyncio.wait([task])
        await asyncio.to_thread(self._executor.shutdown)

    async def wait(self) -> None:
        """Commit now, and return after it. Raises StoreSealed when no commit will come any more."""
        if self._task is None or self._task.done():
            raise StoreSealed
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append(waiter)
        self._wake.set()
        await waiter

    async def _run(self) -> None:
        while True:
            try:
                async with asyncio.timeout(self._config.commit_interval_ms / 1000):
                    await self._wake.wait()
            except TimeoutError:
                pass
            self._wake.clear()
            if self._waiters or self._is_due():
                await self._commit()

    async def _commit(self) -> None:
        before = self._chain.committed_physical_offset
        waiters, self._waiters = self._waiters, []
        try:
            await asyncio.shield(asyncio.get_running_loop().run_in_executor(self._executor, self._chain.commit))
        except BaseException:
            self._waiters += waiters
            raise
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)
        self._thorough_at_s = self._clock.monotonic_s() + self._config.commit_thorough_interval_ms / 1000
        if self._chain.committed_physical_offset > before:
            self._on_committed()

    def _is_due(self) -> bool:
        """Whether there is enough to copy; counts page numbers as RocketMQ's isAbleToCommit does."""
        written, committed = self._chain.max_physical_offset, self._chain.committed_physical_offset
        if written == committed:
            return False
        size_bytes = self._chain.segment_size_bytes
        if self._clock.monotonic_s() >= self._thorough_at_s or written // size_bytes > committed // size_bytes:
            return True
        return written // PAGE_SIZE_BYTES - committed // PAGE_SIZE_BYTES >= self._config.commit_pages_min

    def _ended(self, task: asyncio.Task[None]) -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            assert isinstance(error, Exception)
            self._on_failed(error)
        for waiter in self._waiters:
            if not waiter.done():
                waiter.set_exception(StoreSealed())
