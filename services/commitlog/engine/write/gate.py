# SPDX-License-Identifier: Apache-2.0
"""WriteGate: the reasons why appends are refused right now, from whoever finds them, in one place.

Callers: the loop that owns the log. Reading stays possible whatever the gate says.
"""

import enum
from collections.abc import Callable
from functools import partial

from libs.requests.errors import ServiceError, Stopping
from services.commitlog.errors import AppendsRefused, QueueOffsetsUnknown, StoreSealed


class Reason(enum.Enum):
    """Why appends are refused, the most important first: its name in ErrorReason, and the error that tells it."""

    STOPPING = "STOPPING", Stopping
    """The store is being closed: what came now would never be synced. Never ends."""
    SEALED = "STORE_SEALED", StoreSealed
    """A write, a commit or a sync failed. Never ends."""
    QUEUE_OFFSETS_UNKNOWN = "QUEUE_OFFSETS_UNKNOWN", QueueOffsetsUnknown
    """Nobody knows how far the queues were whose records are gone; see QueueOffsetCheck."""
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
    """Open as long as no reason holds."""

    def __init__(self) -> None:
        self._holding: tuple[Reason, ...] = ()

    @property
    def is_open(self) -> bool:
        """Whether appends are accepted."""
        return not self._holding

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
        """Raise Stopping, StoreSealed, QueueOffsetsUnknown or AppendsRefused for the first reason that holds."""
        if self._holding:
            raise self._holding[0].error()

    def refusals(self) -> list[str]:
        """Return the names of the reasons that hold, as in ErrorReason."""
        return list(dict.fromkeys(reason.error_reason for reason in self._holding))
