# SPDX-License-Identifier: Apache-2.0
"""Ownership: makes this process the one that delivers, and keeps it so while the journal is its alone.

With the first call, or message that waits for its time or for the end of its transaction, it writes into the journal
that it begins, reads what is known, and serves. When the journal can't be written, or another process wrote into it,
all that is known is dropped and read anew: what is in the log counts, and what was answered is in the log.
Callers: the event loop's thread.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial

from libs.formats.records.delivery_record import Began
from libs.formats.records.transaction_record import HALF_QUEUE_ID
from libs.formats.state.system_topics import HALF_TOPIC, TIMER_TOPIC
from libs.machine.clock import Clock
from libs.machine.loop import SupervisedLoop
from libs.machine.trouble import Trouble
from libs.machine.workers import workers
from libs.requests.errors import DependencyUnavailable
from services.delivery.engine.journal import Journal
from services.delivery.engine.owned import Owned
from services.delivery.engine.ports import Index, Log
from services.delivery.engine.receiving.all_filters import FilterCount
from services.delivery.engine.state.groups import Groups
from services.delivery.engine.state.repeats import Repeats
from services.delivery.engine.takeover.copying import JOURNAL_GROUP, JOURNAL_PLACE, Copying
from services.delivery.engine.takeover.handover import come_back, leave
from services.delivery.engine.takeover.loading import load
from services.delivery.engine.tally import Tally
from services.delivery.engine.times.group_time import FormerTime
from services.delivery.engine.times.store_time import StoreTime
from services.delivery.errors import JournalLost, JournalUnreadable, LogFollows, NotOwner

TEND_INTERVAL_S = 1.0
FOLLOW_LOOK_S = 1.0
"""How often it is tried whether a log that follows leads by now."""
NEED_NOBODY = ((TIMER_TOPIC, 0), (HALF_TOPIC, HALF_QUEUE_ID))
"""Queues of messages that are delivered, or asked for, whether or not anybody calls."""
WANTED_WAIT_S = 20.0
WANTED_LOOK_S = 0.5
"""Between two such waits."""
WAIT_S = 3.0
"""How long a call waits until the journal is read."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Counters:
    """What is reported of deliveries. Counts since the process began."""

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
    """What is reported of transactions. Counts since the process began."""

    transactions_open: int
    committed_total: int
    rolled_back_total: int
    parked_total: int
    checked_total: int
    """How often a producer was to be asked."""


@dataclass(frozen=True, slots=True)
class DelayCounters:
    """What is reported of messages that wait for their time. Counts since the process began."""

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


