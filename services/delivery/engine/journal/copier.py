# SPDX-License-Identifier: Apache-2.0
"""JournalCopier: writes copies of the whole state into the journal, so that retention may remove older records.

A copy consists of many records, with other records between them. The part of a queue replaces all that was read of the
queue before. So its record repeats the events that are decided only when it is written: messages of the queue that
became dead letters just before. The position of a delay level is at least its part, which may be behind the journal.
A copy is valid once its end is in the log: only then the next replay begins at it.
A copy is written when the former copy begins in a segment that is not active any more, or when many events followed.
"""

from collections.abc import Callable, Sequence

from libs.formats.records.delivery_record import CopyEdge, Event, PolicySet, TimeBehind, Took
from libs.formats.state.system_topics import DELIVERY_GROUP, DELIVERY_QUEUE_ID, DELIVERY_TOPIC
from services.delivery.engine.journal.journal import Journal
from services.delivery.engine.ports.index import Index
from services.delivery.engine.ports.log import Log
from services.delivery.engine.ports.messages import Written
from services.delivery.engine.state.groups import Groups
from services.delivery.engine.state.queue import QueueState

EVENT_COUNT_MAX = 50_000
"""The most events that a replay reads, besides the events of a copy."""
PART_FLIGHT_COUNT = 500
"""Messages in flight or held in a record, unless a single queue has more."""

JOURNAL_GROUP = DELIVERY_GROUP
JOURNAL_PLACE = (DELIVERY_TOPIC, DELIVERY_QUEUE_ID)


class JournalCopier:
    """The copier of an ownership.

    `settled_before` returns a function that returns the events by which a copy of queues is behind the journal.
    """

    def __init__(
        self,
        groups: Groups,
        journal: Journal,
        log: Log,
        index: Index,
        settled_before: Callable[[Sequence[QueueState]], Callable[[], Sequence[Event]]],
    ) -> None:
        self._groups, self._journal, self._log, self._index = groups, journal, log, index
        self._settled_before = settled_before
        self._number = 0
        self._begin: Written | None = None
        self._event_count = 0

    async def run_maintenance(self) -> None:
        """Write a copy if it is due. Raises the errors of the log, the index and the journal."""
        active = await self._log.active_segment()
        is_old = self._begin is None or self._begin.physical_offset < active
        if is_old or self._journal.event_count - self._event_count > EVENT_COUNT_MAX:
            await self._copy()

    async def _copy(self) -> None:
        self._number += 1
        begin = await self._write([CopyEdge(self._number, is_end=False), TimeBehind(self._groups.behind_ms)])
        groups, policies = list(self._groups.policies), self._groups.policies
        for index in range(0, len(groups), PART_FLIGHT_COUNT):
            some = groups[index : index + PART_FLIGHT_COUNT]  # with the policies at the time of the write
            await self._write([PolicySet(group, policies[group]) for group in some if group in policies])
        for delays in list(self._groups.delays.copied()):
            await self._write([delays])
        await self._write([Took(*level, ()) for level in self._groups.level_positions().items()])
        queues: list[QueueState] = []
        size = 0
        for queue in self._groups.all_queues():
            queues.append(queue)
            size += 1 + queue.open_count + queue.ahead_count
            if size > PART_FLIGHT_COUNT:
                await self._write_part(queues)
                queues, size = [], 0
        await self._write_part(queues, CopyEdge(self._number, is_end=True))
        await self._index.store_offsets(JOURNAL_GROUP, {JOURNAL_PLACE: begin.queue_offset})
        self._begin, self._event_count = begin, self._journal.event_count

    async def _write_part(self, queues: Sequence[QueueState], *edge: Event) -> None:
        events = [*(queue.copied() for queue in queues), *edge]
        await self._journal.write(events, is_safe=bool(edge), late=self._settled_before(queues))

    async def _write(self, events: Sequence[Event]) -> Written:
        return await self._journal.write(events, is_safe=False)
