# SPDX-License-Identifier: Apache-2.0
"""DueMessages: chooses messages that are due again, or were held until now, for a receive.

A message without an attempt left goes to the dead letters. A message that passes no filter in use is settled.
Callers: the event loop's thread, a single receive at a time.
"""

from libs.formats.records.delivery_record import Policy, Settled
from services.delivery.engine.dead_letters.writer import DeadLetterWriter
from services.delivery.engine.journal.group_time import GroupTime
from services.delivery.engine.journal.journal import Journal
from services.delivery.engine.ports.messages import Found, Wanted
from services.delivery.engine.receive.batch import DeliveryBatch, QueueBatch
from services.delivery.engine.receive.filters import Filters
from services.delivery.engine.receive.rereading import MessageCache, Rereader
from services.delivery.engine.state.groups import Groups
from services.delivery.engine.state.queue import QueueState

ROUND_COUNT = 8
"""How often a receive looks at a queue again, behind messages that are for other members."""


class DueMessages:
    """The due messages of a group and topic."""

    def __init__(
        self,
        groups: Groups,
        journal: Journal,
        time: GroupTime,
        filters: Filters,
        cache: MessageCache,
        rereader: Rereader,
        dead_letter_writer: DeadLetterWriter,
    ) -> None:
        self._groups, self._journal, self._time, self._filters = groups, journal, time, filters
        self._cache, self._rereader, self._dead_letter_writer = cache, rereader, dead_letter_writer
        self._turn = 0

    def are_due(self) -> bool:
        """Return whether any message is due now."""
        due_ms = self._due_ms([queue.due_ms() for queue in self._queues()])
        return due_ms is not None and due_ms <= self._time.now_ms()

    def due_ms(self, wanted: Wanted) -> int | None:
        """Return the time at which the next message is due for members with this filter, None if none waits."""
        return self._due_ms([queue.due_ms(self._filters.misfits(wanted, queue)) for queue in self._queues()])

    async def add_to(self, batch: DeliveryBatch, policy: Policy) -> None:
        """Add due messages of the queues, in turn, while the batch has room. Raises errors of index and journal."""
        now_ms, queues = self._time.now_ms(), self._queues()
        self._turn += 1
        for index in range(len(queues)):
            queue = queues[(self._turn + index) % len(queues)]
            for _ in range(ROUND_COUNT):
                if not batch.has_room or not await self._add_of(queue, batch, policy, now_ms):
                    break
            else:
                batch.has_seen_more = True

    async def _add_of(self, queue: QueueState, batch: DeliveryBatch, policy: Policy, now_ms: int) -> bool:
        """Add messages of a queue. Returns whether more may be due behind messages that are for other members."""
        if not self._groups.has(queue):
            return False
        misfits = self._filters.misfits(batch.wanted, queue)
        offsets = queue.ready(now_ms, batch.count, misfits)
        if not offsets:
            return False
        before = {offset: queue.flight(offset) for offset in offsets}
        found, gone = await self._rereader.read(queue.place.queue_id, offsets, batch.size_bytes)
        if not self._groups.has(queue):
            return False
        same = [
            offset
            for offset in offsets
            if queue.is_open(offset)
            and queue.flight(offset) == before[offset]
            and not self._dead_letter_writer.is_under_way(queue, offset)
        ]
        unwanted = [offset for offset in same if offset in gone]
        alive, for_others = list[Found](), list[Found]()
        for message in (found[offset] for offset in same if offset in found):
            if queue.attempts(message.queue_offset) >= policy.attempts_max:
                self._dead_letter_writer.bury(queue, message)
            elif self._filters.passes(message, batch.wanted):
                alive.append(message)
            elif self._filters.is_for_others(message, batch.wanted):
                for_others.append(message)
            else:
                unwanted.append(message.queue_offset)
        if unwanted:
            self._settle(queue, unwanted)
        batch.has_seen_more = batch.has_seen_more or bool(for_others)
        for message in for_others:
            misfits.add(message.queue_offset)
            self._cache.put(queue.place.queue_id, message)
        if alive:
            batch.reserve(alive)
            flights = [batch.flight(queue, message, now_ms, queue.key(message.queue_offset)) for message in alive]
            batch.add(QueueBatch(queue, flights, [], queue.next, alive))
        return bool(for_others or unwanted)

    def _settle(self, queue: QueueState, offsets: list[int]) -> None:
        event = Settled(queue.place, tuple(offsets))
        self._groups.apply(event)
        self._journal.write([event], is_safe=True)

    def _queues(self) -> list[QueueState]:
        group, topic = self._filters.group, self._filters.topic
        return [queue for queue in self._groups.queues(group) if queue.place.topic == topic]

    def _due_ms(self, dues: list[int | None]) -> int | None:
        return min((due_ms for due_ms in dues if due_ms is not None), default=None)
