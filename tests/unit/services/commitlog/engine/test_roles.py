# SPDX-License-Identifier: Apache-2.0
"""Roles: a change that can't be stored, or carried out, is never acknowledged."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from libs.formats.epoch import Epoch
from libs.formats.state.replication import RoleSetting
from libs.segments.errors import OffsetTrimmed
from services.commitlog.engine.by_hand import ByHand
from services.commitlog.engine.replicate.ledger import BY_HAND, ElectedTerm
from services.commitlog.engine.replicate.steps import NOBODY, LeaderAt
from services.commitlog.engine.roles import Roles
from services.commitlog.engine.start.cut import Cut
from services.commitlog.errors import StoreSealed
from tests.support.patience import eventually

CUT = Cut(7, [Epoch(3, 0)])


class Log:
    """A log in outline: its seats, and the calls that opened it again."""

    def __init__(self, *, leads: bool = True) -> None:
        self.saved: list[RoleSetting] = []
        self.reopened: list[tuple[RoleSetting, Cut | None]] = []
        self.turned: list[str] = []
        self.failures: list[BaseException] = []
        self.save_errors: list[Exception] = []
        self.close_errors: list[Exception] = []
        self.reopen_errors: list[Exception] = []
        self.seal_errors: list[Exception] = []
        self.seal = SimpleNamespace(check=self.check)
        self.taken_back_count = 0
        self.leading: Sequence[str] = ()
        self.chain = SimpleNamespace(max_physical_offset=100)
        self.epochs = SimpleNamespace(number=3, epochs=[Epoch(3, 0)])
        self.identity = SimpleNamespace(save_setting=self.save_setting)
        self.follower = None if leads else SimpleNamespace(is_connected=False, turn_to=self.turn_to)
        self.handover = SimpleNamespace(run=self.run, take_back=self.take_back) if leads else None

    async def run(self, replica_id: str, leader_target: str) -> int:
        return 100

    def take_back(self) -> None:
        self.taken_back_count += 1

    async def save_setting(self, setting: RoleSetting, *, instead_of: RoleSetting) -> None:
        if self.save_errors:
            raise self.save_errors.pop()
        self.saved.append(setting)

    async def close(self) -> None:
        if self.close_errors:
            raise self.close_errors.pop()

    def check(self) -> None:
        if self.seal_errors:
            raise self.seal_errors.pop()

    async def reopen(self, setting: RoleSetting, cut: Cut | None, term: ElectedTerm) -> None:
        assert term is BY_HAND
        if self.reopen_errors:
            raise self.reopen_errors.pop()
        self.reopened.append((setting, cut))

    async def turn_to(self, leader: LeaderAt) -> None:
        self.turned.append(leader.target)

    def leader_at(self, target: str) -> LeaderAt:
        return replace(NOBODY, target=target)

    async def leads(self, target: str) -> bool:
        return target in self.leading


def roles_of(log: Log, setting: RoleSetting) -> tuple[Roles, ByHand]:
    """The roles of a log whose settings are its seat, and the decisions by hand about them."""
    found: Any = log
    roles = Roles(setting, lambda: found, log.close, log.reopen, log.leader_at, log.failures.append)
    return roles, ByHand(roles, setting, log.leads)


async def test_a_handover_that_can_not_be_written_down() -> None:
    """If the new seat cannot be stored, the log leads as before, and the caller gets the error; a retry succeeds."""
    log, setting = Log(), RoleSetting("async_master")
    roles, by_hand = roles_of(log, setting)
    log.save_errors.append(OSError("no space"))
    with pytest.raises(OSError, match="no space"):
        await by_hand.demote("b", "b:1", epoch=0)
    assert (roles.setting, log.reopened, log.taken_back_count, log.failures) == (setting, [], 1, [])
    await by_hand.demote("b", "b:1", epoch=3)
    assert (roles.setting, log.reopened) == (RoleSetting("slave", "b:1"), [(RoleSetting("slave", "b:1"), None)])


async def test_a_log_that_does_not_open_again() -> None:
    """The process ends, and no caller is told that the log leads."""
    log = Log(leads=False)
    _, by_hand = roles_of(log, RoleSetting("slave", "a:1"))
    log.reopen_errors.append(OSError("gone"))
    with pytest.raises(OSError, match="gone"):
        await by_hand.promote("async_master", epoch=3, end_physical_offset=100, accepts_loss=False)
    assert len(log.failures) == 1


@pytest.mark.parametrize(
    "error", [OSError("no space"), OffsetTrimmed(value=0, min_offset=1_000)], ids=["room", "trimmed"]
)
async def test_a_cut_that_is_not_possible(error: Exception) -> None:
    """A cut without room for its copy, or of a log that was trimmed meanwhile, is retried after a while.

    Until then the log opens uncut and readable.
    """
    log, setting = Log(leads=False), RoleSetting("slave", "a:1")
    roles, _ = roles_of(log, setting)
    log.reopen_errors.append(error)
    roles.cut(CUT)
    await roles.no_change()
    assert (log.reopened, log.failures) == ([(setting, None)], [])
    await asyncio.sleep(0)
    roles.cut(CUT)
    await roles.no_change()
    assert len(log.reopened) == 1


@pytest.mark.parametrize("cause", ["close_errors", "seal_errors"])
async def test_a_log_that_does_not_close_is_not_opened_again(cause: str) -> None:
    """A log that does not close is not opened again, not even without its cut: its disk may lack acknowledged data."""
    log, error = Log(leads=False), OSError("no sync") if cause == "close_errors" else StoreSealed()
    roles, _ = roles_of(log, RoleSetting("slave", "a:1"))
    getattr(log, cause).append(error)
    roles.cut(CUT)
    await roles.no_change()
    assert (log.reopened, log.failures) == ([], [error])


async def test_a_cut_that_failed_is_tried_again() -> None:
    """A failed cut is retried without a restart of the process, because the disk may have room later."""
    log, setting = Log(leads=False), RoleSetting("slave", "a:1")
    roles, _ = roles_of(log, setting)
    roles.cut_pause_s = 0.0
    log.reopen_errors.append(OSError("no space"))
    for _ in range(2):
        roles.cut(CUT)
        await roles.no_change()
        await asyncio.sleep(0)
    assert log.reopened == [(setting, None), (setting, CUT)]


async def test_who_is_named_is_asked_before_it_is_followed() -> None:
    """A named leader is asked before the log follows it: two logs may name each other, and a log may name itself."""
    log, setting = Log(leads=False), RoleSetting("slave", "a:1")
    roles, by_hand = roles_of(log, setting)
    for target in ("", "a:1", "b:1"):
        by_hand.move(target)
        await roles.no_change()
        await asyncio.sleep(0)
    assert log.saved == []
    log.leading = ("b:1",)
    by_hand.move("b:1")
    await eventually(lambda: log.turned == ["b:1"])
    assert log.saved == [RoleSetting("slave", "b:1")]
