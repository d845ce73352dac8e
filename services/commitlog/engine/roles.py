# SPDX-License-Identifier: Apache-2.0
"""Roles: what the log does, leads or follows, and how that changes while the process runs.

A change closes the log and opens it anew; calls get RECOVERING meanwhile.
Invariants: one change at a time; what was decided is on the disk before the log is closed, so that a process that dies
in between does it at its next start; whoever asked and went away changes nothing about that.
Callers: the loop that owns the log.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from dataclasses import dataclass
from typing import Final

from libs.formats.epoch import Epoch
from libs.formats.state.replication import RoleName, Seat
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.start.cut import Cut
from services.commitlog.errors import MayLoseData, NotLeader, StaleEpoch

SLAVE: Final = "slave"

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Roles:
    """`_reopen` closes the log, and opens it on a seat, after a cut if there is one. `_leads` asks whether a log leads.

    `settings` are the log's own.
    """

    settings: Seat
    seat: Seat
    _open_log: Callable[[], OpenLog]
    _reopen: Callable[[Seat, Cut | None], Awaitable[None]]
    _leads: Callable[[str], Awaitable[bool]]
    _on_failure: Callable[[BaseException], None]
    asking_count: int = 0
    """Calls that wait for a change."""
    _change: asyncio.Task[None] | None = None
    _can_cut: bool = True

    async def promote(self, role: RoleName, *, epoch: int, end_physical_offset: int, accepts_loss: bool) -> Epoch:
        """Lead, in a new epoch, which is returned. A log that leads goes on in its own.

        Raises StaleEpoch if the log is in another epoch, if one is given, and MayLoseData without a proof.
        """
        with self._asking():
            await self._no_change()
            log = self._open_log()
            if log.following is None:
                return log.epochs.epochs[-1]
            self._check_epoch(log, epoch)
            end = log.chain.max_physical_offset
            if not accepts_loss and not (epoch and end_physical_offset == end):
                raise MayLoseData(f"the log ends at {end}, and nobody proved that there is nothing behind")
            if accepts_loss and log.following.is_connected:
                raise MayLoseData(f"the leader, {self.seat.leader_target}, is there: let it hand over, or stop it")
            await self._sit(Seat(role))
            return self._open_log().epochs.epochs[-1]

    async def demote(self, replica_id: str, leader_target: str, *, epoch: int) -> tuple[Seat, Epoch, int]:
        """Hand over to one that follows, and follow it. Returns the seat until now, its last epoch, and the log's end.

        Raises NotLeader, StaleEpoch and ReplicaBehind, after which nothing has changed.
        """
        with self._asking():
            await self._no_change()
            log = self._open_log()
            if log.handover is None:
                raise NotLeader(self.seat.leader_target)
            self._check_epoch(log, epoch)
            former, last_epoch = self.seat, log.epochs.epochs[-1]
            end = await log.handover.run(replica_id, leader_target)
            try:
                await self._sit(Seat(SLAVE, leader_target))
            except OSError:
                log.handover.take_back()  # nothing is written down, so the log leads
                raise
            return former, last_epoch, end

    def cut(self, cut: Cut) -> None:
        """Begin to cut the log, unless something else is under way."""
        if self._change is None and self._can_cut:
            self._begin(self._run(self.seat, cut)).add_done_callback(_consumed)

    def move(self, leader_target: str) -> None:
        """Begin to follow another leader, who was named by the one that was followed, if it does lead."""
        if self._change is None and leader_target not in ("", self.seat.leader_target):
            self._begin(self._move(leader_target)).add_done_callback(_consumed)

    async def finish(self) -> None:
        """Wait for what is under way."""
        if self._change is not None:
            await asyncio.wait([self._change])

    async def _sit(self, seat: Seat) -> None:
        await asyncio.shield(self._begin(self._run(seat)))

    def _begin(self, change: Coroutine[None, None, None]) -> asyncio.Task[None]:
        assert self._change is None
        self._change = asyncio.create_task(change, name="change of roles")
        self._change.add_done_callback(self._ended)
        return self._change

    def _ended(self, _: object) -> None:
        self._change = None

    async def _move(self, leader_target: str) -> None:
        if await self._leads(leader_target):
            _log.info("%s does not lead any more, %s does", self.seat.leader_target, leader_target)
            await self._run(Seat(SLAVE, leader_target))

    async def _run(self, seat: Seat, cut: Cut | None = None) -> None:
        if seat != self.seat:
            await self._open_log().identity.sit(seat, instead_of=self.settings)
            self.seat = seat
        await self._reopen_on(seat, cut)

    async def _reopen_on(self, seat: Seat, cut: Cut | None) -> None:
        """Open the log anew. One that can't be cut, because the disk has no room for the copy, stays as it is."""
        try:
            try:
                await self._reopen(seat, cut)
            except OSError as error:
                if cut is None:
                    raise
                _log.error("the log can't be cut, so it does not follow: %s", error)
                self._can_cut = False
                await self._reopen(seat, None)
        except Exception as error:
            self._on_failure(error)  # without its log the process has nothing to do
            raise

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        self.asking_count += 1
        try:
            yield
        finally:
            self.asking_count -= 1

    async def _no_change(self) -> None:
        while self._change is not None:
            await asyncio.wait([self._change])

    @staticmethod
    def _check_epoch(log: OpenLog, epoch: int) -> None:
        if epoch not in (0, log.epochs.number):
            raise StaleEpoch(epoch=log.epochs.number, field="epoch")


def _consumed(change: asyncio.Task[None]) -> None:
    """Look at what became of a change that nobody waits for: the log and the process know it."""
    if not change.cancelled():
        change.exception()
