# SPDX-License-Identifier: Apache-2.0
"""Table: the transactions that are open, made of what the half topic and the topic of the ended ones say. Pure.

A transaction is open while one of its half messages is neither committed, nor rolled back, nor parked. It has several
when its sender repeated it, or when it was appended again: then the former one ends as renewed.
Invariants: what has ended by any of its half messages has ended as a whole; what comes later of it is `stale`, and ends
too; an id names one transaction, as long as that is open or among the last ones that ended.
Memory: some 700 bytes for each transaction, and 100 for each of the last ENDED_COUNT_MAX ids. Callers: one thread.
"""

import heapq
from collections import OrderedDict, deque
from dataclasses import dataclass, field, replace

from libs.formats.records.transaction_record import RENEWED, Ended, Half

ENDED_COUNT_MAX = 20_000
"""How many ids of ended transactions are remembered; older ones are looked up in the index."""
STALE_COUNT_MAX = 10_000
"""Entries of the heap of times that are dropped by the way only, besides as many as there are transactions."""


@dataclass(frozen=True, slots=True)
class Timing:
    """When producers are asked, in milliseconds."""

    first_ms: int
    interval_ms: int


@dataclass(slots=True, eq=False)
class Transaction:
    """One that is open."""

    half: Half
    """The newest."""
    due_ms: int
    """When its producer is asked, or it is parked."""
    offsets: set[int] = field(default_factory=set)
    """Of its half messages that have not ended."""

    @property
    def is_moving(self) -> bool:
        """Whether it was appended again, and the table has not heard of the new half message yet."""
        return self.half.queue_offset not in self.offsets

    @property
    def ids(self) -> tuple[str, ...]:
        """What it is known as."""
        return tuple(dict.fromkeys((self.half.id, self.half.first_offset_id)))


