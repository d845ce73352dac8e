# SPDX-License-Identifier: Apache-2.0
"""Tally: counts the outcomes of messages, over all ownerships of a process."""

from collections import Counter

from msgspec import Struct, field

from libs.formats.records.transaction_record import COMMIT, PARKED, ROLLBACK
from libs.machine.durations import Durations

GROUP_COUNT_MAX = 1_000
"""Groups whose dead letters are counted one by one. Dead letters of further groups count in the sum alone."""


class Tally(Struct):
    """Counts since the start of the process."""

    received_count: int = 0
    """Deliveries, with repeated deliveries."""
    redelivered_count: int = 0
    settled_count: int = 0
    """Acknowledged, or terminated by their consumers."""
    postponed_count: int = 0
    """Given back, or extended."""
    dead_letter_count: int = 0
    dead_letters_by_group: Counter[str] = field(default_factory=Counter)
    settle_durations: Durations = field(default_factory=Durations)
    """Times from deliveries to the acknowledgements of their messages."""
    timed_delivered_count: int = 0
    """Messages that were delivered at their time."""
    timed_late_ms: int = 0
    """The sum of their delays after their due times."""
    timed_cancelled_count: int = 0
    timed_rolled_count: int = 0
    """Appended again to be kept longer."""
    timed_lost_count: int = 0
    """Messages that were gone from the log before they were due."""
    levels_delivered_count: int = 0
    """Messages with a delay level that were delivered."""
    levels_lost_count: int = 0
    """Messages with a delay level that were gone from the log before they were delivered."""
    replayed_count: int = 0
    """Dead letters that were appended to their original topics again."""
    committed_count: int = 0
    """Committed transactions; the next two: transactions that were rolled back, and parked."""
    rolled_back_count: int = 0
    parked_count: int = 0
    checked_count: int = 0
    """How often a producer was to be asked for a transaction's end."""

    def buried(self, group: str) -> None:
        """Count a message of a group that became a dead letter."""
        self.dead_letter_count += 1
        if group in self.dead_letters_by_group or len(self.dead_letters_by_group) < GROUP_COUNT_MAX:
            self.dead_letters_by_group[group] += 1

    def ended(self, how: str) -> None:
        """Count a transaction that ended this way."""
        self.committed_count += how == COMMIT
        self.rolled_back_count += how == ROLLBACK
        self.parked_count += how == PARKED
