# SPDX-License-Identifier: Apache-2.0
"""JournalOwner: makes this process the owner of the journal, and serves groups while it owns it.

The first call, delayed message or half message starts an ownership, in five steps: append a Began record, replay the
journal, take over positions that others moved, serve, and hand over. When the journal can't be written, or another
process has written into it, the engine is dropped and the next ownership begins: the log has all that was answered.
Callers: the event loop's thread.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.formats.records.delivery_record import Began
from libs.formats.records.transaction_record import HALF_QUEUE_ID
from libs.formats.state.system_topics import HALF_TOPIC, TIMER_TOPIC
from libs.machine.clock import Clock
from libs.machine.loop import SupervisedLoop
from libs.machine.trouble import Trouble
from libs.machine.workers import workers
from libs.requests.errors import DependencyUnavailable, LogFollows
from services.delivery.engine.journal.copier import JOURNAL_GROUP, JOURNAL_PLACE, JournalCopier
from services.delivery.engine.journal.group_time import FormerTime
from services.delivery.engine.journal.journal import Journal
from services.delivery.engine.journal.replay import replay_journal
from services.delivery.engine.journal.store_time import StoreTime
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.own.handover import hand_over, take_over_positions
from services.delivery.engine.ports.index import Index
from services.delivery.engine.ports.log import Log
from services.delivery.engine.ports.waits import READ_WAIT_S
from services.delivery.engine.state.groups import Groups
from services.delivery.engine.state.repeats import Repeats
from services.delivery.engine.state.tally import Tally
from services.delivery.errors import JournalLost, JournalUnreadable, NotOwner

MAINTENANCE_INTERVAL_S = 1.0
FOLLOW_LOOK_S = 1.0
"""How long an owner waits before it asks again whether a log that follows leads by now."""
FIRST_MESSAGE_LOOK_S, FIRST_MESSAGE_LOOK_S_MAX = 0.5, 5.0
"""The pause between two waits for the first message of a queue. It doubles with each wait that the Indexer refuses."""
REPLAY_WAIT_S = 3.0
"""How long a call waits for the replay of the journal."""

_log = logging.getLogger(__name__)


class JournalOwner:
    """The owner of the journal, if no other process is. `start` it; `stop` it in the end."""

    def __init__(
        self,
        log: Log,
        index: Index,
        make: Callable[[Groups, Journal, Tally, Repeats], GroupEngine],
        clock: Clock,
        *,
        level_count: int,
        skip_below: int = 0,
    ) -> None:
        self.queues_without_calls = (
            (TIMER_TOPIC, 0),
            (HALF_TOPIC, HALF_QUEUE_ID),
            *((SCHEDULE_TOPIC, queue_id) for queue_id in range(level_count)),
        )
        """Queues whose messages start an ownership without a call."""
        self.began_count = 0
        self.tally, self._repeats = Tally(), Repeats()
        self.current: GroupEngine | None = None
        """The engine of this ownership, None while this process owns nothing."""
        self._log, self._index, self._make, self._clock = log, index, make, clock
        self._skip_below = skip_below
        self._former: FormerTime | None = None
        """The time of deliveries at the end of the last ownership."""
        self._reason = "the journal is not read yet"
        self._wanted = asyncio.Event()
        self._decided = asyncio.Event()
        """Set while it is known whether this process is the owner."""
        self.stopped = asyncio.Event()
        """Set when this process has stopped to deliver, for good."""
        self.loop = SupervisedLoop(
            "deliveries",
            self._own,
            backoff_ms_min=100,
            backoff_ms_max=2_000,
            expected_errors=(DependencyUnavailable, JournalLost),
        )

    @property
    def is_owner(self) -> bool:
        """Whether this process owns the journal."""
        return self.current is not None

    async def engine(self) -> GroupEngine:
        """Return the engine; the first call starts an ownership and waits for it. Raises NotOwner.

        Raises at once while the log follows another log, so that callers find the owner quickly.
        """
        self._wanted.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(REPLAY_WAIT_S):
                await self._decided.wait()
        if self.current is None:
            raise NotOwner(self._reason)
        return self.current

    def start(self) -> None:
        """Start."""
        self.loop.start()

    async def stop(self) -> None:
        """End the ownership. Calls that wait raise NotOwner."""
        await self.loop.stop()
        self._reason = "this process stops"
        self.stopped.set()
        self._decided.set()

    async def _own(self) -> None:
        """Run an ownership from its first record to its end. Raises the error that ended it."""
        await self._until_wanted()
        owner_id = f"{workers().chance().getrandbits(128):032x}"
        journal = Journal(self._log, owner_id, StoreTime(self._clock))
        try:
            engine = await self._try_to_begin(journal, owner_id)
            if engine is not None:
                await self._serve(engine, journal)
        finally:
            await journal.close()

    async def _try_to_begin(self, journal: Journal, owner_id: str) -> GroupEngine | None:
        """Return the engine, None if the log follows. Calls get the reason of a failure. Raises the failure."""
        try:
            return await self._begin(journal, owner_id)
        except LogFollows:
            self._reason = "the log follows another one, whose own service delivers"
            self._decided.set()
            await asyncio.sleep(FOLLOW_LOOK_S)
        except JournalUnreadable as error:
            await self._refuse_all(error)
        except (DependencyUnavailable, JournalLost) as error:
            self._reason = str(error)
            self._decided.clear()
            raise
        return None

    async def _begin(self, journal: Journal, owner_id: str) -> GroupEngine:
        """Append the Began record, replay the journal, and take over positions. Raises the errors of these steps."""
        began = await journal.begin(Began(owner_id))
        self._decided.clear()
        start = await self._index.stored_offset(JOURNAL_GROUP, *JOURNAL_PLACE) or 0
        replay = await replay_journal(
            self._index, owner_id, start=start, began=began.queue_offset, skip_below=self._skip_below
        )
        journal.format = max(journal.format, replay.format)
        engine = self._make(replay.groups, journal, self.tally, self._repeats)
        self._compare_times(journal.time, replay.groups)
        await take_over_positions(engine, journal, self._index, replay.last)
        await engine.start()
        return engine

    async def _serve(self, engine: GroupEngine, journal: Journal) -> None:
        """Serve calls until the journal fails, then hand over. Raises the journal's failure."""
        groups = engine.groups
        copier = JournalCopier(groups, journal, self._log, self._index, engine.dead_letter_writer.before)
        self.current = engine
        self.loop.succeeded()
        self._decided.set()
        self.began_count += 1
        _log.info("deliveries begin: %d groups, %d messages are open", len(groups.names()), groups.open_count)
        try:
            await self._maintain(
                journal,
                partial(self._look_at_clock, journal),
                engine.run_maintenance,
                engine.delay_queries.roll,
                copier.run_maintenance,
                engine.transactions.run_maintenance,
            )
        finally:
            self.current, self._reason = None, "the journal is read anew"
            self._former = FormerTime(journal.time, groups.behind_ms)
            self._decided.clear()
            await engine.stop()
            await hand_over(engine, journal, self._index)

    async def _maintain(self, journal: Journal, *tasks: Callable[[], Awaitable[None]]) -> None:
        """Run the tasks each second until the journal fails. Raises the journal's failure."""
        trouble = Trouble("the upkeep of deliveries")
        while journal.failure is None:
            for task in tasks:
                try:
                    await task()
                except DependencyUnavailable as error:
                    trouble.failed("deliveries go on, but", error, part=task)
                else:
                    trouble.ended(part=task)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(MAINTENANCE_INTERVAL_S):
                    await journal.failed.wait()
        raise journal.failure

    async def _look_at_clock(self, journal: Journal) -> None:
        """Find out whether the log's clock was set, and then append an empty record, whose answer tells the time."""
        journal.time.told(await self._log.ahead_ms())
        if journal.time.is_doubtful:
            await journal.write([], is_safe=False)

    def _compare_times(self, time: StoreTime, groups: Groups) -> None:
        """Report a jump of the log's time since the last ownership of this process."""
        if self._former is not None and (jump_ms := self._former.jump_ms(time, groups.behind_ms)):
            time.on_jump(jump_ms)

    async def _refuse_all(self, error: JournalUnreadable) -> None:
        """Refuse all calls with this reason until the process stops: another replay would read the same bytes."""
        _log.error("%s", error)
        self._reason = str(error)
        self._decided.set()
        await asyncio.Event().wait()

    async def _until_wanted(self) -> None:
        """Wait for a call, or for the first message that needs no call."""
        called = asyncio.create_task(self._wanted.wait())
        waiting = [asyncio.create_task(self._first_message(*queue)) for queue in self.queues_without_calls]
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
        """Return when a queue has, or had, a message. Waits on, and looks less often, while the Indexer is away."""
        look_s = FIRST_MESSAGE_LOOK_S
        while True:
            try:
                if await self._index.queue_end(topic, queue_id, wait_s=READ_WAIT_S):
                    return
                look_s = FIRST_MESSAGE_LOOK_S
            except DependencyUnavailable as error:
                _log.debug("whether %s has a message is not known: %s", topic, error)
                look_s = min(2 * look_s, FIRST_MESSAGE_LOOK_S_MAX)
            await asyncio.sleep(look_s)
