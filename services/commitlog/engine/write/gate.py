# SPDX-License-Identifier: Apache-2.0
"""WriteGate: the reasons why appends are refused right now, from whoever finds them, in one place.

Callers: the loop that owns the log. Reading stays possible whatever the gate says.
"""

from services.commitlog.errors import AppendsRefused, QueueOffsetsUnknown, Stopping, StoreSealed


class WriteGate:
    """Open unless one of its flags is set."""

    def __init__(self) -> None:
        self.is_stopping = False
        """The store is being closed: what came now would never be synced. Never cleared."""
        self.is_sealed = False
        """A sync failed. Never cleared."""
        self.is_disk_full = False
        """Every disk of the log is used beyond disk_full_percent, and none has come back to disk_open_percent."""
        self.is_disk_reported_full = False
        """The Janitor's last verdict."""
        self.is_disk_reserve_short = False
        """The disk of data_dir, or each disk of the log, has less free space than the reserve."""
        self.are_queue_offsets_unknown = False
        """Nobody knows how far the queues were whose records are gone; see QueueOffsetCheck."""

    @property
    def is_open(self) -> bool:
        """Whether appends are accepted."""
        return not self.refusals()

    def check(self) -> None:
        """Raise Stopping, StoreSealed, QueueOffsetsUnknown or AppendsRefused for the first reason that holds."""
        if self.is_stopping:
            raise Stopping
        if self.is_sealed:
            raise StoreSealed
        if self.are_queue_offsets_unknown:
            raise QueueOffsetsUnknown
        if self.is_disk_full:
            raise AppendsRefused("the log's disk is used beyond disk_full_percent")
        if self.is_disk_reported_full:
            raise AppendsRefused("the Janitor reported the disk as full")
        if self.is_disk_reserve_short:
            raise AppendsRefused("the disk of data_dir or of the log has less free space than disk_reserve_bytes")

    def refusals(self) -> list[str]:
        """Names of the reasons that hold, as in ErrorReason."""
        reasons = ["STOPPING"] if self.is_stopping else []
        if self.is_sealed:
            reasons.append("STORE_SEALED")
        if self.are_queue_offsets_unknown:
            reasons.append("QUEUE_OFFSETS_UNKNOWN")
        if self.is_disk_full or self.is_disk_reported_full or self.is_disk_reserve_short:
            reasons.append("STORE_FULL")
        return reasons
