# SPDX-License-Identifier: Apache-2.0
"""ReputLoop: follows the log's live end, and has its records entered into the indexes, in order.

It requests a stream from the end of the indexes on, agrees with the log on the records that the indexes hold
(libs.log.agreement), and enters the records that the stream brings. When the log becomes unavailable it requests a new
stream. The table of `reput_state` defines the stages of the loop and their order. A record that fits no queue is
stepped over with a note; indexes that contradict the log stop the loop.
Invariants: `lock` is held during each step; a rebuild drops all indexes between two steps.
Callers: the event loop's thread. Not handled: entering records (Indexes), making the indexes durable (FlushLoop).
RocketMQ's counterpart is ReputMessageService, which skips records that it can't read.
"""

import asyncio
import contextlib
import enum
import logging
from collections.abc import Callable

from libs.formats.records.dispatch_columns import DispatchBatch, Handshake, Heartbeat
from libs.log.agreement import (
    Adopt,
    AskAgain,
    Change,
    Continue,
    DropAll,
    Mine,
    Refuse,
    SkipTo,
    Theirs,
    Undo,
    agree,
    is_other_epoch,
)
from libs.machine.loop import SupervisedLoop
from libs.machine.uninterrupted import uninterrupted
from libs.requests.errors import DependencyUnavailable, RecordDamaged
from libs.segments.errors import IndexDamaged, StoreError, StoreFull, SyncFailed
from services.indexer.config import IndexerConfig
from services.indexer.engine.follow.flush import FlushLoop
from services.indexer.engine.follow.indexes import Indexes
from services.indexer.engine.follow.live_end import LiveEnd
from services.indexer.engine.follow.queue_end_report import QueueEndReport
from services.indexer.engine.follow.reput_state import Event, ReputState, ReputStates, Stage
from services.indexer.engine.log.source import LogSource
from services.indexer.errors import Inapplicable, NotARecord, OtherLog, SyncNeeded

_log = logging.getLogger(__name__)


class Ask(enum.Enum):
    """The place where the next stream is requested."""

    WHERE_THE_INDEXES_END = enum.auto()
    """The histories must be compared."""
    WHERE_TO_GO_ON = enum.auto()
    """The histories were compared, and records are entered again."""
    AT_THE_BEGIN = enum.auto()
    """No record of the log begins where the indexes end: perhaps it is another log."""


