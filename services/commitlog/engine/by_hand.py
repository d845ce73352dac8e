# SPDX-License-Identifier: Apache-2.0
"""ByHand: operators choose the leader, by settings and calls.

Invariant: a decision is on the disk before the log changes, so after a crash in between, the next start carries it out.
Callers: the loop that owns the log.
"""

import logging
from collections.abc import Awaitable, Callable

from msgspec import Struct

from libs.formats.epoch import Epoch
from libs.formats.state.replication import RoleName, RoleSetting
from services.commitlog.engine.roles import FOLLOWER_ROLE, Roles
from services.commitlog.errors import MayLoseData, NotLeader

_log = logging.getLogger(__name__)


class ByHand(Struct, frozen=True):
    """The decider for logs without a coordinator. `_leads` asks a log whether it leads. `_settings` are this log's."""

    _roles: Roles
    _settings: RoleSetting
    _leads: Callable[[str], Awaitable[bool]]

    async def promote(self, role: RoleName, *, epoch: int, end_physical_offset: int, accepts_loss: bool) -> Epoch:
        """See `Decider`. A leader continues in its own epoch. Raises MayLoseData without a proof."""
        with self._roles.asking():
            await self._roles.no_change()
            log = self._roles.log
            if log.follower is None:
                return log.epochs.epochs[-1]
            self._roles.check_epoch(epoch)
            end = log.chain.max_physical_offset
            if not accepts_loss and not (epoch and end_physical_offset == end):
                raise MayLoseData(f"the log ends at {end}, and nobody proved that there is nothing behind")
            if accepts_loss and log.follower.is_connected:
                raise MayLoseData(
                    f"the leader, {self._roles.setting.leader_target}, is there: let it hand over, or stop it"
                )
            await self._roles.change(self._take_role(RoleSetting(role)))
            return self._roles.log.epochs.epochs[-1]

    async def demote(self, replica_id: str, leader_target: str, *, epoch: int) -> tuple[RoleSetting, Epoch, int]:
        """See `Decider`."""
        with self._roles.asking():
            await self._roles.no_change()
            log = self._roles.log
            if log.handover is None:
                raise NotLeader(self._roles.setting.leader_target)
            self._roles.check_epoch(epoch)
            former, last_epoch = self._roles.setting, log.epochs.epochs[-1]
            end = await log.handover.run(replica_id, leader_target)
            try:
                await self._roles.change(self._take_role(RoleSetting(FOLLOWER_ROLE, leader_target)))
            except OSError:
                log.handover.take_back()  # nothing was saved, so the log still leads
                raise
            return former, last_epoch, end

    def move(self, leader_target: str) -> None:
        """Begin to follow another leader, named by the former leader, if it does lead."""
        if leader_target not in ("", self._roles.setting.leader_target):
            self._roles.try_change(lambda: self._move(leader_target))

    async def _move(self, leader_target: str) -> None:
        former = self._roles.setting.leader_target
        if await self._leads(leader_target):
            _log.info("%s does not lead any more, %s does", former, leader_target)
            await self._save_setting(RoleSetting(FOLLOWER_ROLE, leader_target))
            await self._roles.follow_other_leader(leader_target)

    async def _take_role(self, setting: RoleSetting) -> None:
        await self._save_setting(setting)
        await self._roles.reopen(setting)

    async def _save_setting(self, setting: RoleSetting) -> None:
        await self._roles.log.identity.save_setting(setting, instead_of=self._settings)
