# SPDX-License-Identifier: Apache-2.0
"""Node: a machine with a disk and a clock, and the process of a CommitLog that runs on it, if any.

It has the effect of `services/commitlog/bootstrap.py`: the same parts of the engine, wired the same way.
"""

import asyncio
import contextlib
from typing import TYPE_CHECKING

from libs.formats.records.host import Host
from libs.formats.state.replication import RoleSetting
from libs.machine.testing.memory_fs import MemoryFs, PowerCut
from libs.machine.workers import using
from libs.requests.errors import DependencyUnavailable, ServiceError, Stopping
from libs.segments.errors import SegmentUnreadable, StoreFull, SyncFailed
from services.commitlog.engine.commit_log import CommitLog
from services.commitlog.engine.elect.member import ElectedMember
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.replicate.ledger import BY_HAND, ElectedTerm
from services.commitlog.engine.replicate.steps import NOBODY, Hello, LeaderAt
from services.commitlog.engine.roles import FOLLOWER_ROLE, Roles
from services.commitlog.engine.start.cut import Cut
from tests.crash.cluster.coordinator import LateDoor
from tests.crash.cluster.network import Link, Pipe, leader_at, serve
from tests.crash.cluster.rules import Reach
from tests.crash.sim.model import expect
from tests.crash.sim.process import Killed, Process
from tests.crash.sim.stage import SimulatedClock

if TYPE_CHECKING:
    from tests.crash.cluster.world import ClusterWorld

LISTEN_HOST = Host.parse("127.0.0.1:7101")
START_ERRORS = (OSError, SyncFailed, StoreFull, SegmentUnreadable)
"""Errors of a start when the disk fails."""
STOP_S_MAX = 30.0
DRAIN_S = 1.0


