# SPDX-License-Identifier: Apache-2.0
"""CommitLog: the life of a log in a process, its start and its stop.

States: created -> `open` -> in use -> `close`, and perhaps `open` again. While it is in use, callers use the parts of
the OpenLog. A failed write, commit or sync seals the log: reads continue, appends do not, and `on_failure` is called so
that the process can end.
Callers: the asyncio loop that called `open`; worker threads only sync, delete and write small files.
Not handled: protobuf, streams and their limits (rpc).
"""

import asyncio
from collections.abc import Callable, Container
from dataclasses import replace
from functools import partial

from libs.formats.records.host import Host
from libs.formats.state.replication import RoleName
from libs.machine.clock import Clock
from libs.machine.fs import Fs
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.replicate.ledger import BY_HAND, ElectedTerm
from services.commitlog.engine.replicate.steps import LeaderAt
from services.commitlog.engine.start.cut import Cut
from services.commitlog.engine.start.meter import RecoveryMeter
from services.commitlog.engine.start.opening import recover_store
from services.commitlog.engine.write.gate import Reason


class CommitLog:
    """A log that can be opened and closed. `log` is None before the recovery and after `close`."""

    def __init__(
        self, config: CommitLogConfig, fs: Fs, clock: Clock, *, on_failure: Callable[[BaseException], None]
    ) -> None:
        self.config = config
        self.started_at_ms = clock.now_ms()
        self.meter = RecoveryMeter(clock)
        self.is_open = False
        self.log: OpenLog | None = None
        self._fs = fs
        self._clock = clock
        self._on_failure = on_failure

    async def open(
        self,
        listen_host: Host,
        *,
        idle: Container[str] = (),
        leader: LeaderAt | None = None,
        cut: Cut | None = None,
        term: ElectedTerm = BY_HAND,
        role: RoleName | None = None,
    ) -> OpenLog:
        """Recover the log and start its loops, except loops with a name in `idle`. See `OpenLog`.

        A follower first gives up the bytes of `cut`. `role` replaces the setting. Raises the errors of `recover_store`.
        """
        if role is not None:
            self.config = replace(self.config, role=role)
        store = await asyncio.to_thread(
            recover_store, self._fs, self.config, self._clock, self.meter, cut=cut, elected=term.elected
        )
        log = self.log = OpenLog(
            store,
            self._fs,
            self.config,
            self._clock,
            listen_host=listen_host,
            on_failure=self._on_failure,
            leader=leader,
            term=term,
        )
        await asyncio.to_thread(log.topics.begins.settle, log.chain, log.topics.store.topics)
        log.topics.begins.on_change = log.followers.wake
        await log.disk.look()
        if log.in_sync is not None:
            await log.identity.note_role(log.checkpoint.save)
            await log.identity.promise(log.epochs.number)
            log.in_sync.watch()
        for loop in (*log.syncers, *log.keepers):
            if loop.name not in idle:
                loop.start()
        self.is_open = True
        return log

    async def close(self) -> None:
        """Sync, write the small files, and mark the stop as clean, unless the store is sealed or was never open."""
        log, self.log, self.is_open = self.log, None, False
        if log is None:
            return
        log.gate.put(Reason.STOPPING, holds=True)
        try:
            for loop in log.keepers:
                await loop.stop()
            await log.topics.finish()
            await log.segments.finish()
            for loop in log.syncers:
                await loop.stop()
            await self._finish(log)
        finally:
            await log.small_files.write(log.small_files.ballast.occupy)
            await log.abandon()
            await asyncio.to_thread(log.chain.close)
            log.files.release()

    async def take_leave(self) -> None:
        """Announce an orderly stop to the leader, if this log follows a leader."""
        if self.log is not None and self.log.follower is not None:
            await self.log.follower.take_leave()

    @staticmethod
    async def _finish(log: OpenLog) -> None:
        """Do the last steps of a clean stop."""
        if log.marks.flushed.value < log.marks.wrote.value and not log.seal.is_set:
            await log.flusher.run()
        if log.seal.is_set:
            return
        assert log.marks.flushed.value == log.chain.max_physical_offset
        await log.small_files.write(log.small_files.ballast.give_way)
        await log.snapshot.save()
        await log.topics.store.save()
        await log.checkpoint.save()
        if log.follower is None:  # a start as a leader after a follower begins an epoch, as after a crash
            is_behind = log.checkpoint.are_queues_behind
            await log.small_files.write(partial(log.files.mark_clean, is_behind=is_behind))
