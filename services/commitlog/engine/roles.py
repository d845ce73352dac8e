# SPDX-License-Identifier: Apache-2.0
"""Roles: what the log does, leads or follows, and how that changes while the process runs.

A log that begins or ceases to lead, or is cut, is closed and opened anew; calls get RECOVERING meanwhile.
Invariants: one change at a time; whoever asked for one and went away changes nothing about it.
Callers: the loop that owns the log. Who decides: `by_hand`, or `elect` where there is a coordinator.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from libs.formats.epoch import Epoch
from libs.formats.state.replication import RoleName, Seat
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.replicate.ledger import BY_HAND, Reign
from services.commitlog.engine.replicate.steps import LeaderAt
from services.commitlog.engine.start.cut import Cut
from services.commitlog.errors import StaleEpoch

SLAVE: Final = "slave"
CUT_PAUSE_S = 30.0
"""A cut that failed is tried again after this: each attempt closes the log, and opens it again."""

_log = logging.getLogger(__name__)


class Decider(Protocol):
    """Whoever decides about a log's role."""

    async def promote(self, role: RoleName, *, epoch: int, end_physical_offset: int, accepts_loss: bool) -> Epoch:
        """Lead, in the epoch that is returned. Raises StaleEpoch, MayLoseData and NotElected."""
        ...

    async def demote(self, replica_id: str, leader_target: str, *, epoch: int) -> tuple[Seat, Epoch, int]:
        """Hand over to one that follows, and follow it. Returns the seat until now, its last epoch, and the log's end.

        Raises NotLeader, StaleEpoch and ReplicaBehind, after which nothing has changed.
        """
        ...

    def move(self, leader_target: str) -> None:
        """Take note that another log leads, as the one said that was followed."""
        ...


@dataclass(frozen=True, slots=True)
class RoleStatistics:
    """Of one process."""

    changes_total: int
    """Times that the log was closed and opened anew, for another role or a cut."""
    cuts_total: int


@dataclass(slots=True, eq=False)
class Roles:
    """`_open` opens the log on a seat: after a cut, or as one that was elected, if there is that."""

    seat: Seat
    _open_log: Callable[[], OpenLog]
    _close: Callable[[], Awaitable[None]]
    _open: Callable[[Seat, Cut | None, Reign], Awaitable[None]]
    _leader_at: Callable[[str], LeaderAt]
    _on_failure: Callable[[BaseException], None]
    asking_count: int = 0
    """Calls that wait for a change."""
    change_count: int = 0
    cut_count: int = 0
    _change: asyncio.Task[None] | None = None
    cut_pause_s: float = CUT_PAUSE_S
    _cut_at_s: float = 0.0
    """From then on a cut may be tried."""

    @property
    def log(self) -> OpenLog:
        """The log. Raises Stopping."""
        return self._open_log()

    def statistics(self) -> RoleStatistics:
        """Return a snapshot, for telemetry. Quick, and safe from any thread."""
        return RoleStatistics(self.change_count, self.cut_count)

    @property
    def is_changing(self) -> bool:
        """Whether a change is under way."""
        return self._change is not None

    def cut(self, cut: Cut) -> None:
        """Begin to cut the log, unless something else is under way, or a cut failed a short while ago."""
        if asyncio.get_running_loop().time() >= self._cut_at_s:
            self.try_change(lambda: self.reopen(self.seat, cut=cut))

    def try_change(self, change: Callable[[], Coroutine[None, None, None]]) -> None:
        """Begin a change that nobody waits for, unless another one is under way."""
        if self._change is None:
            self._begin(change()).add_done_callback(_consumed)

    async def change(self, change: Coroutine[None, None, None]) -> None:
        """Carry out a change, to its end. There must be no other one: see `no_change`."""
        await asyncio.shield(self._begin(change))

    async def no_change(self) -> None:
        """Wait until no change is under way."""
        while self._change is not None:
            await asyncio.wait([self._change])

    async def reopen(self, seat: Seat, *, cut: Cut | None = None, reign: Reign = BY_HAND) -> None:
        """Open the log anew. One that can't be cut, as for want of room for the copy, stays as it is for a while.

        One that is sealed, or does not close, ends the process: what is on its disk is known to the next one alone.
        """
        log = self.log
        self.seat = seat
        try:
            await self._close()
            log.seal.check()
            if cut is None:
                await self._open(seat, None, reign)
            else:
                await self._open_cut(seat, cut, reign)
            self.change_count += 1
        except Exception as error:
            self._on_failure(error)  # without its log the process has nothing to do
            raise

    async def _open_cut(self, seat: Seat, cut: Cut, reign: Reign) -> None:
        try:
            await self._open(seat, cut, reign)
            self.cut_count += 1
        except OSError as error:
            _log.error("the log can't be cut, so it does not follow for %d s: %s", self.cut_pause_s, error)
            self._cut_at_s = asyncio.get_running_loop().time() + self.cut_pause_s
            await self._close()
            await self._open(seat, None, BY_HAND)

    async def turn(self, leader_target: str) -> None:
        """Follow another leader, empty for none. A log that leads is opened anew for that."""
        following = self.log.following
        if following is None:
            await self.reopen(Seat(SLAVE, leader_target))
        else:
            self.seat = Seat(SLAVE, leader_target)
            await following.turn_to(self._leader_at(leader_target))

    @contextlib.contextmanager
    def asking(self) -> Iterator[None]:
        """A call waits for a change meanwhile, and no change for it."""
        self.asking_count += 1
        try:
            yield
        finally:
            self.asking_count -= 1

    def check_epoch(self, epoch: int) -> None:
        """Raise StaleEpoch if the log is in another epoch than this one, if it is given."""
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
    """Look at what became of a change that nobody waits for: the log and the process know it."""
    if not change.cancelled():
        change.exception()
