# SPDX-License-Identifier: Apache-2.0
"""The next step of a member: each rule by itself."""

from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from libs.formats.state.leadership import LeadershipRecord
from libs.formats.state.replication import Member
from services.commitlog.engine.elect.coordinator import View
from services.commitlog.engine.elect.election import (
    SUCCESSOR_MS,
    Facts,
    Step,
    decide,
    elected_record,
    first_record,
    released_record,
)

A, B, C = Member("a", "0a"), Member("b", "0b"), Member("c", "0c")
NEW_A, NEW_B = Member("a", "1a"), Member("b", "1b")
RECORD = LeadershipRecord(
    history_id="h",
    epoch=7,
    leader=A,
    leader_target="a:1",
    in_sync=(A, B),
    min_in_sync=2,
    floor_physical_offset=100,
)
FACTS = Facts(member=B, identity="b/1", history_id="h", promised_epoch=7, end_physical_offset=100)
LONG_MS = 10_000


def view(holder: str = "", **changes: Any) -> View:
    """A record that was changed, under a lease."""
    return View(msgspec.structs.replace(RECORD, **changes), holder, 1, 1 if holder else 0)


@pytest.mark.parametrize(
    ("seen", "facts", "step", "target", "reason"),
    [
        (view("a/1"), FACTS, Step.FOLLOW, "a:1", "another one leads"),
        (view(), FACTS, Step.STAND, "", "nobody leads"),
        (view(), replace(FACTS, member=C), Step.FOLLOW, "a:1", "not in the in-sync set"),
        (view("a/9"), replace(FACTS, member=NEW_A), Step.FOLLOW, "", "another one leads"),
        (view(), replace(FACTS, member=NEW_B), Step.FOLLOW, "a:1", "not in the in-sync set"),
        (view(), replace(FACTS, end_physical_offset=99), Step.FOLLOW, "a:1", "it lost some"),
        (view(), replace(FACTS, unfit="its disk is gone"), Step.FOLLOW, "a:1", "its disk is gone"),
        (view(), replace(FACTS, promised_epoch=8), Step.FOLLOW, "", "the record went back"),
        (view(), replace(FACTS, history_id="other"), Step.FOLLOW, "", "of history h"),
        (view(), replace(FACTS, history_id=""), Step.STAND, "", "nobody leads"),
        (view("a/1"), replace(FACTS, member=A, identity="a/2"), Step.STAND, "", "nobody leads"),
        (view(leader=None, successor="b"), FACTS, Step.STAND, "", "nobody leads"),
        (view("a/1"), replace(FACTS, member=A, identity="a/1", leads_in=7), Step.LEAD, "", "it was elected"),
        (view(), replace(FACTS, member=A, identity="a/1", leads_in=7), Step.LEAD, "", "it was elected"),
        (view(), replace(FACTS, member=A, identity="a/1", leads_in=7, is_by_promises=True),
         Step.LEAD, "", "can't be renewed"),
        (view(), replace(FACTS, is_bound=True), Step.FOLLOW, "a:1", "it promised"),
        (view("a/1"), replace(FACTS, member=A, identity="a/2", is_bound=True), Step.STAND, "", "nobody leads"),
        (view(leader=None), replace(FACTS, is_bound=True), Step.STAND, "", "nobody leads"),
        (view("a/2"), replace(FACTS, member=A, identity="a/1", leads_in=7), Step.FOLLOW, "", "its lease is over"),
        (view("b/1", epoch=8, leader=B, leader_target="b:1"), replace(FACTS, member=A, identity="a/1", leads_in=7),
         Step.FOLLOW, "b:1", "its lease is over"),
        (View(None, ""), FACTS, Step.FOLLOW, "", "there is no record"),
        (View(None, ""), replace(FACTS, may_create=True), Step.CREATE, "", "there is no record"),
        (View(None, ""), replace(FACTS, may_create=True, unfit="sealed"), Step.FOLLOW, "", "sealed"),
        (View(None, ""), replace(FACTS, leads_in=7), Step.LEAD, "", "the record is gone"),
    ],
)  # fmt: skip
def test_decisions(seen: View, facts: Facts, step: Step, target: str, reason: str) -> None:
    """A member that may be a candidate becomes a candidate, a leader continues, and all other members follow."""
    found = decide(seen, facts, LONG_MS)
    assert (found.step, found.target) == (step, target)
    assert reason in found.reason


def test_a_successor_goes_first() -> None:
    """The other members wait for the successor for a limited time."""
    released = view(leader=None, leader_target="", successor="a")
    assert decide(released, FACTS, SUCCESSOR_MS - 1).step is Step.FOLLOW
    assert decide(released, FACTS, SUCCESSOR_MS).step is Step.STAND


@pytest.mark.parametrize(
    ("leader", "in_sync", "min_in_sync", "others"),
    [
        (A, (A, B, C), 2, (C,)),
        (A, (A, B), 2, (A,)),
        (A, (A, B), 1, ()),
        (None, (A, B, C), 2, (A, C)),
        (B, (A, B, C), 2, (A, C)),
        (NEW_B, (NEW_B, B, A), 2, (A,)),
    ],
)
def test_the_record_of_who_is_elected(
    leader: Member | None, in_sync: tuple[Member, ...], min_in_sync: int, others: tuple[Member, ...]
) -> None:
    """The elected record has the next epoch; a leader that is gone leaves the set if the set stays large enough."""
    record = msgspec.structs.replace(RECORD, leader=leader, in_sync=in_sync, min_in_sync=min_in_sync, successor="b")
    found = elected_record(record, FACTS, "b:1")
    assert (found.epoch, found.leader, found.leader_target, found.successor) == (8, B, "b:1", "")
    assert found.in_sync == (B, *others)
    assert len(found.in_sync) >= min_in_sync
    assert found.floor_physical_offset == record.floor_physical_offset


def test_the_first_record_and_the_last() -> None:
    """The first record has a new epoch and a log in sync with itself; a released record names the successor."""
    first = first_record(None, FACTS, "h", "b:1")
    assert (first.epoch, first.in_sync, first.min_in_sync, first.floor_physical_offset) == (8, (B,), 1, 100)
    assert first_record(view(epoch=20).record, FACTS, "h", "b:1").epoch == 21
    released = released_record(RECORD, "b", leaves=False)
    assert (released.leader, released.leader_target, released.successor, released.epoch) == (None, "", "b", 7)
    assert released.in_sync == released_record(RECORD, "b", leaves=True).in_sync == RECORD.in_sync
    three = msgspec.structs.replace(RECORD, in_sync=(A, B, C))
    assert released_record(three, "b", leaves=True).in_sync == (B, C)