class Table:
    """See the module."""

    def __init__(self, timing: Timing) -> None:
        self.read_to = self.ended_read_to = 0
        """Queue offsets of the two topics: what lies before them was read."""
        self.stale: dict[int, tuple[tuple[str, ...], str]] = {}
        """Half messages of ended transactions, and their ids and end: nothing says yet that they have ended, too."""
        self._timing = timing
        self._open: dict[str, Transaction] = {}
        self._by_offset: dict[int, Transaction] = {}
        self._aliases: dict[str, str] = {}
        """Ids by first offset ids."""
        self._early: dict[int, Ended] = {}
        """What was said of half messages that were not read yet."""
        self._ended: OrderedDict[str, str] = OrderedDict()
        self._said: deque[tuple[int, int]] = deque()
        """Records that say what has ended: their queue offset, and the highest half message that they speak of."""
        self._due: list[tuple[int, str]] = []
        self._offsets: list[int] = []
        """A heap of half messages. Those that have ended are dropped when they come up."""

    @property
    def count(self) -> int:
        """Transactions that are open."""
        return len(self._open)

    def find(self, name: str) -> Transaction | None:
        """Return an open transaction by its id, or by the offset id of its first half message."""
        return self._open.get(name) or self._open.get(self._aliases.get(name, ""))

    def how_ended(self, name: str) -> str | None:
        """Return how a transaction ended, None for one that is not among the last ones."""
        return self._ended.get(name)

    def all(self) -> list[Transaction]:
        """Return all that are open, the oldest first."""
        return sorted(self._open.values(), key=lambda one: (one.half.first_time_ms, one.half.id))

    def due(self, now_ms: int, count: int) -> list[Transaction]:
        """Return up to so many transactions whose time has come. `put_off` them, or let them end."""
        found: list[Transaction] = []
        while self._due and self._due[0][0] <= now_ms and len(found) < count:
            due_ms, name = heapq.heappop(self._due)
            transaction = self._open.get(name)
            if transaction is not None and transaction.due_ms == due_ms:
                found.append(transaction)
        return found

    def put_off(self, transaction: Transaction, due_ms: int) -> None:
        """Let a transaction be due at another time."""
        transaction.due_ms = due_ms
        heapq.heappush(self._due, (due_ms, transaction.half.id))
        if len(self._due) > 2 * len(self._open) + STALE_COUNT_MAX:
            self._due = [(one.due_ms, name) for name, one in self._open.items()]
            heapq.heapify(self._due)

    def below(self, physical_offset: int, count: int) -> list[Transaction]:
        """Return up to so many transactions whose half messages lie before a place of the log."""
        found: list[Transaction] = []
        for transaction in self._open.values():
            if len(found) == count:
                break
            if transaction.half.physical_offset < physical_offset and not transaction.is_moving:
                found.append(transaction)
        return found

    def floors(self) -> tuple[int, int]:
        """Return from where on both topics have to be read to know what is open."""
        while self._offsets and self._offsets[0] not in self._by_offset and self._offsets[0] not in self.stale:
            heapq.heappop(self._offsets)
        half = min(self._offsets[0], self.read_to) if self._offsets else self.read_to
        while self._said and self._said[0][1] < half:
            self._said.popleft()
        return half, min(self._said[0][0], self.ended_read_to) if self._said else self.ended_read_to

    def apply_half(self, half: Half) -> Transaction | None:
        """Let a half message be there. Returns its transaction if that is open."""
        said = self._early.pop(half.queue_offset, None) or self._early.get(half.former_offset)
        transaction = self._open.get(half.id)
        if said is not None and said.how != RENEWED:
            self._end(half.id, (half.id, half.first_offset_id, *said.ids), said.how)
        elif said is None and half.queue_offset not in self._by_offset:
            heapq.heappush(self._offsets, half.queue_offset)
            if (how := self._ended.get(half.id)) is not None:
                self.stale[half.queue_offset] = ((half.id, half.first_offset_id), how)
            elif transaction is None:
                self._add(half)
            else:
                self._join(transaction, half)
        return self._open.get(half.id)

    def apply_ended(self, said: Ended) -> None:
        """Let half messages have ended."""
        for offset in said.half_offsets:
            self.stale.pop(offset, None)
            transaction = self._by_offset.get(offset)
            if transaction is None:
                if offset >= self.read_to or said.how != RENEWED:
                    self._early[offset] = said
            elif said.how == RENEWED:
                del self._by_offset[offset]
                transaction.offsets.discard(offset)
            else:
                transaction.offsets.discard(offset)
                del self._by_offset[offset]
                self._end(transaction.half.id, (*transaction.ids, *said.ids), said.how)
        for name in said.ids if said.how != RENEWED else ():
            self._remember(name, said.how)
        if said.queue_offset >= 0:
            self._said.append((said.queue_offset, max(said.half_offsets)))

    def settle(self) -> None:
        """Forget what was said of half messages that are gone: both topics were read to their ends."""
        self._early = {offset: said for offset, said in self._early.items() if offset >= self.read_to}

    def _add(self, half: Half) -> None:
        transaction = Transaction(half, 0, {half.queue_offset})
        self._open[half.id] = self._by_offset[half.queue_offset] = transaction
        if half.first_offset_id != half.id:
            self._aliases[half.first_offset_id] = half.id
        self.put_off(transaction, self._due_ms(half))

    def _join(self, transaction: Transaction, half: Half) -> None:
        """Let a half message be one more of a transaction: a repeated one, or the one that takes its place."""
        former = transaction.half
        self._by_offset[half.queue_offset] = transaction
        transaction.offsets.add(half.queue_offset)
        if half.first_offset_id == former.first_offset_id or half.check_count > former.check_count:
            first_id, first_time_ms = former.first_offset_id, former.first_time_ms
            transaction.half = replace(half, first_offset_id=first_id, first_time_ms=first_time_ms)
        if half.check_count > former.check_count:
            self.put_off(transaction, self._due_ms(half))

    def _end(self, name: str, ids: tuple[str, ...], how: str) -> None:
        """Forget a transaction. What of it has not ended by itself is stale."""
        for one in ids:
            self._remember(one, how)
        transaction = self._open.pop(name, None)
        if transaction is None:
            return
        self._aliases.pop(transaction.half.first_offset_id, None)
        for offset in transaction.offsets:
            del self._by_offset[offset]
            self.stale[offset] = (transaction.ids, how)

    def _remember(self, name: str, how: str) -> None:
        self._ended[name] = self._ended.pop(name, how) or how
        while len(self._ended) > ENDED_COUNT_MAX:
            self._ended.popitem(last=False)

    def _due_ms(self, half: Half) -> int:
        if half.check_count:
            return half.store_time_ms + self._timing.interval_ms
        return half.first_time_ms + (self._timing.first_ms if half.immunity_ms is None else half.immunity_ms)