class Ownership:
    """`start` it, `stop` it."""

    def __init__(
        self,
        log: Log,
        index: Index,
        make: Callable[[Groups, Journal, Tally, Repeats], Owned],
        clock: Clock,
        *,
        skip_below: int = 0,
    ) -> None:
        self.began_count = 0
        self.tally, self._repeats = Tally(), Repeats()
        self._log, self._index, self._make, self._clock = log, index, make, clock
        self._skip_below = skip_below
        self._owned: Owned | None = None
        self._former: FormerTime | None = None
        """The time of deliveries at the end of the last ownership."""
        self._reason = "the journal is not read yet"
        self._wanted = asyncio.Event()
        self._decided = asyncio.Event()
        """Set while it is known whether this process delivers."""
        self.stopped = asyncio.Event()
        """Set when this process delivers no more."""
        self.loop = SupervisedLoop(
            "deliveries",
            self._own,
            backoff_ms_min=100,
            backoff_ms_max=2_000,
            expected_errors=(DependencyUnavailable, JournalLost),
        )

    async def owned(self) -> Owned:
        """Return what this process delivers, which it may have to read first. Raises NotOwner.

        It does so at once while the log follows another one, so that callers find the one that delivers quickly.
        """
        self._wanted.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(WAIT_S):
                await self._decided.wait()
        if self._owned is None:
            raise NotOwner(self._reason)
        return self._owned

    @property
    def is_owner(self) -> bool:
        """Whether this process delivers."""
        return self._owned is not None

    def counters(self) -> Counters:
        """Return what was counted. From any thread."""
        owned, tally = self._owned, self.tally
        return Counters(
            is_owner=int(owned is not None),
            groups_known=0 if owned is None else owned.groups.count,
            messages_open=0 if owned is None else owned.groups.open_count,
            received_total=tally.received_count,
            redelivered_total=tally.redelivered_count,
            settled_total=tally.settled_count,
            postponed_total=tally.postponed_count,
            dead_letters_total=tally.dead_letter_count,
            replayed_letters_total=tally.replayed_count,
            taken_over_total=self.began_count,
        )

    def filter_counts(self) -> Mapping[tuple[str, ...], FilterCount]:
        """Return how many different filters members use, by group and topic. From any thread."""
        owned = self._owned
        return {} if owned is None else owned.filters.counts()

    def transaction_counters(self) -> TransactionCounters:
        """Return what was counted of transactions. From any thread."""
        owned, tally = self._owned, self.tally
        return TransactionCounters(
            transactions_open=0 if owned is None else owned.transactions.table.count,
            committed_total=tally.committed_count,
            rolled_back_total=tally.rolled_back_count,
            parked_total=tally.parked_count,
            checked_total=tally.checked_count,
        )

    def delay_counters(self) -> DelayCounters:
        """Return what was counted of delayed messages. From any thread."""
        delays, tally = None if self._owned is None else self._owned.delays, self.tally
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

    def start(self) -> None:
        """Begin."""
        self.loop.start()

    async def stop(self) -> None:
        """End. Calls that wait hear of it."""
        await self.loop.stop()
        self._reason = "this process stops"
        self.stopped.set()
        self._decided.set()

    async def _own(self) -> None:
        """Be the one that delivers, as long as that goes well. Raises why it ended."""
        await self._until_wanted()
        owner = f"{workers().chance().getrandbits(128):032x}"
        journal = Journal(self._log, owner, StoreTime(self._clock))
        try:
            began = await journal.begin(Began(owner))
            self._decided.clear()
            start = await self._index.stored_offset(JOURNAL_GROUP, *JOURNAL_PLACE) or 0
            reading = await load(self._index, owner, start=start, began=began.queue_offset, skip_below=self._skip_below)
            journal.format = max(journal.format, reading.format)
            owned = self._make(reading.groups, journal, self.tally, self._repeats)
            self._compare_times(journal.time, reading.groups)
            await come_back(owned, journal, self._index, reading.last)
            await owned.start()
        except LogFollows:
            self._reason = "the log follows another one, whose own service delivers"
            self._decided.set()
            await asyncio.sleep(FOLLOW_LOOK_S)
            return
        except JournalUnreadable as error:
            await self._stand_still(error)
            return
        except (DependencyUnavailable, JournalLost) as error:
            self._reason = str(error)
            self._decided.clear()
            raise
        copying = Copying(reading.groups, journal, self._log, self._index, owned.burying)
        self._owned = owned
        self.loop.succeeded()
        self._decided.set()
        self.began_count += 1
        groups = reading.groups
        _log.info("deliveries begin: %d groups, %d messages are open", len(groups.names()), groups.open_count)
        try:
            look = partial(self._look, journal)
            await self._tend(journal, look, owned.tend, owned.asking.roll, copying.tend, owned.transactions.tend)
        finally:
            self._owned, self._reason = None, "the journal is read anew"
            self._former = FormerTime(journal.time, groups.behind_ms)
            self._decided.clear()
            try:
                await owned.stop()
                await leave(owned, journal, self._index)
            finally:
                await journal.close()

    def _compare_times(self, time: StoreTime, groups: Groups) -> None:
        """Report a jump of the log's time since the last ownership of this process."""
        if self._former is not None and (jump_ms := self._former.jump_ms(time, groups.behind_ms)):
            time.on_jump(jump_ms)

    async def _stand_still(self, error: JournalUnreadable) -> None:
        """Refuse all calls with this reason until the process stops. Reading again would find the same bytes."""
        _log.error("%s", error)
        self._reason = str(error)
        self._decided.set()
        await asyncio.Event().wait()

    async def _until_wanted(self) -> None:
        """Wait for a call, or for the first message that needs none."""
        called = asyncio.create_task(self._wanted.wait())
        waiting = [asyncio.create_task(self._first_message(*place)) for place in NEED_NOBODY]
        try:
            done, _ = await asyncio.wait([called, *waiting], return_when=asyncio.FIRST_COMPLETED)
            for task in done:
                task.result()
            self._wanted.set()
        finally:
            for task in (called, *waiting):
                task.cancel()
            await asyncio.gather(called, *waiting, return_exceptions=True)

    async def _first_message(self, topic: str, queue_id: int) -> None:
        """Return when a queue has, or had, a message. An Indexer that is away, or begins, keeps nobody waiting yet."""
        while True:
            try:
                if await self._index.queue_end(topic, queue_id, wait_s=WANTED_WAIT_S):
                    return
            except DependencyUnavailable as error:
                _log.debug("whether %s has a message is not known: %s", topic, error)
            await asyncio.sleep(WANTED_LOOK_S)

    async def _look(self, journal: Journal) -> None:
        """Learn whether the log's clock was set. Then a record tells its time."""
        journal.time.told(await self._log.ahead_ms())
        if journal.time.is_doubtful:
            await journal.write([], is_safe=False)

    async def _tend(self, journal: Journal, *tasks: Callable[[], Awaitable[None]]) -> None:
        """Do what has to be done from time to time, until the journal fails. Raises why it did."""
        trouble = Trouble("the upkeep of deliveries")
        while journal.failure is None:
            for tend in tasks:
                try:
                    await tend()
                except DependencyUnavailable as error:
                    trouble.failed("deliveries go on, but", error, part=tend)
                else:
                    trouble.ended(part=tend)
            try:
                async with asyncio.timeout(TEND_INTERVAL_S):
                    await journal.failed.wait()
            except TimeoutError:
                continue
        raise journal.failure
