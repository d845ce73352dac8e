# SPDX-License-Identifier: Apache-2.0
"""Election: decides the next step of a member from its own state and the coordinator's state. Pure.

Invariants:
- A member is elected only if the record lists it in the in-sync set, with the same data directory, and its log reaches
  at least the recorded replicated offset.
- Each election increases the epoch by one.
- A record of another history, or of an epoch below the member's promised epoch, is ignored.
- A member that promised a leader not to stand waits until the promise expires, unless that leader released the lease
  or is the member itself.

docs/replication.md has the rules for operators.
"""

import enum
from typing import NamedTuple

import msgspec
from msgspec import Struct

from libs.formats.state.leadership import LeadershipRecord
from libs.formats.state.replication import Member
from services.commitlog.engine.elect.coordinator import View

SUCCESSOR_MS = 2_000
"""Time during which the other members wait for the successor that the record names."""
BY_PROMISES = "its lease can't be renewed, and all others in sync have promised not to stand for election meanwhile"


class Step(enum.Enum):
    """The next step of a member."""

    LEAD = enum.auto()
    """Continue to lead."""
    FOLLOW = enum.auto()
    """Follow `target`; empty if no leader is known. A leader steps down."""
    STAND = enum.auto()
    """Stand for election."""
    CREATE = enum.auto()
    """Create the first record, and lead."""


class Decision(NamedTuple):
    """The next step, with its reason in words for operators."""

    step: Step
    reason: str
    target: str = ""


class Facts(Struct, frozen=True):
    """The member's own state. Offsets are physical, ends exclusive."""

    member: Member
    identity: str
    """Identity of this process at the coordinator."""
    history_id: str
    """Empty before the first epoch."""
    promised_epoch: int
    end_physical_offset: int
    leads_in: int = 0
    """Epoch in which this process leads; 0 if it does not."""
    may_create: bool = False
    """Whether this member may create the first record."""
    unfit: str = ""
    """Why this member cannot lead, independent of the record; empty if it can."""
    is_bound: bool = False
    """Whether a promise not to stand binds this member, or may bind it from before its process started."""
    is_by_promises: bool = False
    """Whether this member leads by promises of the others, because it cannot renew its lease."""


def decide(view: View, facts: Facts, seen_for_ms: int) -> Decision:
    """Return the next step. `seen_for_ms`: for how many milliseconds the view has been unchanged."""
    record = view.record
    if record is None:
        return _without_record(facts)
    if reason := _why_apart(record, facts):
        return Decision(Step.FOLLOW, reason)
    if facts.leads_in:
        is_own = (record.epoch, record.leader) == (facts.leads_in, facts.member)
        if is_own and view.holder in ("", facts.identity):  # the renewal tells an expired lease from a lost one
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
    """Return the leader to follow. A leader with this member's name is this log, or its former disk: then empty."""
    is_own = record.leader is None or record.leader.replica_id == facts.member.replica_id
    return "" if is_own else record.leader_target


def _without_record(facts: Facts) -> Decision:
    if facts.leads_in:
        return Decision(Step.LEAD, "it was elected; the record is gone, so the in-sync set can't change")
    if facts.may_create and not facts.unfit:
        return Decision(Step.CREATE, "there is no record, and this log makes it")
    return Decision(Step.FOLLOW, facts.unfit or "there is no record; bootstrap_replica_id says which log makes it")


def _why_apart(record: LeadershipRecord, facts: Facts) -> str:
    """Return why the record does not apply to this log, empty if it does."""
    if facts.history_id not in ("", record.history_id):
        return f"the record is of history {record.history_id}, the log of {facts.history_id}"
    if record.epoch < facts.promised_epoch:
        return f"the record went back: it is of epoch {record.epoch}, this log knows of epoch {facts.promised_epoch}"
    return ""


def _why_not(record: LeadershipRecord, facts: Facts) -> str:
    """Return why the log may not be elected, empty if it may."""
    if facts.member not in record.in_sync:
        return "it is not in the in-sync set, so it may lack what is replicated"
    if facts.end_physical_offset < record.floor_physical_offset:
        return (
            f"it ends at {facts.end_physical_offset}, and {record.floor_physical_offset} was replicated: it lost some"
        )
    return facts.unfit


def first_record(before: LeadershipRecord | None, facts: Facts, history_id: str, target: str) -> LeadershipRecord:
    """Return the record of a log that leads alone: the first leader, or a leader that an operator forced."""
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

    The former leader leaves the in-sync set if the set stays large enough: appends would wait for an absent member.
    """
    me, former = facts.member, record.leader
    others = [member for member in record.in_sync if member != me]
    if former in others and len(others) >= record.min_in_sync:
        others.remove(former)
    return msgspec.structs.replace(
        record, epoch=record.epoch + 1, leader=me, leader_target=target, in_sync=(me, *others), successor=""
    )


def released_record(record: LeadershipRecord, successor: str, *, leaves: bool) -> LeadershipRecord:
    """Return the record of a leader that resigns. An empty `successor` lets any member lead next.

    With `leaves` the leader also leaves the in-sync set, if the set stays large enough: it will be absent for a while.
    """
    in_sync = record.in_sync
    if leaves and len(in_sync) > record.min_in_sync:
        in_sync = tuple(member for member in in_sync if member != record.leader)
    return msgspec.structs.replace(record, leader=None, leader_target="", successor=successor, in_sync=in_sync)
