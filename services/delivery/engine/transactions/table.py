# SPDX-License-Identifier: Apache-2.0
"""Table: the open transactions, made of the records of the half topic and of the topic of ended half messages. Pure.

A transaction is open while a half message of it is neither committed, nor rolled back, nor parked. It has several half
messages when its producer repeated it, or when it was appended again: then the former half message ends as renewed.
Invariants: when a half message ends, its whole transaction ends. Half messages of an ended transaction that have no end
record are `stale`, and get their end record later. An id names a single transaction while this is open or among the
transactions that ended last.
Memory: some 700 bytes for each transaction, and 100 for each of the last ENDED_COUNT_MAX ids. Callers: a single thread.
"""

import heapq
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from msgspec import Struct
from msgspec.structs import replace

from libs.formats.records.transaction_record import RENEWED, Ended, Half

ENDED_COUNT_MAX = 20_000
"""How many ids of ended transactions are kept; older ids are looked up in the index."""
STALE_COUNT_MAX = 10_000
"""Outdated entries of the heap of times are dropped together when they outnumber the transactions by this."""


class Timing(Struct, frozen=True):
    """When producers are asked: for the first time and at an interval, in milliseconds."""

    first_ms: int
    interval_ms: int


@dataclass(slots=True, eq=False)
class Transaction:
    """An open transaction."""

    half: Half
    """The newest half message."""
    due_ms: int
    """When its producer is asked, or the transaction is parked."""
    offsets: set[int] = field(default_factory=set)
    """Queue offsets of its half messages that have not ended."""

    @property
    def is_moving(self) -> bool:
        """Whether it was appended again, and the new half message is not read yet."""
        return self.half.queue_offset not in self.offsets

    @property
    def ids(self) -> tuple[str, ...]:
        """Its id, and the offset id of its first half message if that differs."""
        return tuple(dict.fromkeys((self.half.id, self.half.first_offset_id)))


class Table:
    """The open transactions of an ownership, and the ids of the transactions that ended last."""

    def __init__(self, timing: Timing) -> None:
        self.read_to = self.ended_read_to = 0
        """Queue offsets in the two topics: all records before them were read."""
        self.stale: dict[int, tuple[tuple[str, ...], str]] = {}
        """Half messages of ended transactions without an end record, with the ids and the end of the transaction."""
        self._timing = timing
        self._open: dict[str, Transaction] = {}
        self._by_offset: dict[int, Transaction] = {}
        self._aliases: dict[str, str] = {}
        """Ids by first offset ids."""
        self._early: dict[int, Ended] = {}
        """End records of half messages that were not read yet."""
        self._ended: OrderedDict[str, str] = OrderedDict()
        self._said: deque[tuple[int, int]] = deque()
        """End records: their queue offset, and the highest half message that they end."""
        self._due: list[tuple[int, str]] = []
        self._offsets: list[int] = []
        """A heap of half messages. Ended half messages are dropped at the top of the heap."""

    @property
    def count(self) -> int:
        """Number of open transactions."""
        return len(self._open)

    def find(self, name: str) -> Transaction | None:
        """Return an open transaction by its id, or by the offset id of its first half message."""
        return self._open.get(name) or self._open.get(self._aliases.get(name, ""))

    def how_ended(self, name: str) -> str | None:
        """Return how a transaction ended, None if it is not among the transactions that ended last."""
        return self._ended.get(name)

    def all(self) -> list[Transaction]:
        """Return all open transactions, the oldest first."""
        return sorted(self._open.values(), key=lambda one: (one.half.first_time_ms, one.half.id))

    def due(self, now_ms: int, count: int) -> list[Transaction]:
        """Return up to `count` due transactions. The caller calls `put_off`, or ends them."""
        found: list[Transaction] = []
        while self._due and self._due[0][0] <= now_ms and len(found) < count:
            due_ms, name = heapq.heappop(self._due)
            transaction = self._open.get(name)
            if transaction is not None and transaction.due_ms == due_ms:
                found.append(transaction)
        return found

    def put_off(self, transaction: Transaction, due_ms: int) -> None:
        """Set another time at which a transaction is due."""
        transaction.due_ms = due_ms
        heapq.heappush(self._due, (due_ms, transaction.half.id))
        if len(self._due) > 2 * len(self._open) + STALE_COUNT_MAX:
            self._due = [(one.due_ms, name) for name, one in self._open.items()]
            heapq.heapify(self._due)

    def below(self, physical_offset: int, count: int) -> list[Transaction]:
        """Return up to `count` transactions whose half messages lie before a physical offset."""
        found: list[Transaction] = []
        for transaction in self._open.values():
            if len(found) == count:
                break
            if transaction.half.physical_offset < physical_offset and not transaction.is_moving:
                found.append(transaction)
        return found

    def floors(self) -> tuple[int, int]:
        """Return the queue offsets from which on both topics have to be read to know the open transactions."""
        while self._offsets and self._offsets[0] not in self._by_offset and self._offsets[0] not in self.stale:
            heapq.heappop(self._offsets)
        half = min(self._offsets[0], self.read_to) if self._offsets else self.read_to
        while self._said and self._said[0][1] < half:
            self._said.popleft()
        return half, min(self._said[0][0], self.ended_read_to) if self._said else self.ended_read_to

    def apply_half(self, half: Half) -> Transaction | None:
        """Add a half message. Returns its transaction if this is open."""
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
        """Apply an end record of half messages."""
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
        """Drop end records of half messages that are gone. Called when both topics were read to their ends."""
        self._early = {offset: said for offset, said in self._early.items() if offset >= self.read_to}

    def _add(self, half: Half) -> None:
        transaction = Transaction(half, 0, {half.queue_offset})
        self._open[half.id] = self._by_offset[half.queue_offset] = transaction
        if half.first_offset_id != half.id:
            self._aliases[half.first_offset_id] = half.id
        self.put_off(transaction, self._due_ms(half))

    def _join(self, transaction: Transaction, half: Half) -> None:
        """Add a further half message to a transaction: a repeated half message, or a renewed half message."""
        former = transaction.half
        self._by_offset[half.queue_offset] = transaction
        transaction.offsets.add(half.queue_offset)
        if half.first_offset_id == former.first_offset_id or half.check_count > former.check_count:
            first_id, first_time_ms = former.first_offset_id, former.first_time_ms
            transaction.half = replace(half, first_offset_id=first_id, first_time_ms=first_time_ms)
        if half.check_count > former.check_count:
            self.put_off(transaction, self._due_ms(half))

    def _end(self, name: str, ids: tuple[str, ...], how: str) -> None:
        """Remove a transaction that ended. Its half messages without an end record are stale."""
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
