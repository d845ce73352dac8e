# SPDX-License-Identifier: Apache-2.0
"""World: a machine or two in memory with the real engines of CommitLog and Indexer on them, and their model.

A world has a disk for the log and a disk for the indexes, which may be the same. A power failure hits a disk, and ends
the services that run there. Methods start, stop, kill and cut; clients' calls are in `actions`, checks are in `checks`.
Invariants: after `start_log` the records that the log shows were compared with the model; everything depends on the
setup and on the random source of the loop.
"""

import asyncio
import contextlib
import random
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from libs.formats.records.host import Host
from libs.machine import failpoints
from libs.machine.testing.memory_fs import MemoryFs, PowerCut
from libs.machine.workers import using
from libs.segments.errors import SegmentUnreadable, StoreFull, SyncFailed
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.commit_log import CommitLog
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.errors import StoreSealed
from services.indexer.config import IndexerConfig
from services.indexer.engine.build import build
from services.indexer.engine.follow.reput_state import ReputState
from services.indexer.engine.indexer import Indexer
from tests.crash.sim.link import Link, Listener, Server
from tests.crash.sim.loop import SimulatedLoop
from tests.crash.sim.model import Broken, Model, expect
from tests.crash.sim.process import Killed, Process, check_alive
from tests.crash.sim.stage import SimulatedClock, Stage
from tests.crash.sim.topics import KnownTopics
from tests.crash.sim.writers import Writers
from tests.support.commitlog import synced

T = TypeVar("T")
LISTEN_HOST = Host.parse("127.0.0.1:7101")
LOOK_SIZE_BYTES = 1 << 16
CATCH_UP_S_MAX = 60.0
"""In simulated time."""
START_ERRORS = (OSError, SyncFailed, StoreFull, SegmentUnreadable)
"""Errors of a start when the disk fails."""


@dataclass(frozen=True)
class Setup:
    """The initial state of a run."""

    log: CommitLogConfig
    indexer: IndexerConfig
    shares_disk: bool
    record_count_max: int
    """The bound of a step of the dispatch stream."""
    link_delay_ms_max: int
    has_workers: bool
    """Jobs of executors pause and interleave."""


@dataclass(slots=True)
class IndexServer:
    """An Indexer that serves."""

    indexer: Indexer
    process: Process


