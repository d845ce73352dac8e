# SPDX-License-Identifier: Apache-2.0
"""Roles: the role of the log, leader or follower, and its changes while the process runs.

A log that begins or ceases to lead, or is cut, is closed and opened anew; calls get RECOVERING meanwhile.
Invariants: a single change runs at a time. It runs to its end even if its caller is gone.
Callers: the loop that owns the log. The decider is `by_hand`, or `elect` with a coordinator.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from msgspec import Struct

from libs.formats.epoch import Epoch
from libs.formats.state.replication import RoleName, RoleSetting
from libs.segments.errors import OffsetTrimmed
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.replicate.ledger import BY_HAND, ElectedTerm
from services.commitlog.engine.replicate.steps import LeaderAt
from services.commitlog.engine.start.cut import Cut
from services.commitlog.errors import StaleEpoch

FOLLOWER_ROLE: Final = "slave"
"""The role of a follower, by RocketMQ's name."""
CUT_PAUSE_S = 30.0
"""Pause before a failed cut is retried: each attempt closes the log and opens it again."""

_log = logging.getLogger(__name__)


class Decider(Protocol):
    """The decider about a log's role: operators or an election."""

    async def promote(self, role: RoleName, *, epoch: int, end_physical_offset: int, accepts_loss: bool) -> Epoch:
        """Lead in the returned epoch. Raises StaleEpoch, MayLoseData and NotElected."""
        ...

    async def demote(self, replica_id: str, leader_target: str, *, epoch: int) -> tuple[RoleSetting, Epoch, int]:
        """Hand over to a follower, and follow it. Returns the former role setting, its last epoch and the log's end.

        Raises NotLeader, StaleEpoch and ReplicaBehind; then nothing has changed.
        """
        ...


class RoleStatistics(Struct, frozen=True):
    """The counts of a process's role changes."""

    changes_total: int
    """How often the log was closed and opened anew, for another role or a cut."""
    cuts_total: int
    """How often the end of the log was cut, because the leader has another history."""


@dataclass(slots=True, eq=False)
class Roles:
    """The role of the log and its changes. `_open` opens the log in a role, after a cut or an election if any."""

    setting: RoleSetting
    _open_log: Callable[[], OpenLog]
    _close: Callable[[], Awaitable[None]]
    _open: Callable[[RoleSetting, Cut | None, ElectedTerm], Awaitable[None]]
    _leader_at: Callable[[str], LeaderAt]
    _on_failure: Callable[[BaseException], None]
    asking_count: int = 0
    """Number of calls that wait for a change."""
    change_count: int = 0
    cut_count: int = 0
    _change: asyncio.Task[None] | None = None
    cut_pause_s: float = CUT_PAUSE_S
    _cut_at_s: float = 0.0
    """Event loop time from which a cut may be tried."""

    @property
    def log(self) -> OpenLog:
        """The log. Raises Stopping."""
        return self._open_log()

    def statistics(self) -> RoleStatistics:
        """Return a snapshot for telemetry. Fast, and safe from any thread."""
        return RoleStatistics(self.change_count, self.cut_count)

    @property
    def is_changing(self) -> bool:
        """Whether a change is running."""
        return self._change is not None

    def cut(self, cut: Cut) -> None:
        """Begin to cut the log, unless another change is running, or a cut failed less than CUT_PAUSE_S ago."""
        if asyncio.get_running_loop().time() >= self._cut_at_s:
            self.try_change(lambda: self.reopen(self.setting, cut=cut))

    def try_change(self, change: Callable[[], Coroutine[None, None, None]]) -> None:
        """Begin a change without waiting for it, unless another change is running."""
        if self._change is None:
            self._begin(change()).add_done_callback(_consumed)

    async def change(self, change: Coroutine[None, None, None]) -> None:
        """Run a change to its end. No other change may be running: see `no_change`."""
        await asyncio.shield(self._begin(change))

    async def no_change(self) -> None:
        """Wait until no change is running."""
        while self._change is not None:
            await asyncio.wait([self._change])

    async def reopen(self, setting: RoleSetting, *, cut: Cut | None = None, term: ElectedTerm = BY_HAND) -> None:
        """Close the log and open it anew. If it can't be cut, for example without room for the copy, it stays uncut.

        A sealed log, or a failure to close it, ends the process: only the next process can find out the state on disk.
        """
        log = self.log
        self.setting = setting
        try:
            await self._close()
            log.seal.check()
            if cut is None:
                await self._open(setting, None, term)
            else:
                await self._open_cut(setting, cut, term)
            self.change_count += 1
        except Exception as error:
            self._on_failure(error)  # without its log the process has nothing to do
            raise

    async def _open_cut(self, setting: RoleSetting, cut: Cut, term: ElectedTerm) -> None:
        try:
            await self._open(setting, cut, term)
            self.cut_count += 1
        except (OSError, OffsetTrimmed) as error:  # segments may have been deleted since the cut was requested
            _log.error("the log can't be cut, so it does not follow for %d s: %s", self.cut_pause_s, error)
            self._cut_at_s = asyncio.get_running_loop().time() + self.cut_pause_s
            await self._close()
            await self._open(setting, None, BY_HAND)

    async def follow_other_leader(self, leader_target: str) -> None:
        """Follow another leader, empty for none. A leader is opened anew for that."""
        follower = self.log.follower
        if follower is None:
            await self.reopen(RoleSetting(FOLLOWER_ROLE, leader_target))
        else:
            self.setting = RoleSetting(FOLLOWER_ROLE, leader_target)
            await follower.turn_to(self._leader_at(leader_target))

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """Count a call that waits for a change. The change does not wait for this call."""
        self.asking_count += 1
        try:
            yield
        finally:
            self.asking_count -= 1

    def check_epoch(self, epoch: int) -> None:
        """Raise StaleEpoch if the log is in another epoch than this epoch. 0 accepts any epoch."""
        if epoch not in (0, self.log.epochs.number):
            raise StaleEpoch(epoch=self.log.epochs.number, field="epoch")

    def _begin(self, change: Coroutine[None, None, None]) -> asyncio.Task[None]:
        assert self._change is None
        self._change = asyncio.create_task(change, name="change of roles")
        self._change.add_done_callback(self._ended)
        return self._change

    def _ended(self, _: object) -> None:
        self._change = None


def _consumed(change: asyncio.Task[None]) -> None:
    """Retrieve the outcome of a change without a waiting caller. Its failure was already reported."""
    if not change.cancelled():
        change.exception()
