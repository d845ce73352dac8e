# SPDX-License-Identifier: Apache-2.0
"""WriteGate: the reasons why appends are refused right now, from whoever finds them, in one place.

Callers: the loop that owns the log. Reading stays possible whatever the gate says.
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
    """Why appends are refused, the most important first: its name in ErrorReason, and the error that tells it."""

    STOPPING = "STOPPING", Stopping
    """The store is being closed: what came now would never be synced. Never ends."""
    NOT_LEADER = "NOT_LEADER", NotLeader
    """The log follows another one, or is about to."""
    SEALED = "STORE_SEALED", StoreSealed
    """A write, a commit or a sync failed. Never ends."""
    QUEUE_OFFSETS_UNKNOWN = "QUEUE_OFFSETS_UNKNOWN", QueueOffsetsUnknown
    """Nobody knows how far the queues were whose records are gone; see QueueOffsetCheck."""
    REPLACED = "STORE_REPLACED", StoreReplaced
    """An Indexer knows a longer log of another history; see OtherHistories."""
    DISK_FULL = "STORE_FULL", partial(AppendsRefused, "the log's disk is used beyond disk_full_percent")
    """Every disk of the log is used beyond disk_full_percent, and none has come back to disk_open_percent."""
    DISK_REPORTED_FULL = "STORE_FULL", partial(AppendsRefused, "the Janitor reported the disk as full")
    """The Janitor's last verdict."""
    DISK_RESERVE_SHORT = (
        "STORE_FULL",
        partial(AppendsRefused, "the disk of data_dir or of the log has less free space than disk_reserve_bytes"),
    )
    """The disk of data_dir, or each disk of the log, has less free space than the reserve."""

    def __init__(self, error_reason: str, error: Callable[[], ServiceError]) -> None:
        self.error_reason = error_reason
        self.error = error


class WriteGate:
    """Open as long as no reason holds. `check_lease` raises LeaseOver where another log may lead by now."""

    def __init__(self, check_lease: Callable[[], None] | None = None) -> None:
        self._check_lease = check_lease
        self._leader_target = ""
        self._holding: tuple[Reason, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether appends are accepted."""
        return not self._holding

    def hand_over(self, leader_target: str) -> None:
        """Refuse appends, and name who takes them. The name is empty if nobody knows."""
        self._leader_target = leader_target
        self.put(Reason.NOT_LEADER, holds=True)

    def holds(self, reason: Reason) -> bool:
        """Return whether appends are refused for this reason, perhaps among others."""
        return reason in self._holding

    def put(self, reason: Reason, *, holds: bool) -> bool:
        """Take note that a reason holds, or that it does not. Returns whether that is news."""
        is_news = holds != self.holds(reason)
        if is_news:
            self._holding = tuple(each for each in Reason if (holds if each is reason else each in self._holding))
        return is_news

    def check(self) -> None:
        """Raise what tells the first reason that holds: Stopping, NotLeader, StoreSealed or one of the others."""
        if self._holding:
            self.check_leads()
            raise self.sealed() if self._holding[0] is Reason.SEALED else self._holding[0].error()
        self.check_lease()

    def check_lease(self) -> None:
        """Raise NotLeader where another log may lead by now."""
        try:
            self.check_told()
        except LeaseOver:  # before anything is written, so that asking elsewhere is safe
            raise NotLeader("") from None

    def check_told(self) -> None:
        """Raise LeaseOver where another log may lead by now, so that nothing is told as done any more."""
        if self._check_lease is not None:
            self._check_lease()

    def sealed(self) -> ServiceError:
        """Return what tells that a write failed and left nothing: if the log was elected, another one will take it."""
        return StoreSealed() if self._check_lease is None else NotLeader("")

    def check_leads(self) -> None:
        """Raise NotLeader where the log follows another one, and Stopping before that."""
        if self.holds(Reason.NOT_LEADER):
            raise Stopping if self.holds(Reason.STOPPING) else NotLeader(self._leader_target)

    def check_room(self) -> None:
        """Raise AppendsRefused while a disk is too full, whoever writes."""
        for reason in self._holding:
            if reason.error_reason == "STORE_FULL":
                raise reason.error()

    def refusals(self) -> list[str]:
        """Return the names of the reasons that hold, as in ErrorReason."""
        return list(dict.fromkeys(reason.error_reason for reason in self._holding))