class Node:
    """A machine with a disk and a clock, and its CommitLog. `process` is None while no process runs."""

    def __init__(self, world: "ClusterWorld", name: str, rate: float) -> None:
        self.world = world
        self.name = name
        self.target = f"{name}:7101"
        self.disk = MemoryFs()
        self.clock = SimulatedClock(world.loop, rate)
        self.process: Process | None = None
        self.door: LateDoor | None = None
        self.is_cut_from_coordinator = False
        self.member: ElectedMember | None = None
        self._roles: Roles | None = None
        self._commit_log: CommitLog | None = None
        self._run_count = 0
        self.is_disk_full = False
        self._was_disk_full = False
        self.reach = Reach()
        self.down_until_s = 0.0
        """Until then no process is started."""
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def silence_s(self) -> float:
        """When a stream counts as dead."""
        return self.world.setup.log.replica_silence_ms / 1000

    @property
    def run(self) -> str:
        """The name of this run of the process."""
        return f"{self.name}/{self._run_count}"

    @property
    def commit_log(self) -> CommitLog | None:
        """The log, open or not, of this or the last run of the process."""
        return self._commit_log

    @property
    def log(self) -> OpenLog | None:
        """The log, if it is open."""
        process, commit_log = self.process, self._commit_log
        is_there = process is not None and not process.is_dead and commit_log is not None and commit_log.is_open
        return commit_log.log if is_there and commit_log is not None else None

    @property
    def leads(self) -> bool:
        """Whether its log thinks that it leads."""
        return (log := self.log) is not None and log.follower is None

    async def start(self) -> None:
        """Start a process. It may die or fail by a planned fault."""
        assert self.process is None
        world = self.world
        self._run_count += 1
        self._was_disk_full = False
        process = self.process = Process(self.name, self.disk)
        self.fill_disk(is_full=self.is_disk_full)
        with process.running(), using(world.workers):
            config = world.config_of(self.name)
            commit_log = self._commit_log = CommitLog(
                config, process.fs, self.clock, on_failure=process.failures.append
            )
            door = self.door = LateDoor(world.coordinator, self.run, world.loop)
            door.is_cut, door.late_ratio = self.is_cut_from_coordinator, world.late_ratio
            roles = self._roles = Roles(
                RoleSetting(FOLLOWER_ROLE),
                self._open_log,
                self._close,
                self._open_again,
                self._leader_at,
                process.failures.append,
            )
            member = self.member = ElectedMember(door, roles, self.clock, config, self.target, self.run)

        async def begin() -> None:
            await self._open(commit_log, RoleSetting(FOLLOWER_ROLE))
            member.start()

        try:
            await world.call(process, begin())
        except Killed:
            self.notice_death()
        except START_ERRORS as error:
            expect(self.is_excused, f"{self.name} did not start: {error!r}")
            self.kill()

    async def stop(self) -> None:
        """End it in order, as its runner does; it is killed if that takes too long."""
        process, member, commit_log, roles = self.process, self.member, self._commit_log, self._roles
        assert process is not None
        assert member is not None
        assert commit_log is not None
        assert roles is not None
        self.world.loop.resume_process(process)

        async def end() -> None:
            await member.resign()
            await self._end_streams(commit_log)
            await member.stop()
            await roles.no_change()
            await commit_log.close()

        try:
            async with asyncio.timeout(STOP_S_MAX):
                await self.world.call(process, end())
        except (Killed, TimeoutError):
            pass
        except Exception as error:  # noqa: BLE001 - whatever keeps a stop from being clean
            expect(self.is_excused, f"{self.name} did not stop: {error!r}")
        self.kill()

    def stay_down(self, seconds: float) -> None:
        """Start no process for a while, unless all is to work."""
        self.down_until_s = self.world.loop.time() + seconds

    def kill(self) -> None:
        """End the process at once."""
        if self.process is not None:
            self.world.loop.resume_process(self.process)
            self.process.die()
        self.notice_death()

    def notice_death(self) -> None:
        """Take a process that died by itself for down."""
        if self.process is not None and self.process.is_dead:
            assert self.door is not None
            self.door.is_cut = True
            self.process = None

    def cut_power(self, cut: PowerCut) -> None:
        """Take the power from the machine."""
        self.kill()
        self.disk.crash(cut.survives, cut.tear)

    def replace_disk(self) -> None:
        """Put another machine in its place, with nothing on its disk."""
        self.kill()
        self.is_disk_full = False
        with using(self.world.workers):
            self.disk = MemoryFs()

    @property
    def is_excused(self) -> bool:
        """Whether a planned fault may be the cause of a failure."""
        process = self.process
        return process is None or self._was_disk_full or bool(process.failed_calls)

    def fill_disk(self, *, is_full: bool) -> None:
        """Fill the disk, or make room."""
        self.is_disk_full = is_full
        if self.process is not None:
            self.process.fs.is_full = is_full
            self._was_disk_full |= is_full

    def accept(self, hello: Hello, requests: Pipe, responses: Pipe) -> None:
        """Serve a stream, or refuse it with the reason. A stopped process does not answer."""
        process, log = self.process, self.log
        if process is None or log is None:
            responses.send(DependencyUnavailable("leader", "nobody listens"))
            return
        task = process.start(serve(log, hello, requests, responses, self.silence_s))
        self._serving.add(task)
        requests.on_end = task.cancel
        task.add_done_callback(lambda done: self._ended(done, responses))

    def _ended(self, task: asyncio.Task[None], responses: Pipe) -> None:
        self._serving.discard(task)
        error = None if task.cancelled() else task.exception()
        is_told = isinstance(error, ServiceError)
        responses.send(error if is_told else DependencyUnavailable("leader", f"the connection broke: {error!r}"))
        expect_error = error is None or is_told or isinstance(error, Killed | OSError | SegmentUnreadable)
        if not expect_error:
            self.world.broken.append(f"a stream of {self.name} ended with {error!r}")

    def _open_log(self) -> OpenLog:
        if self._commit_log is None or self._commit_log.log is None:
            raise Stopping
        return self._commit_log.log

    async def _open(
        self, commit_log: CommitLog, setting: RoleSetting, cut: Cut | None = None, term: ElectedTerm = BY_HAND
    ) -> None:
        self.reach = Reach()
        leader = self._leader_at(setting.leader_target) if setting.role == FOLLOWER_ROLE else None
        await commit_log.open(LISTEN_HOST, leader=leader, cut=cut, term=term, role=setting.role)

    async def _close(self) -> None:
        assert self._commit_log is not None
        await self._end_streams(self._commit_log)
        await self._commit_log.close()

    async def _open_again(self, setting: RoleSetting, cut: Cut | None, term: ElectedTerm) -> None:
        assert self._commit_log is not None
        self.world.count("tails cut off", cut is not None)
        await self._open(self._commit_log, setting, cut, term)

    async def _end_streams(self, commit_log: CommitLog) -> None:
        if commit_log.log is not None:
            commit_log.log.replicas.drain()
        if self._serving:
            await asyncio.wait(self._serving, timeout=DRAIN_S)

    def _leader_at(self, target: str) -> LeaderAt:
        if not target:
            return NOBODY
        assert self._roles is not None
        assert self.member is not None
        link, member = Link(self.world, self, target), self.member
        return leader_at(link, target, cut=self._roles.cut, move=lambda _: member.look(), stand_back=member.stand_back)

    def told(self) -> str:
        """The state of the node, for people."""
        log, member = self.log, self.member
        if self.process is None:
            return f"{self.name}: down"
        parts = [f"{self.name}: {'stopped ' if self.world.loop.is_stopped(self.process) else ''}"]
        if log is not None:
            marks = log.marks
            parts.append(
                f"wrote {marks.wrote.value} flushed {marks.flushed.value} replicated {marks.replicated.value} "
                f"visible {marks.visible.value} {log.epochs.epochs} promised {log.identity.promised_epoch}"
            )
            if log.in_sync is not None:
                parts.append(f"in sync {log.in_sync.replica_ids} live {log.in_sync.set.live_count}")
            if log.follower is not None:
                follower = log.follower
                parts.append(f"follows {follower.leader.target!r} {follower.state.name} {follower.last_error}")
        if member is not None:
            parts.append(f"{member.decision.step.name}: {member.decision.reason} {member.loop.last_error}")
        with contextlib.suppress(IndexError):
            parts.append(f"failed: {self.process.failures[0]!r}")
        return " ".join(parts)
