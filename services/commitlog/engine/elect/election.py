# SPDX-License-Identifier: Apache-2.0
"""Election: what a member should do next, by what it knows of itself and what the coordinator has. Pure.

Invariants: only who is in the recorded in-sync set, with the data directory that is recorded, and with a log that ends
where all of them were at least, is ever elected; each election makes the epoch larger by one; a record that is older
than what a member has promised, or of another history, is never acted on; who has promised a leader not to stand waits,
unless that leader let go of the lease or is the member itself.
docs/replication.md tells the rules to operators.
"""

import enum
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from libs.formats.state.leadership import LeadershipRecord
from libs.formats.state.replication import Member
from services.commitlog.engine.elect.coordinator import View

SUCCESSOR_MS = 2_000
"""So long all others wait for who was named as the next leader."""
BY_PROMISES = "its lease can't be renewed, and all others in sync have promised not to stand for election meanwhile"


class Step(enum.Enum):
    """What to do."""

    LEAD = enum.auto()
    """Go on leading."""
    FOLLOW = enum.auto()
    """Follow `target`, empty if nobody is known to lead. Ends a lead."""
    STAND = enum.auto()
    """Try to be elected."""
    CREATE = enum.auto()
    """Make the record, and lead."""


class Decision(NamedTuple):
    """What to do, and why, in words for operators."""

    step: Step
    reason: str
    target: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """What a member knows of itself. Offsets are physical, ends exclusive."""

    member: Member
    identity: str
    """Under which this process takes leases."""
    history_id: str
    """Empty before the first epoch."""
    promised_epoch: int
    end_physical_offset: int
    leads_in: int = 0
    """Epoch in which this process leads; 0 if it does not."""
    may_create: bool = False
    """Whether it is the one that makes the record of a log that has none."""
    unfit: str = ""
    """Why it can't lead, whatever the record says."""
    is_bound: bool = False
    """Whether it has promised a leader not to stand yet, or may have, before its process was started."""
    is_by_promises: bool = False
    """Whether it leads by such promises of the others, because its lease can't be renewed."""


def decide(view: View, facts: Facts, seen_for_ms: int) -> Decision:
    """Return what to do. `seen_for_ms` is how long the view has been the same."""
    record = view.record
    if record is None:
        return _without_record(facts)
    if reason := _why_apart(record, facts):
        return Decision(Step.FOLLOW, reason)
    if facts.leads_in:
        is_own = (record.epoch, record.leader) == (facts.leads_in, facts.member)
        if is_own and view.holder in ("", facts.identity):  # whether a lease is over or lost its renewal tells
            return Decision(Step.LEAD, BY_PROMISES if facts.is_by_promises else "it was elected")
        return Decision(Step.FOLLOW, "its lease is over", _leader(record, facts))
    if record.leader not in (None, facts.member) and view.holder:
        return Decision(Step.FOLLOW, "another one leads", _leader(record, facts))
    if reason := _why_not(record, facts):
        return Decision(Step.FOLLOW, reason, _leader(record, facts))
    if record.leader is None and record.successor not in ("", facts.member.replica_id) and seen_for_ms < SUCCESSOR_MS:
        return Decision(Step.FOLLOW, f"{record.successor} was named to lead next")
    if facts.is_bound and record.leader not in (None, facts.member):
        reason = "it promised the leader not to stand for election yet, or may have before it was started"
        return Decision(Step.FOLLOW, reason, _leader(record, facts))
    return Decision(Step.STAND, "nobody leads")


def _leader(record: LeadershipRecord, facts: Facts) -> str:
    """Return whom to follow. A leader of this name is this log, or was: with a disk that is gone."""
    is_own = record.leader is None or record.leader.replica_id == facts.member.replica_id
    return "" if is_own else record.leader_target


def _without_record(facts: Facts) -> Decision:
    if facts.leads_in:
        return Decision(Step.LEAD, "it was elected; the record is gone, so the in-sync set can't change")
    if facts.may_create and not facts.unfit:
        return Decision(Step.CREATE, "there is no record, and this log makes it")
    return Decision(Step.FOLLOW, facts.unfit or "there is no record; bootstrap_replica_id says which log makes it")


def _why_apart(record: LeadershipRecord, facts: Facts) -> str:
    """Return why the record is not this log's, or empty."""
    if facts.history_id not in ("", record.history_id):
        return f"the record is of history {record.history_id}, the log of {facts.history_id}"
    if record.epoch < facts.promised_epoch:
        return f"the record went back: it is of epoch {record.epoch}, this log knows of epoch {facts.promised_epoch}"
    return ""


def _why_not(record: LeadershipRecord, facts: Facts) -> str:
    """Return why the log may not be elected, or empty."""
    if facts.member not in record.in_sync:
        return "it is not in the in-sync set, so it may lack what is replicated"
    if facts.end_physical_offset < record.floor_physical_offset:
        return (
            f"it ends at {facts.end_physical_offset}, and {record.floor_physical_offset} was replicated: it lost some"
        )
    return facts.unfit


def first_record(before: LeadershipRecord | None, facts: Facts, history_id: str, target: str) -> LeadershipRecord:
    """Return the record of a log that leads alone, because it is the first, or by an operator's word."""
    return LeadershipRecord(
        history_id=history_id,
        epoch=max(facts.promised_epoch, before.epoch if before else 0) + 1,
        leader=facts.member,
        leader_target=target,
        in_sync=(facts.member,),
        floor_physical_offset=facts.end_physical_offset,
    )


def elected_record(record: LeadershipRecord, facts: Facts, target: str) -> LeadershipRecord:
    """Return the record with this member as its leader.

    The leader before it leaves the in-sync set if that stays large enough: it is not there, and would be waited for.
    """
    me, former = facts.member, record.leader
    others = [one for one in record.in_sync if one != me]
    if former in others and len(others) >= record.min_in_sync:
        others.remove(former)
    return msgspec.structs.replace(
        record, epoch=record.epoch + 1, leader=me, leader_target=target, in_sync=(me, *others), successor=""
    )


def released_record(record: LeadershipRecord, successor: str, *, leaves: bool) -> LeadershipRecord:
    """Return the record of a leader that goes. If `successor` is empty, any member may lead next.

    Who `leaves` is gone for a while: it leaves the in-sync set, too, if that stays large enough.
    """
    in_sync = record.in_sync
    if leaves and len(in_sync) > record.min_in_sync:
        in_sync = tuple(one for one in in_sync if one != record.leader)
    return msgspec.structs.replace(record, leader=None, leader_target="", successor=successor, in_sync=in_sync)
