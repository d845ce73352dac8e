# SPDX-License-Identifier: Apache-2.0
"""Tally: how many messages went which way, over all times that a process delivers."""

from dataclasses import dataclass

from libs.formats.records.transaction_record import COMMIT, PARKED, ROLLBACK


@dataclass(slots=True)
class Tally:
    """Counts since the process began."""

    received_count: int = 0
    """Deliveries, the repeated ones among them."""
    redelivered_count: int = 0
    settled_count: int = 0
    """Acknowledged, or given up by their receivers."""
    postponed_count: int = 0
    """Given back, or kept for longer."""
    dead_letter_count: int = 0
    timed_delivered_count: int = 0
    """Messages that were delivered at their time."""
    timed_late_ms: int = 0
    """How late all of them were, together."""
    timed_cancelled_count: int = 0
    timed_rolled_count: int = 0
    """Appended again to wait on."""
    timed_lost_count: int = 0
    """Gone from the log before they were due."""
    replayed_count: int = 0
    """Dead letters that went back to where they came from."""
    committed_count: int = 0
    """Transactions that ended so; as below."""
    rolled_back_count: int = 0
    parked_count: int = 0
    checked_count: int = 0
    """How often a producer was to be asked."""

    def ended(self, how: str) -> None:
        """Count the end of a transaction."""
        self.committed_count += how == COMMIT
        self.rolled_back_count += how == ROLLBACK
        self.parked_count += how == PARKED