class World(Stage):
    """The machines of a run with their engines and model. `log` and `index` are None while the service is down."""

    def __init__(self, setup: Setup, chance: random.Random) -> None:
        super().__init__(SimulatedLoop(chance, check_alive), has_workers=setup.has_workers)
        self.setup = setup
        self.clock = SimulatedClock(self.loop)
        self.model = Model()
        self.topics = KnownTopics()
        self.writers = Writers(self.model, setup.log.writer_batch_count_max)
        self.broken: list[str] = []
        """Faults at places where they could not be raised."""
        with using(self.workers):
            self.log_disk = MemoryFs()
            self.index_disk = self.log_disk if setup.shares_disk else MemoryFs()
        self.log: Server | None = None
        self.index: IndexServer | None = None
        self.is_disk_full = False
        self.was_power_cut = False
        """Since the log was last up."""
        self.was_stopped_cleanly = False
        self.sealed_at: int | None = None
        """The flushed offset when the running log was sealed."""
        self.deletion_bound = 0
        """Segments below may be gone: a client asked for it."""
        self._stop_log: Callable[[], Coroutine[Any, Any, None]]

    async def start_log(self) -> None:
        """Start the CommitLog and compare the recovered log with the model. It may die or fail by a planned fault."""
        assert self.log is None
        process = Process("commitlog", self.log_disk)
        process.fs.is_full = self.is_disk_full
        commit_log = CommitLog(self.setup.log, process.fs, self.clock, on_failure=process.failures.append)
        try:
            log = await self.call(process, commit_log.open(LISTEN_HOST))
        except Killed:
            self.was_stopped_cleanly = False
            return
        except START_ERRORS as error:
            process.die()
            self.was_stopped_cleanly = False
            expect(self.is_disk_full or bool(process.failed_calls), f"the CommitLog did not start: {error!r}")
            return
        self.log = Server(log, process)
        self._stop_log = commit_log.close
        self.sealed_at = None
        self._recovered(log)

    def _recovered(self, log: OpenLog) -> None:
        model = self.model
        if self.was_stopped_cleanly:
            expect(log.recovery.was_clean_stop, "a clean stop was not seen as one")
        first = log.chain.min_physical_offset
        expect(
            model.min_physical_offset <= first <= max(self.deletion_bound, model.min_physical_offset),
            f"the log begins at {first}, not between {model.min_physical_offset} and {self.deletion_bound}",
        )
        model.trimmed(first)
        end = log.chain.max_physical_offset
        model.restarted(end, was_power_cut=self.was_power_cut)
        self.look()
        expect(model.seen_physical_offset == end, f"only {model.seen_physical_offset} of {end} is shown after a start")
        model.give_up()
        self.topics.look(lambda name: topic.write_queue_count if (topic := log.topics.find(name)) else 0)
        self.writers.check_wholes()
        self.was_power_cut = self.was_stopped_cleanly = False

    def look(self) -> None:
        """Compare all that the log shows with the model."""
        assert self.log is not None
        log, model = self.log.log, self.model
        model.promise(log.marks.flushed.value)
        end = log.marks.visible.value
        expect(
            end >= model.seen_physical_offset, f"the log shows {end}, and showed {model.seen_physical_offset} before"
        )
        self.confirmed(end)
        for stretch in log.reader.stretches(model.min_physical_offset, end, size_bytes_max=LOOK_SIZE_BYTES):
            run = stretch.run
            positions = run.positions.tolist()
            start = positions[0] if positions else 0
            data = b"".join(run.raw())
            model.look(
                stretch.start_physical_offset,
                data,
                [position - start for position in positions],
                stretch.end_physical_offset,
            )
        model.check_complete(end)

    async def start_index(self) -> None:
        """Start the Indexer. It may die or fail by a planned fault."""
        assert self.index is None
        process = Process("indexer", self.index_disk)
        process.fs.is_full = self.is_disk_full
        link = Link(
            lambda: self.log,
            self.loop.chance,
            record_count_max=self.setup.record_count_max,
            delay_ms_max=self.setup.link_delay_ms_max,
            listener=Listener(self.confirmed, self.broken.append, self.model.begun_again),
        )
        with process.running():
            indexer = build(
                self.setup.indexer,
                process.fs,
                self.clock,
                source=link,
                records=link,
                on_failure=process.failures.append,
            )

        async def start() -> None:
            await asyncio.to_thread(indexer.open)
            indexer.start()

        try:
            await self.call(process, start())
        except Killed:
            return
        except START_ERRORS as error:
            process.die()
            expect(self.is_disk_full or bool(process.failed_calls), f"the Indexer did not start: {error!r}")
            return
        self.index = IndexServer(indexer, process)

    def confirmed(self, physical_offset: int) -> None:
        """Record that a reader or follower was shown the log up to here."""
        if self.setup.log.flush_mode == "sync":
            self.model.promise(physical_offset)
        self.model.keep(physical_offset)

    def acknowledged(self, end_physical_offset: int, is_durable: bool) -> None:
        """Record that a client was told that a batch is stored."""
        if is_durable:
            self.model.promise(end_physical_offset)
        elif not self.setup.log.transient_store_pool:
            self.model.keep(end_physical_offset)  # a pool is the process's own memory

    async def stop_log(self) -> None:
        """End the CommitLog in order; a fault may turn that into something else."""
        if self.log is None:
            return
        server, self.log = self.log, None
        is_sealed = bool(server.process.failures)
        end = server.log.chain.max_physical_offset
        try:
            await self.call(server.process, self._stop_log())
        except Killed:
            return
        except Exception as error:  # noqa: BLE001 - whatever keeps a stop from being clean
            expect(is_sealed or self._is_faulty(server.process), f"the CommitLog did not stop: {error!r}")
        else:
            if not is_sealed and not server.process.failures:
                self.was_stopped_cleanly = True
                self.model.promise(end)
        finally:
            server.process.die()

    async def stop_index(self) -> None:
        """End the Indexer in order."""
        if self.index is None:
            return
        server, self.index = self.index, None
        server.indexer.drain()
        try:
            await self.call(server.process, server.indexer.close())
        except Killed:
            return
        except Exception as error:  # noqa: BLE001 - whatever keeps a stop from being clean
            is_explained = bool(server.process.failures) or self._is_faulty(server.process)
            expect(is_explained, f"the Indexer did not stop: {error!r}")
        finally:
            server.process.die()

    def kill_log(self) -> None:
        """End the CommitLog's process."""
        if self.log is not None:
            self.log.process.die()
        self.notice_deaths()

    def kill_index(self) -> None:
        """End the Indexer's process."""
        if self.index is not None:
            self.index.process.die()
        self.notice_deaths()

    def notice_deaths(self) -> None:
        """Take services that died by themselves for down."""
        if self.log is not None and self.log.process.is_dead:
            self.log = None
        if self.index is not None and self.index.process.is_dead:
            self.index = None

    def cut_power(self, disk: MemoryFs, cut: PowerCut) -> None:
        """Take the power from the machine with this disk."""
        if disk is self.log_disk:
            self.kill_log()
            self.was_power_cut = True
        if disk is self.index_disk:
            self.kill_index()
        disk.crash(cut.survives, cut.tear)

    def set_disk_full(self, is_full: bool) -> None:
        """Fill all disks, or make room."""
        self.is_disk_full = is_full
        for server in (self.log, self.index):
            if server is not None:
                server.process.fs.is_full = is_full

    def observe(self) -> None:
        """Look at the marks of the services, after each step."""
        expect(not self.broken, "; ".join(self.broken))
        self.notice_deaths()
        if self.log is not None:
            flushed = self.log.log.marks.flushed.value
            self.model.promise(flushed)
            self.confirmed(self.log.log.marks.visible.value)
            if self.log.process.failures and self.sealed_at is None:
                self.sealed_at = flushed
        if self.index is not None and not self.index.process.failures:
            states = self.index.indexer.follow.states
            expect(states.state is not ReputState.STOPPED, f"indexing has stopped: {states.last_error}")

    async def caught_up(self) -> bool:
        """Wait until the Indexer has entered the whole log. Returns False if a service is gone or the disk is full."""
        end_s = self.loop.time() + CATCH_UP_S_MAX
        if self.log is not None and not self.is_disk_full:
            with contextlib.suppress(Killed, StoreSealed):
                await self.call(self.log.process, synced(self.log.log))
        while self.log is not None and self.index is not None:
            self.observe()
            log, index = self.log, self.index
            if log is None or index is None or log.process.failures or index.process.failures or self.is_disk_full:
                return False
            states, end = index.indexer.follow.states, log.log.chain.max_physical_offset
            is_complete = index.indexer.follow.completeness.is_complete and not index.indexer.upkeep.rebuild.is_running
            reached = index.indexer.indexes.reached  # is ahead by the records that the log has just lost
            at = reached.indexed_physical_offset
            if is_complete and states.state is ReputState.LIVE and at == end and not reached.is_ahead:
                return True
            if self.loop.time() > end_s:
                raise Broken(f"the Indexer is at {at} of {end}: {states.last_error}")
            await asyncio.sleep(0.1)
        return False

    def close(self) -> None:
        """Drop everything, armed failpoints too."""
        failpoints.disarm_all()
        self.kill_log()
        self.kill_index()
        self.finish()

    def _is_faulty(self, process: Process) -> bool:
        return self.is_disk_full or bool(process.failed_calls)
