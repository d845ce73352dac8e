# SPDX-License-Identifier: Apache-2.0
"""Counters of deliveries, transactions and delayed messages, as metrics show them.

Totals count from the start of the process, over all its ownerships. From any thread.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from services.delivery.engine.own.journal_owner import JournalOwner
from services.delivery.engine.receive.filters import FilterCount


@dataclass(frozen=True, slots=True)
class GroupCounters:
    """The counters of deliveries, since the start of the process."""

    is_owner: int
    groups_known: int
    messages_open: int
    """In flight, waiting for the next attempt, or held."""
    received_total: int
    redelivered_total: int
    settled_total: int
    postponed_total: int
    dead_letters_total: int
    replayed_letters_total: int
    taken_over_total: int
    """How often the journal was read."""


@dataclass(frozen=True, slots=True)
class TransactionCounters:
    """The counters of transactions, since the start of the process."""

    transactions_open: int
    committed_total: int
    rolled_back_total: int
    parked_total: int
    checked_total: int
    """How often a producer was to be asked."""


@dataclass(frozen=True, slots=True)
class DelayCounters:
    """The counters of delayed messages, since the start of the process."""

    messages_waiting: int
    messages_due: int
    """Due, and not delivered yet."""
    messages_refused: int
    """Due, and the log did not take them."""
    delivered_total: int
    late_ms_total: int
    """How late all of these were, together, by their store times."""
    cancelled_total: int
    rolled_total: int
    """How often a message was appended again to wait on."""
    lost_total: int
    """Gone from the log before they were due."""


@dataclass(frozen=True, slots=True)
class DelayLevelCounters:
    """The counters of messages with a delay level, since the start of the process."""

    messages_waiting: int
    delivered_total: int
    lost_total: int
    """Gone from the log before they were delivered."""
    lateness_ms: int
    """Milliseconds since the earliest due message became due."""
    levels_blocked: int
    """Levels whose last attempt failed."""


class Counters:
    """Reads the counters of an owner."""

    def __init__(self, owner: JournalOwner) -> None:
        self._owner = owner

    def groups(self) -> GroupCounters:
        """Return the counters of groups and their messages."""
        engine, tally = self._owner.current, self._owner.tally
        return GroupCounters(
            is_owner=int(engine is not None),
            groups_known=0 if engine is None else engine.groups.count,
            messages_open=0 if engine is None else engine.groups.open_count,
            received_total=tally.received_count,
            redelivered_total=tally.redelivered_count,
            settled_total=tally.settled_count,
            postponed_total=tally.postponed_count,
            dead_letters_total=tally.dead_letter_count,
            replayed_letters_total=tally.replayed_count,
            taken_over_total=self._owner.began_count,
        )

    def filters(self) -> Mapping[tuple[str, ...], FilterCount]:
        """Return how many different filters members use, by group and topic."""
        engine = self._owner.current
        return {} if engine is None else engine.subscriptions.filters.counts()

    def delay_levels(self) -> DelayLevelCounters:
        """Return the counters of messages with a delay level."""
        engine, tally = self._owner.current, self._owner.tally
        levels = [] if engine is None else engine.delay_levels.levels
        return DelayLevelCounters(
            messages_waiting=sum(level.waiting_count for level in levels),
            delivered_total=tally.levels_delivered_count,
            lost_total=tally.levels_lost_count,
            lateness_ms=max((level.lateness_ms for level in levels), default=0),
            levels_blocked=sum(level.is_blocked for level in levels),
        )

    def transactions(self) -> TransactionCounters:
        """Return the counters of transactions."""
        engine, tally = self._owner.current, self._owner.tally
        return TransactionCounters(
            transactions_open=0 if engine is None else engine.transactions.table.count,
            committed_total=tally.committed_count,
            rolled_back_total=tally.rolled_back_count,
            parked_total=tally.parked_count,
            checked_total=tally.checked_count,
        )

    def delays(self) -> DelayCounters:
        """Return the counters of delayed messages."""
        engine, tally = self._owner.current, self._owner.tally
        delays = None if engine is None else engine.delays
        return DelayCounters(
            messages_waiting=0 if delays is None else delays.count,
            messages_due=0 if delays is None else delays.due_count,
            messages_refused=0 if delays is None else len(delays.refused),
            delivered_total=tally.timed_delivered_count,
            late_ms_total=tally.timed_late_ms,
            cancelled_total=tally.timed_cancelled_count,
            rolled_total=tally.timed_rolled_count,
            lost_total=tally.timed_lost_count,
        )