class ReputLoop:
    """The loop that feeds the indexes from a LogSource. Create it and `start` it, each once."""

    def __init__(
        self,
        config: IndexerConfig,
        source: LogSource,
        indexes: Indexes,
        states: ReputStates,
        flush: FlushLoop,
        live: LiveEnd,
        *,
        on_history_change: Callable[[bool], None],
    ) -> None:
        """`on_history_change` is called when the log lost its tail, or may have: with whether the indexes were cut."""
        self.confirmed_physical_offset = 0
        """End of the log, as the log last reported it."""
        self.history_change_count = 0
        """Times that the log had another history, and times that a rebuild dropped all indexes."""
        self.gap_count = 0
        """Times that records were deleted from the log before they were entered."""
        self.is_disk_full = False
        """Whether the last batch did not fit on the disk."""
        self.lock = asyncio.Lock()
        """Held during each step. A removal of queues also takes it, and then the lock of progress."""
        self.queue_ends = QueueEndReport(source, indexes.queues, indexes.history)
        self._source = source
        self._indexes = indexes
        self._states = states
        self._completeness = indexes.completeness
        self._flush = flush
        self._live = live
        self._on_history_change = on_history_change
        self._ask = Ask.WHERE_THE_INDEXES_END
        self._asked_physical_offset = 0
        self._pause_s = config.reconnect_ms_max / 1000
        self.loop = SupervisedLoop(
            "reput loop",
            self._follow,
            backoff_ms_min=min(100, config.reconnect_ms_max),
            backoff_ms_max=config.reconnect_ms_max,
            expected_errors=(DependencyUnavailable, RecordDamaged, StoreError),
        )

    @property
    def state(self) -> ReputState:
        """The state of the loop."""
        return self._states.state

    def check_same_log(self) -> None:
        """Raise DependencyUnavailable if the log is not the indexed log, because its physical offsets differ."""
        if self._states.stage is Stage.OTHER_LOG:
            raise DependencyUnavailable("commitlog", self._states.last_error)

    @property
    def is_level(self) -> bool:
        """Whether all records up to the last reported end of the log are entered."""
        return self._indexes.reached.indexed_physical_offset >= self.confirmed_physical_offset

    def start(self) -> None:
        """Begin to follow the log."""
        self._states.on(Event.STREAM)
        self.loop.start()

    async def stop(self) -> None:
        """End the stream. Entered records stay."""
        await self.loop.stop()

    async def _follow(self) -> None:
        """Follow a stream to its end. Raises the error that ended it, unless a further attempt can't repair it."""
        await self._states.until_wanted()
        self._states.on(Event.STREAM)
        try:
            if self._states.stage is Stage.DROPPING:
                await uninterrupted(self._drop_all())
            self._asked_physical_offset = self._begin()
            epoch, epochs = self._indexes.reached.epoch, self._indexes.history.epochs
            async with contextlib.aclosing(self._source.follow(self._asked_physical_offset, epoch, epochs)) as steps:
                async for step in steps:
                    self._states.log_away = None
                    self._live.hear()
                    if not await self.apply(step):
                        break
                    self._states.heard.set()
                    self._live.hear()  # entering the step may have taken long
                    if isinstance(step, DispatchBatch) or self.is_level:
                        self.loop.succeeded()
                    if isinstance(step, Handshake):
                        self.queue_ends.begin(epoch=step.epoch, min_physical_offset=step.min_physical_offset)
                        self._flush.wake()
        except Inapplicable as error:
            self._states.halt(error)
        except OtherLog as error:
            self._states.stand_before(error)
            await asyncio.sleep(self._pause_s)  # the log is asked again, without a log line each time
        except NotARecord:
            self._ask = Ask.AT_THE_BEGIN
        except IndexDamaged as error:
            _log.error("all indexes are built anew: %s", error)
            self._states.request_rebuild()
        except SyncFailed:
            raise  # FlushLoop has logged it
        except Exception as error:
            self._states.lose(error, is_expected=isinstance(error, DependencyUnavailable | StoreFull))
            raise
        finally:
            await self.queue_ends.stop()

    def _begin(self) -> int:
        """Return where to request the next stream. The stream after it begins with a comparison, if possible."""
        reached = self._indexes.reached
        match self._ask:
            case Ask.AT_THE_BEGIN:
                return 0
            case Ask.WHERE_TO_GO_ON:
                self._ask = Ask.WHERE_THE_INDEXES_END
                return reached.indexed_physical_offset
            case Ask.WHERE_THE_INDEXES_END:
                return reached.entered_physical_offset

    async def apply(self, step: Handshake | DispatchBatch | Heartbeat) -> bool:
        """Apply a step of the stream. Returns False if the stream is of no use any more.

        Callers: the loop itself, and the offline rebuild, which has no loop. Raises Inapplicable, StoreFull and
        SyncFailed.
        """
        async with self.lock:
            try:
                return await self._apply(step)
            except StoreFull:
                self.is_disk_full = True
                raise

    async def _apply(self, step: Handshake | DispatchBatch | Heartbeat) -> bool:
        if not self._states.is_following:
            return False
        if isinstance(step, DispatchBatch):
            await self._enter(step)
            self.is_disk_full = False
            self.confirmed_physical_offset = max(self.confirmed_physical_offset, step.end_physical_offset)
        elif isinstance(step, Heartbeat):
            if step.topic_begins:
                await uninterrupted(self._indexes.begin_topics(self._begins_after(step)))
            self._hear(step)
        elif await self._agree(step):
            self._hear(step)
        else:
            return False
        if not self._states.is_following:  # a rebuild was requested during the step: nothing is complete any more
            return False
        self._completeness.reach(self._indexes.reached.indexed_physical_offset, is_end=self.is_level)
        if self.is_level:
            self._states.on(Event.LEVEL)
        else:
            self._states.on(Event.BEHIND if self._completeness.is_complete else Event.LACKING)
        return True

    def _begins_after(self, heartbeat: Heartbeat) -> dict[str, int]:
        begins = {**self._indexes.history.topic_begins, **heartbeat.topic_begins}
        return {topic: begin for topic, begin in begins.items() if begin > 0}

    def _hear(self, step: Handshake | Heartbeat) -> None:
        self.confirmed_physical_offset = step.confirmed_physical_offset
        self._completeness.hear(step.confirmed_physical_offset)
        queues = self._indexes.queues
        queues.min_physical_offset = max(queues.min_physical_offset, step.min_physical_offset)

    async def _enter(self, batch: DispatchBatch) -> None:
        """Enter a batch. Its queues may need syncs in between. Each attempt enters more records."""
        with contextlib.suppress(Inapplicable):  # `apply` will raise it again, after it entered the records before
            await self._indexes.prepare(batch)
        while True:
            try:
                self._indexes.apply(batch)
            except SyncNeeded:
                await self._flush.sync_queues()
            else:
                break

    async def _agree(self, handshake: Handshake) -> bool:
        """Agree with the log on the records that the indexes hold. Returns False if a new stream must be requested."""
        self._indexes.queues.set_apart.learn(handshake.set_apart)
        await uninterrupted(self._indexes.begin_topics(handshake.topic_begins))
        theirs = Theirs(
            handshake.history_id,
            handshake.epoch,
            handshake.common_end_physical_offset,
            handshake.min_physical_offset,
            handshake.epochs,
        )
        while isinstance(verdict := agree(self._mine(), theirs), Change):
            await uninterrupted(self._execute(verdict, theirs))
        if isinstance(verdict, Refuse):
            raise Inapplicable(verdict.why, physical_offset=self._indexes.reached.entered_physical_offset)
        if isinstance(verdict, DropAll):
            if known_end := self._indexes.reached.entered_physical_offset:
                self._ask = Ask.WHERE_THE_INDEXES_END
                raise OtherLog(known_end=known_end, met_end=handshake.confirmed_physical_offset)
            await uninterrupted(self._change_log(theirs.history_id))
            return False
        await uninterrupted(self._indexes.begin_at(theirs.min_physical_offset))
        if verdict == AskAgain(self._indexes.reached.indexed_physical_offset):
            self._ask = Ask.WHERE_TO_GO_ON
        return isinstance(verdict, Continue)

    def _mine(self) -> Mine:
        reached = self._indexes.reached
        return Mine(
            self._indexes.history.history_id,
            reached.epoch,
            reached.indexed_physical_offset,
            reached.entered_physical_offset,
            asked_physical_offset=self._asked_physical_offset,
            is_misplaced=self._ask is Ask.AT_THE_BEGIN,
            epochs=self._indexes.history.epochs,
        )

    async def _execute(self, verdict: Change, theirs: Theirs) -> None:
        """Change the indexes so that they hold only records that the log has, as the verdict demands."""
        match verdict:
            case Undo(end):
                await self._indexes.undo(end)
                self._asked_physical_offset = end
                self._tell_history_change(is_truncated=True)
            case Adopt():
                is_other = is_other_epoch(self._mine(), theirs)
                await self._indexes.adopt(epoch=theirs.epoch, history_id=theirs.history_id, epochs=theirs.epochs)
                if is_other:
                    self._tell_history_change(is_truncated=False)
            case SkipTo(begin):
                self._note_gap(begin)
                await self._indexes.skip_to(begin)

    async def _change_log(self, history_id: str) -> None:
        _log.warning("this is another log than the one that was indexed: its indexes are built")
        await self._indexes.lose_all(0)
        await self._indexes.history.adopt(history_id)
        self._ask = Ask.WHERE_THE_INDEXES_END
        self._tell_history_change(is_truncated=True)

    def _tell_history_change(self, *, is_truncated: bool) -> None:
        self.history_change_count += 1
        self._on_history_change(is_truncated)

    async def _drop_all(self) -> None:
        """Drop all indexes, because a rebuild was requested."""
        await self._indexes.drop_all()
        self.history_change_count += 1
        self._ask = Ask.WHERE_THE_INDEXES_END
        self._states.on(Event.DROPPED)

    def _note_gap(self, end_physical_offset: int) -> None:
        start = self._indexes.reached.indexed_physical_offset
        if start > 0:
            self.gap_count += 1
            _log.error("the records from %d to %d were deleted before they were indexed", start, end_physical_offset)
