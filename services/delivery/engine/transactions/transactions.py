# SPDX-License-Identifier: Apache-2.0
"""Transactions: ends half messages as their producers decide, and asks producers that have not decided.

A half message is open if the half topic has it and the topic of ended half messages has no end record of it. An end is
a single batch of the log: the message in its own topic, if it is committed, and the end record. A check appends the
half message again, in the same batch as the end record of the former half message, so that the check is counted and
retention does not remove the half message.
Invariants: a transaction is changed by a single call at a time. An answer of the log is in the table before any other
call continues, also when the caller is gone. If the log may have appended without an answer, the ownership ends, and
the next ownership reads everything anew.
Callers: the event loop's thread. Memory: that of the table, `transaction_count_max` transactions; further half messages
are not read. Bodies are read when they are needed.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence
from typing import Any
from weakref import WeakValueDictionary

from msgspec import Struct

from libs.formats.records.transaction_record import COMMIT, PARKED, RENEWED, ROLLBACK, Ended, Half
from libs.machine.loop import SupervisedLoop
from libs.machine.uninterrupted import uninterrupted
from libs.requests.errors import BadArgument, DependencyUnavailable, WindowFull
from services.delivery.config import DeliveryConfig
from services.delivery.engine.journal.journal import Journal
from services.delivery.engine.journal.store_time import StoreTime
from services.delivery.engine.ports.halves import HalfIndex
from services.delivery.engine.ports.log import Log
from services.delivery.engine.ports.messages import JournaledMessage
from services.delivery.engine.ports.waits import BEHIND_S, INDEXED_LOOK_S, INDEXED_WAIT_S, READ_WAIT_S
from services.delivery.engine.state.tally import Tally
from services.delivery.engine.transactions import messages, table
from services.delivery.engine.transactions.checks import Checks
from services.delivery.engine.transactions.table import Table, Timing, Transaction
from services.delivery.errors import AppendRefused, TransactionEnded, TransactionNotFound, TransactionRefused

ARRIVAL_S = 0.05
"""How long an end waits for its half message before it asks how far the index is."""
AGAIN_MS = 1_000
TEND_COUNT, TEND_SIZE_BYTES = 200, 8 << 20
"""Transactions of a check, and the approximate size of the transactions that are checked side by side."""
TEND_ROUNDS = 20

_log = logging.getLogger(__name__)


class Check(Struct, frozen=True):
    """A transaction whose producer is asked how it ends, and its message."""

    half: Half
    message: Any


class Transactions:
    """The transactions of an ownership. Its time is the log's time.

    `load` and `start` it, `run_maintenance` about once a second, `stop` it in the end.
    """

    def __init__(
        self, journal: Journal, tally: Tally, *, log: Log, halves: HalfIndex, time: StoreTime, config: DeliveryConfig
    ) -> None:
        timing = Timing(config.transaction_first_check_ms, config.transaction_check_interval_ms)
        self.table = Table(timing)
        self._journal, self._tally, self._log, self._halves = journal, tally, log, halves
        self._time, self._config = time, config
        self._checks = Checks()
        self._news = asyncio.Event()
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._stored = (0, 0)
        self._kept = -1
        """The physical offset of the segment before which no transaction has its half message."""
        self._feed = SupervisedLoop(
            "half messages", self._read, backoff_ms_max=2_000, expected_errors=(DependencyUnavailable,)
        )

    async def load(self) -> None:
        """Read the open transactions. Raises DependencyUnavailable."""
        self._stored = await self._halves.floors()
        half_floor, ended_floor = self._stored
        self.table.read_to, self.table.ended_read_to = half_floor, max(0, ended_floor - table.ENDED_COUNT_MAX)
        await self._read_ends(is_start=True)
        while not self._is_full:
            pulled = await self._halves.halves(self.table.read_to, wait_s=0)
            is_end = pulled.next_queue_offset >= pulled.max_queue_offset
            if not is_end and pulled.next_queue_offset <= self.table.read_to:
                raise DependencyUnavailable("indexer", "it does not give the half messages that it has")
            self._apply(pulled.found, pulled.next_queue_offset)
            if is_end:
                break
        self.table.settle()

    def start(self) -> None:
        """Begin to read further half messages."""
        self._feed.start()

    async def stop(self) -> None:
        """Stop reading."""
        await self._feed.stop()

    async def end(self, name: str, producer_group: str, how: str) -> bool:
        """End a transaction, by its id or the offset id of its half message. Returns whether it had ended so before.

        Raises TransactionNotFound, TransactionEnded if it ended in another way, TransactionRefused, BadArgument for
        another producer group ("" is any), WindowFull, and the errors of the log and the index.
        """
        return await uninterrupted(self._end(name, producer_group, how))

    async def checks(self, producer_groups: Sequence[str], count: int, *, wait_s: float) -> list[Check]:
        """Return transactions about which these producers are asked; wait for the first transaction."""
        names = self._checks.take(producer_groups, count)
        if not names and wait_s:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(wait_s):
                    while not (names := self._checks.take(producer_groups, count)):
                        await self._checks.wait()
        found: list[Check] = []
        for name in names:
            transaction = self.table.find(name)
            message = None if transaction is None else await self._halves.message(transaction.half)
            if transaction is not None and message is not None:
                found.append(Check(transaction.half, message))
        return found

    async def run_maintenance(self) -> None:
        """Check due transactions, end stale half messages, and store from where on both topics have to be read.

        Raises the errors of the journal, the log and the index.
        """
        await self._check_due()
        for offset, (ids, how) in list(self.table.stale.items()):
            await self._journal.write([], messages.ended([offset], ids, how), is_safe=True)
            self.table.apply_ended(Ended(-1, (offset,), ids, how))
        await self._read_ends()
        self.table.settle()
        floors = self.table.floors()
        if floors != self._stored:
            await self._halves.store_floors(*floors)
            self._stored = floors

    async def _check_due(self) -> None:
        """Check due transactions, and append half messages again that lie in a segment that retention may remove."""
        active = await self._log.active_segment()
        for _ in range(TEND_ROUNDS):
            due = self.table.due(self._time.now_ms(), TEND_COUNT)
            for one in due:
                self.table.put_off(one, self._time.now_ms() + AGAIN_MS)  # in case the check fails
            old = self.table.below(active, TEND_COUNT) if active != self._kept else []
            if not old:
                self._kept = active
            if not due and not old:
                return
            for some in _portions([*due, *(one for one in old if one not in due)]):
                checking = (self._check(one, is_due=one in due) for one in some)
                for outcome in await asyncio.gather(*checking, return_exceptions=True):
                    if isinstance(outcome, BaseException):
                        raise outcome

    @property
    def _is_full(self) -> bool:
        return self.table.count >= self._config.transaction_count_max

    async def _read(self) -> None:
        """Read half messages, and wait for the first; or wait until there is room."""
        if self._is_full:
            await self._heard(BEHIND_S)
            return
        pulled = await self._halves.halves(self.table.read_to, wait_s=READ_WAIT_S)
        if pulled.next_queue_offset < self.table.read_to:
            await asyncio.sleep(BEHIND_S)  # the index is being built again
        else:
            self._apply(pulled.found, pulled.next_queue_offset)

    def _apply(self, halves: Sequence[Half], read_to: int) -> None:
        for half in halves:
            transaction = self.table.apply_half(half)
            if transaction is not None and half.check_count and not transaction.is_moving:
                self._checks.offer(half.producer_group, half.id)
        self.table.read_to = read_to
        self._tell()

    async def _read_ends(self, *, is_start: bool = False) -> None:
        while True:
            position = self.table.ended_read_to
            pulled = await self._halves.ends(position)
            if pulled.next_queue_offset < position and not is_start:
                return  # the index is being built again
            is_end = pulled.next_queue_offset >= pulled.max_queue_offset
            if not is_end and pulled.next_queue_offset <= position:
                raise DependencyUnavailable("indexer", "it does not give the ends of transactions that it has")
            for said in pulled.found:
                self.table.apply_ended(said)
            self.table.ended_read_to = pulled.next_queue_offset
            if is_end:
                return

    async def _end(self, name: str, producer_group: str, how: str) -> bool:
        while True:
            transaction = await self._find(name)
            if transaction is None:
                return await self._ended(name, how)
            async with self._lock(transaction.half.id):
                if self.table.find(name) is transaction and not transaction.is_moving:
                    await self._resolve(transaction, producer_group, how)
                    return False

    async def _find(self, name: str) -> Transaction | None:
        """Return an open transaction, None if it is certain that none has this name."""
        if self._known(name) is None:
            await self._heard(ARRIVAL_S)
        if self._known(name) is None:
            await self._catch_up()
        try:
            async with asyncio.timeout(INDEXED_WAIT_S):
                while (transaction := self.table.find(name)) is not None and transaction.is_moving:
                    await self._heard(BEHIND_S)
        except TimeoutError:
            raise DependencyUnavailable("indexer", f"it does not have transaction {name} as it is now yet") from None
        return transaction

    def _known(self, name: str) -> object:
        return self.table.find(name) or self.table.how_ended(name)

    async def _ended(self, name: str, how: str) -> bool:
        """Return true if a transaction ended so before. Raises TransactionNotFound and TransactionEnded."""
        before = self.table.how_ended(name)
        if before is None:
            before = await self._halves.how_ended(name)
        if before is None:
            raise TransactionNotFound(name)
        if before != how:
            raise TransactionEnded(name, before)
        return True

    async def _catch_up(self) -> None:
        """Wait until all half messages that the log has now are read. Raises the journal's errors, and WindowFull.

        A record of the journal marks the end of the log: a log that follows by now, or another log, refuses it.
        """
        end = (await self._journal.write([], is_safe=True)).physical_offset
        try:
            async with asyncio.timeout(INDEXED_WAIT_S):
                while await self._halves.indexed() < end:
                    await self._heard(INDEXED_LOOK_S)
                half_end = await self._halves.half_end()
                while self.table.read_to < half_end:
                    if self._is_full:
                        raise WindowFull("transactions that are open", limit=self._config.transaction_count_max)
                    await self._heard(INDEXED_LOOK_S)
        except TimeoutError:
            raise DependencyUnavailable("indexer", "it has not come to the end of the log yet") from None

    async def _resolve(self, transaction: Transaction, producer_group: str, how: str) -> None:
        half = transaction.half
        if producer_group and producer_group != half.producer_group:
            reason = f"transaction {half.id} is of another producer group"
            raise BadArgument(reason, field="producer_group", value=producer_group, limit=half.producer_group)
        message = await self._halves.message(half) if how == COMMIT else None
        if how == COMMIT and message is None:
            await self._give_up(transaction)
            raise TransactionNotFound(half.id)
        copies = [messages.committed(half, message)] if how == COMMIT else []
        try:
            await self._write(transaction, copies, how)
        except AppendRefused as error:
            raise TransactionRefused(half.id, str(error)) from error

    async def _check(self, transaction: Transaction, *, is_due: bool) -> None:
        """Append a half message again and let its producer be asked, or park it. If it is not due, only append it."""
        half = transaction.half
        async with self._lock(half.id):
            if self.table.find(half.id) is not transaction:
                return
            half = transaction.half
            message = None if transaction.is_moving else await self._halves.message(half)
            if transaction.is_moving:
                return
            if message is None:
                await self._give_up(transaction)
            elif is_due and half.check_count >= self._config.transaction_check_count_max:
                await self._write_checked(transaction, messages.parked(half, message), PARKED)
            else:
                again = messages.renewed(half, message, half.check_count + is_due)
                if await self._write_checked(transaction, again, RENEWED):
                    self._tally.checked_count += is_due
                else:  # an older version stored it without room for the added properties
                    await self._write_checked(transaction, messages.parked(half, message), PARKED)

    async def _write_checked(self, transaction: Transaction, letter: JournaledMessage, how: str) -> bool:
        """Write the outcome of a check. Returns whether the log took it."""
        try:
            await self._write(transaction, [letter], how)
        except AppendRefused as error:
            what = "is parked" if how == RENEWED else "is tried again"
            _log.error("transaction %s can't be checked, and %s: %s", transaction.half.id, what, error)
            self.table.put_off(transaction, self._time.now_ms() + self._config.transaction_check_interval_ms)
            return False
        return True

    async def _give_up(self, transaction: Transaction) -> None:
        """Roll back a transaction whose half message is gone from the log."""
        _log.error("the half message of transaction %s is gone: it is rolled back", transaction.half.id)
        await self._write(transaction, [], ROLLBACK)

    async def _write(self, transaction: Transaction, copies: Sequence[JournaledMessage], how: str) -> None:
        """Append the end records of a transaction's half messages, together with its copies."""
        half, offsets, ids = transaction.half, tuple(transaction.offsets), transaction.ids
        await self._journal.write([], [*copies, *messages.ended(offsets, ids, how)], is_safe=True)
        self.table.apply_ended(Ended(-1, offsets, ids, how))
        if how != RENEWED:
            self._checks.drop(half.producer_group, half.id)
        self._tally.ended(how)
        self._tell()

    def _lock(self, name: str) -> asyncio.Lock:
        return self._locks.setdefault(name, asyncio.Lock())

    def _tell(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    async def _heard(self, wait_s: float) -> None:
        """Wait for a change of the table, at most `wait_s`."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._news.wait()


def _portions(transactions: Sequence[Transaction]) -> list[list[Transaction]]:
    """Divide transactions into parts of at most TEND_SIZE_BYTES; a single larger transaction is a part."""
    parts: list[list[Transaction]] = []
    size_bytes = TEND_SIZE_BYTES
    for one in transactions:
        size_bytes += one.half.size_bytes
        if size_bytes > TEND_SIZE_BYTES:
            parts.append([])
            size_bytes = one.half.size_bytes
        parts[-1].append(one)
    return parts
