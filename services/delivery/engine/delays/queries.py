# SPDX-License-Identifier: Apache-2.0
"""DelayQueries: lists and cancels delayed messages, and appends them again before retention removes them.

Callers: the event loop's thread. Memory: the messages of a page or of a batch.
"""

import asyncio
import contextlib
import itertools
import logging
from collections.abc import Sequence

from libs.formats.records import timed as timed_record
from libs.formats.state.system_topics import TIMER_TOPIC
from libs.machine.clock import Clock
from libs.requests.errors import DependencyUnavailable
from services.delivery.engine.delays.delays import Delays
from services.delivery.engine.ports.messages import Copy, Note
from services.delivery.engine.ports.timers import Timed
from services.delivery.engine.ports.waits import INDEXED_LOOK_S, INDEXED_WAIT_S
from services.delivery.errors import AppendRefused, DelayedNotFound, DelayedTooLate

ROLL_LOOK_S = 10.0
HOUR_MS = 3_600_000
GATHERED_COUNT_MAX = 10_000
"""Messages that a stop appends again at most: some seconds."""
DELAY_NAMES = frozenset({timed_record.DELAY_SEC, timed_record.DELAY_MS})

_log = logging.getLogger(__name__)


class DelayQueries:
    """Lists, cancels and renews the delayed messages of an ownership. Call `roll` about once a second."""

    def __init__(self, delays: Delays, clock: Clock) -> None:
        self._delays, self._clock = delays, clock
        self._rolled_s = clock.monotonic_s() - ROLL_LOOK_S

    async def between(
        self, start_ms: int, end_ms: int, after: tuple[int, int], count: int
    ) -> tuple[list[Timed], tuple[int, int] | None]:
        """Return messages that are due in [start_ms, end_ms), after a due time and a queue offset, in their order.

        Also returns the due time and queue offset after which the next page begins, None at the end.
        """
        entries = (
            one for one in self._delays.schedule.between(start_ms, end_ms, after) if self._waits(one.queue_offset)
        )
        page = list(itertools.islice(entries, count + 1))
        found = await self._delays.timers.read([entry.physical_offset for entry in page[:count]])
        more = page[len(found) - 1][:2] if len(page) > len(found) > 0 else None
        return [one for one in found if one is not None and self._waits(one.queue_offset)], more

    async def by_key(self, topic: str, key: str) -> list[Timed]:
        """Return waiting messages with a key or unique id, for a topic; "" is any topic."""
        found, _ = await self._delays.timers.by_id(topic, key)
        return [one for one in found if not one.deletes and self._waits(one.queue_offset)]

    async def cancel(self, topic: str, message_id: str) -> Timed:
        """Cancel the messages of a topic with an id, and return the newest of them.

        A message that was cancelled before is returned again. Raises DelayedTooLate if it was delivered, and
        DelayedNotFound.
        """
        least = None
        while True:
            found = await self._find(topic, message_id, least or 0)
            records = [one for one in found if not one.deletes]
            if not records and least is not None:
                raise DelayedNotFound(topic, message_id)
            if not records:  # a log that follows by now, or another log, may lack it, and refuses the record
                least = (await self._delays.journal.write([], is_safe=True)).physical_offset
                continue
            if any(one.queue_offset in self._delays.leaving for one in records):
                await self._delays.left()
                continue
            waiting = [one for one in records if one.queue_offset not in self._delays.done]
            if waiting:
                await self._take_back(waiting, message_id)
                return waiting[0]
            if not any(one.is_cancelled for one in found):
                raise DelayedTooLate(topic, message_id)
            return records[0]

    async def roll(self) -> None:
        """Append messages again if retention may remove them soon. Raises the errors of the index and the journal."""
        now_s = self._clock.monotonic_s()
        if now_s - self._rolled_s < ROLL_LOOK_S or not self._delays.time.is_known:
            return
        self._rolled_s = now_s
        if self._delays.count == 0:
            return
        least, end, segment_size = await self._delays.timers.log_bounds()
        active = end // segment_size * segment_size
        oldest = max(least // segment_size * segment_size + segment_size, least + (end - least) // 4)
        roll_ms = self._delays.config.delayed_roll_hours * HOUR_MS
        below = await self._delays.timers.stored_before(self._delays.time.now_ms() - roll_ms)
        offset = self._delays.done.low
        while offset < self._delays.next:
            read = await self._delays.timers.waiting(offset, wait_s=0)
            old = [one for one in read.found if one.queue_offset < below or one.physical_offset < min(oldest, active)]
            await self._roll([one for one in old if not one.deletes])
            if len(old) < len(read.found) or read.next_queue_offset <= offset:
                return
            offset = read.next_queue_offset

    async def gather(self) -> None:
        """Append messages again that wait before records that are done, so that no message waits before `done.low`.

        For the end of an ownership, when nothing else is read or delivered. Does nothing if more than
        GATHERED_COUNT_MAX messages wait. Raises the errors of the index and the journal.
        """
        while self._delays.leaving:
            await self._delays.left()
        offset, end = self._delays.done.low, self._delays.done.end
        count = sum(1 for _ in self._delays.done.not_done(end))
        if count > GATHERED_COUNT_MAX:
            _log.info("%d delayed messages wait before others that are done: RocketMQ would deliver these again", count)
            return
        while count and offset < end:
            read = await self._delays.timers.waiting(offset, wait_s=0)
            await self._roll([one for one in read.found if one.queue_offset < end and not one.deletes])
            if read.next_queue_offset <= offset:
                return
            offset = read.next_queue_offset

    def _waits(self, queue_offset: int) -> bool:
        return queue_offset not in self._delays.done and queue_offset not in self._delays.leaving

    async def _find(self, topic: str, message_id: str, least: int) -> list[Timed]:
        """Return the records of an id, with all that were appended before this call and below a physical offset."""
        _, end, _ = await self._delays.timers.log_bounds()
        end = max(end, least)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(INDEXED_WAIT_S):
                while True:
                    found, indexed = await self._delays.timers.by_id(topic, message_id)
                    if indexed >= end:
                        return found
                    await asyncio.sleep(INDEXED_LOOK_S)
        raise DependencyUnavailable("indexer", f"it has not read the log up to {end} for {INDEXED_WAIT_S:g} s")

    async def _take_back(self, waiting: Sequence[Timed], message_id: str) -> None:
        """Finish the records of messages, and append a cancel record in RocketMQ's format."""
        first = waiting[0]
        mark = timed_record.delete_mark(
            first.topic, first.queue_id, unique_id=first.unique_id or message_id, deliver_ms=first.due_ms
        )
        await self._delays.send(waiting, [Note(TIMER_TOPIC, 0, timed_record.DELETE_BODY, mark)])
        self._delays.tally.timed_cancelled_count += len(waiting)

    async def _roll(self, old: Sequence[Timed]) -> None:
        old = [one for one in old if self._waits(one.queue_offset)]
        if not old:
            return
        try:
            ahead_ms = self._delays.time.ahead_ms if self._delays.time.is_known else 0
            await self._delays.send(old, [_rolled(one, ahead_ms) for one in old])
        except AppendRefused as error:
            if len(old) == 1:
                _log.error("delayed message %d can't be kept longer: %s", old[0].queue_offset, error)
                return
            middle = len(old) // 2
            await self._roll(old[:middle])
            await self._roll(old[middle:])
        else:
            self._delays.tally.timed_rolled_count += len(old)


def _rolled(one: Timed, ahead_ms: int) -> Copy:
    """Return a record for the timer topic that replaces an older record. Its time is a time of the clock."""
    stored, deliver_ms = one.message, one.due_ms - (0 if one.is_by_clock else ahead_ms)
    properties = timed_record.rolled(stored.properties, deliver_ms=deliver_ms, unique_id=one.unique_id)
    return Copy(stored, one.size_bytes, TIMER_TOPIC, 0, properties, DELAY_NAMES)
