# SPDX-License-Identifier: Apache-2.0
"""Counters of deliveries, transactions and delayed messages, as metrics show them.

Totals count from the start of the process, over all its ownerships. From any thread.
"""

from collections.abc import Mapping

from msgspec import Struct

from libs.machine.durations import Durations
from services.delivery.engine.own.journal_owner import JournalOwner
from services.delivery.engine.receive.filters import FilterCount


class GroupCounters(Struct, frozen=True):
    """The counters of deliveries, since the start of the process."""

    is_owner: int
    """1 while this process delivers."""
    groups_known: int
    """Groups that share messages."""
    messages_open: int
    """Messages in flight, waiting for the next attempt, or held."""
    received_total: int
    """Messages that receivers got."""
    redelivered_total: int
    """Messages that receivers got again."""
    settled_total: int
    """Messages that were acknowledged or buried."""
    postponed_total: int
    """Messages whose next attempt a receiver moved."""
    dead_letters_total: int
    """Messages that became dead letters."""
    replayed_letters_total: int
    """Dead letters that were sent again."""
    taken_over_total: int
    """How often the journal was read."""


class DeadLetterCounters(Struct, frozen=True):
    """The counters of a group's dead letters, since the start of the process."""

    messages_total: int
    """Messages of the group that became dead letters, for the first 1,000 groups with dead letters."""


class TransactionCounters(Struct, frozen=True):
    """The counters of transactions, since the start of the process."""

    transactions_open: int
    """Transactions that have no end yet."""
    committed_total: int
    """Transactions that were committed."""
    rolled_back_total: int
    """Transactions that were rolled back."""
    parked_total: int
    """Transactions whose producers did not end them after all checks."""
    checked_total: int
    """How often a producer was to be asked for the end of a transaction."""


class DelayCounters(Struct, frozen=True):
    """The counters of delayed messages, since the start of the process."""

    messages_waiting: int
    """Delayed messages that are not due."""
    messages_due: int
    """Delayed messages that are due and not delivered yet."""
    messages_refused: int
    """Delayed messages that are due, and that the log did not take."""
    delivered_total: int
    """Delayed messages that were delivered."""
    late_ms_total: int
    """Time by which all delivered delayed messages were late, together, by their store times."""
    cancelled_total: int
    """Delayed messages that were cancelled."""
    rolled_total: int
    """How often a delayed message was appended again to wait on."""
    lost_total: int
    """Delayed messages that were gone from the log before they were due."""


class DelayLevelCounters(Struct, frozen=True):
    """The counters of messages with a delay level, since the start of the process."""

    messages_waiting: int
    """Messages with a delay level that are not delivered yet."""
    delivered_total: int
    """Messages with a delay level that were delivered."""
    lost_total: int
    """Messages with a delay level that were gone from the log before they were delivered."""
    lateness_ms: int
    """Time since the earliest due message became due."""
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

    def dead_letters(self) -> Mapping[tuple[str, ...], DeadLetterCounters]:
        """Return the counters of dead letters, by group."""
        return {
            (group,): DeadLetterCounters(count)
            for group, count in self._owner.tally.dead_letters_by_group.copy().items()
        }

    def settle_durations(self) -> Mapping[tuple[str, ...], Durations]:
        """Return the times from deliveries to acknowledgements."""
        return {(): self._owner.tally.settle_durations}

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
