# SPDX-License-Identifier: Apache-2.0
"""WriteGate: collects the current reasons to refuse appends from all parts of the log.

Callers: the loop that owns the log. The gate does not affect reads.
"""

import enum
from collections.abc import Callable
from functools import partial

from libs.requests.errors import ServiceError, Stopping
from services.commitlog.errors import (
    AppendsRefused,
    LeaseOver,
    NotLeader,
    QueueOffsetsUnknown,
    StoreReplaced,
    StoreSealed,
)


class Reason(enum.Enum):
    """A reason to refuse appends: its name in ErrorReason, and its error. The most important reason comes first."""

    STOPPING = "STOPPING", Stopping
    """The store is being closed, so a new batch would never be synced. Never ends."""
    NOT_LEADER = "NOT_LEADER", NotLeader
    """The log follows another log, or is about to."""
    SEALED = "STORE_SEALED", StoreSealed
    """A write, a commit or a sync failed. Never ends."""
    QUEUE_OFFSETS_UNKNOWN = "QUEUE_OFFSETS_UNKNOWN", QueueOffsetsUnknown
    """The ends of queues whose records are gone are unknown; see QueueOffsetCheck."""
    REPLACED = "STORE_REPLACED", StoreReplaced
    """An Indexer knows a longer log of another history; see OtherHistories."""
    DISK_FULL = "STORE_FULL", partial(AppendsRefused, "the log's disk is used beyond disk_full_percent")
    """Every disk of the log is used beyond disk_full_percent, and no disk has come back to disk_open_percent."""
    DISK_REPORTED_FULL = "STORE_FULL", partial(AppendsRefused, "the Janitor reported the disk as full")
    """The Janitor's last report says that the disk is full."""
    DISK_RESERVE_SHORT = (
        "STORE_FULL",
        partial(AppendsRefused, "the disk of data_dir or of the log has less free space than disk_reserve_bytes"),
    )
    """The disk of data_dir, or each disk of the log, has less free space than the reserve."""

    def __init__(self, error_reason: str, error: Callable[[], ServiceError]) -> None:
        self.error_reason = error_reason
        self.error = error


class WriteGate:
    """The gate for appends, open while no reason holds. `check_lease` raises LeaseOver if another log may lead."""

    def __init__(self, check_lease: Callable[[], None] | None = None) -> None:
        self._check_lease = check_lease
        self._leader_target = ""
        self._holding: tuple[Reason, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether appends are accepted."""
        return not self._holding

    def hand_over(self, leader_target: str) -> None:
        """Refuse appends, and name the leader that accepts them. The name is empty if no leader is known."""
        self._leader_target = leader_target
        self.put(Reason.NOT_LEADER, holds=True)

    def holds(self, reason: Reason) -> bool:
        """Return whether appends are refused for this reason, perhaps among others."""
        return reason in self._holding

    def put(self, reason: Reason, *, holds: bool) -> bool:
        """Record whether a reason holds. Returns whether that is a change."""
        is_news = holds != self.holds(reason)
        if is_news:
            self._holding = tuple(each for each in Reason if (holds if each is reason else each in self._holding))
        return is_news

    def check(self) -> None:
        """Raise the error of the first reason that holds: Stopping, NotLeader, StoreSealed or another error."""
        if self._holding:
            self.check_leads()
            raise self.sealed() if self._holding[0] is Reason.SEALED else self._holding[0].error()
        self.check_lease()

    def check_lease(self) -> None:
        """Raise NotLeader if another log may lead by now."""
        try:
            self.check_told()
        except LeaseOver:  # before anything is written, so the caller may safely ask another log
            raise NotLeader("") from None

    def check_told(self) -> None:
        """Raise LeaseOver if another log may lead by now. Then nothing may be acknowledged any more."""
        if self._check_lease is not None:
            self._check_lease()

    def sealed(self) -> ServiceError:
        """Return the error of a failed write that stored nothing. If this log was elected, another log takes over."""
        return StoreSealed() if self._check_lease is None else NotLeader("")

    def check_leads(self) -> None:
        """Raise NotLeader if the log follows another log. Raise Stopping instead if the log also stops."""
        if self.holds(Reason.NOT_LEADER):
            raise Stopping if self.holds(Reason.STOPPING) else NotLeader(self._leader_target)

    def check_room(self) -> None:
        """Raise AppendsRefused while a disk is too full, for all writers."""
        for reason in self._holding:
            if reason.error_reason == "STORE_FULL":
                raise reason.error()

    def refusals(self) -> list[str]:
        """Return the names of the reasons that hold, as in ErrorReason."""
        return list(dict.fromkeys(reason.error_reason for reason in self._holding))
