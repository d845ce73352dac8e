# SPDX-License-Identifier: Apache-2.0
"""DelayLevel: appends the messages of a delay level to their topics when they are due.

Invariants: messages of a level are delivered in the order of their queue. The batch itself contains the new position,
so no message is delivered twice or lost. A message that the log refuses stays the next message until the log accepts
it: the level makes no progress meanwhile, and tries again every ten seconds at the latest.
Callers: the event loop's thread. Rules: RocketMQ's ScheduleMessageService.DeliverDelayedMessageTimerTask.
"""

import asyncio
import itertools
import logging
from collections.abc import Sequence

import msgspec

from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.formats.records.delivery_record import Place, Took
from libs.formats.state.system_topics import HALF_TOPIC, LEVELS_GROUP
from libs.machine.failpoints import failpoint
from libs.machine.loop import SupervisedLoop
from libs.machine.uninterrupted import uninterrupted
from libs.requests.errors import DependencyUnavailable
from services.delivery.engine.journal.journal import Journal
from services.delivery.engine.ports.index import Index
from services.delivery.engine.ports.levels import Delayed, LevelIndex
from services.delivery.engine.ports.messages import Copy
from services.delivery.engine.ports.waits import BEHIND_S, READ_WAIT_S
from services.delivery.engine.state.groups import Groups
from services.delivery.engine.state.tally import Tally
from services.delivery.errors import AppendRefused, JournalLost, Undeliverable

PAUSE_S_MIN, PAUSE_S_MAX = 0.01, 1.0
"""Messages that become due within the shortest pause share a batch. After the longest the clock is read again."""

BACKOFF_MS_MIN, BACKOFF_MS_MAX = 100, 10_000
"""RocketMQ's DELAY_FOR_A_WHILE and DELAY_FOR_A_PERIOD."""

WITHOUT = frozenset({"DELAY", "REAL_TOPIC", "REAL_QID"})
"""Properties of the record, which the message had only while it waited. RocketMQ leaves them in the message."""

_log = logging.getLogger(__name__)


class DelayLevel:
    """The delivery of a level, by the id of its queue in the schedule topic. `loop` runs it."""

    def __init__(
        self,
        queue_id: int,
        delay_ms: int,
        groups: Groups,
        journal: Journal,
        tally: Tally,
        *,
        index: Index,
        levels: LevelIndex,
    ) -> None:
        self.place = Place(LEVELS_GROUP, SCHEDULE_TOPIC, queue_id)
        self.delay_ms = delay_ms
        self.end = 0
        """The end of the level's queue, as it was last seen."""
        self._groups, self._journal, self._tally = groups, journal, tally
        self._index, self._levels = index, levels
        self._next = 0
        """The queue offset of the next message, once it is known."""
        self._read: list[Delayed] = []
        """Messages that were read and not delivered yet, in the order of their queue."""
        self.loop = SupervisedLoop(
            f"delivery of delay level {queue_id + 1}",
            self.step,
            backoff_ms_min=BACKOFF_MS_MIN,
            backoff_ms_max=BACKOFF_MS_MAX,
            expected_errors=(DependencyUnavailable, AppendRefused, Undeliverable, JournalLost),
        )

    @property
    def waiting_count(self) -> int:
        """Number of messages that wait, as it was last seen."""
        return max(0, self.end - self._next)

    @property
    def is_blocked(self) -> bool:
        """Whether its last attempt failed. It tries again."""
        return self.loop.last_error is not None

    @property
    def lateness_ms(self) -> int:
        """Milliseconds since the next message became due."""
        return max(0, self._journal.time.now_ms() - self._due_ms(self._read[0])) if self._read else 0

    async def step(self) -> None:
        """Deliver due messages, or wait until a message may be due. Raises the error if nothing was delivered."""
        if not self._read:
            await self._read_more()
            return
        now_ms = self._journal.time.now_ms()
        due = list(itertools.takewhile(lambda one: self._due_ms(one) <= now_ms, self._read))
        if due:
            await self._deliver(due)
        else:
            wait_s = (self._due_ms(self._read[0]) - now_ms) / 1000
            await asyncio.sleep(min(max(wait_s, PAUSE_S_MIN), PAUSE_S_MAX))

    def _due_ms(self, delayed: Delayed) -> int:
        return delayed.store_time_ms + self.delay_ms

    async def _read_more(self) -> None:
        """Read messages from the position on, and wait for the first."""
        position = await self._position()
        read = await self._levels.delayed(self.place.queue_id, position, wait_s=READ_WAIT_S)
        if read.next_queue_offset < position:
            await asyncio.sleep(BEHIND_S)
            reason = f"the queue of {self.loop.name} ends at {read.max_queue_offset}, before its position {position}"
            raise DependencyUnavailable("indexer", reason)
        if read.min_queue_offset > position:
            lost_count = read.min_queue_offset - position
            self._tally.levels_lost_count += lost_count
            _log.error("%s: %d messages are gone from the log", self.loop.name, lost_count)
            await self._write([], read.min_queue_offset)
        self._read = [one for one in read.found if one.queue_offset >= position]
        self._next, self.end = max(position, read.min_queue_offset), read.max_queue_offset

    async def _position(self) -> int:
        """Return the queue offset of the next message: by the journal, or else as another program has left it."""
        position = self._groups.levels.get(self.place.queue_id)
        if position is None:
            position = await self._index.stored_offset(*msgspec.structs.astuple(self.place)) or 0
        return position

    async def _deliver(self, due: Sequence[Delayed]) -> None:
        """Append the first of these messages. A refused batch is halved until a batch is accepted."""
        due = list(itertools.takewhile(is_deliverable, due)) or due[:1]
        try:
            await self._write([copy_of(one) for one in due if one.topic != HALF_TOPIC], due[-1].queue_offset + 1)
        except AppendRefused:
            if len(due) > 1:
                await self._deliver(due[: len(due) // 2])
            else:  # its queue may be gone, so the log chooses the queue
                await self._write([copy_of(due[0], names_queue=False)], due[0].queue_offset + 1)

    async def _write(self, copies: Sequence[Copy], end: int) -> None:
        """Append messages together with the event that the level continues at `end`. Raises AppendRefused."""
        failpoint("delay.before_append")
        await uninterrupted(self._append(copies, end))
        failpoint("delay.after_append")

    async def _append(self, copies: Sequence[Copy], end: int) -> None:
        event = Took(self.place, end, ())
        await self._journal.write([event], copies, is_safe=True, may_be_refused=True)
        self._groups.apply(event)
        self._tally.levels_delivered_count += len(copies)
        self._next = end
        self._read = [one for one in self._read if one.queue_offset >= end]


def is_deliverable(delayed: Delayed) -> bool:
    """Return whether a record names the topic and the queue of its message."""
    return bool(delayed.topic) and delayed.queue_id is not None


def copy_of(delayed: Delayed, *, names_queue: bool = True) -> Copy:
    """Return a message for its topic. Raises Undeliverable."""
    if not is_deliverable(delayed):
        raise Undeliverable("it does not name the topic and the queue for which it waits", delayed.queue_offset)
    queue_id = delayed.queue_id if names_queue else None
    return Copy(delayed.message, delayed.size_bytes, delayed.topic, queue_id, without=WITHOUT)
