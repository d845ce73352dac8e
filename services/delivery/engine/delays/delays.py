# SPDX-License-Identifier: Apache-2.0
"""Delays: delivers messages at their time, each once, and drops messages that are cancelled before.

It reads the timer topic into a schedule. A due message is appended to its topic together with the event that its record
is done.
Invariants: no message is delivered before its time has passed: a delay by the log's time, any other time by the clock
of the log's machine. A delivered message never waits again. A record that is done is never delivered. A message that is
being written is neither cancelled nor sent again until its outcome is known.
Callers: the event loop's thread. Memory: that of the schedule, and the messages of a batch.
"""

import asyncio
import contextlib
import logging
from collections.abc import Sequence

from libs.formats.records import timed as timed_record
from libs.formats.records.delivery_record import DelaysDone
from libs.machine.clock import Clock
from libs.machine.loop import SupervisedLoop
from libs.machine.uninterrupted import uninterrupted
from libs.requests.errors import DependencyUnavailable
from services.delivery.config import DeliveryConfig
from services.delivery.engine.delays.schedule import Schedules
from services.delivery.engine.journal.journal import Journal
from services.delivery.engine.ports.messages import Copy, Note, Written
from services.delivery.engine.ports.timers import Entry, Timed, TimerIndex
from services.delivery.engine.ports.waits import BEHIND_S, READ_WAIT_S
from services.delivery.engine.state.done import Done
from services.delivery.engine.state.tally import Tally
from services.delivery.errors import AppendRefused, JournalLost

COUNT, SIZE_BYTES = 500, 2 << 20
"""Messages of a batch, and their size."""
REFUSED_MS = 10_000
"""The pause before a message that the log refused is tried again."""
WAIT_S_MAX = 1.0
ASKED_COUNT = 32
"""Messages that are looked up side by side."""
WITHOUT = timed_record.TIMER_NAMES | timed_record.PLACE_NAMES | {"DELAY"}
"""Properties that a delayed message has only while it waits."""

_log = logging.getLogger(__name__)


class Delays:
    """The delayed messages of an ownership. `start` it; `stop` it in the end."""

    def __init__(
        self, done: Done, journal: Journal, tally: Tally, timers: TimerIndex, clock: Clock, config: DeliveryConfig
    ) -> None:
        self.done, self.journal, self.tally, self.timers, self.config = done, journal, tally, timers, config
        self.schedule = Schedules()
        self.time = journal.time
        self.next = done.low
        """The queue offset of the next read of the timer topic."""
        self.count = 0
        """Number of records below `next` that are not done."""
        self.refused: set[int] = set()
        """Queue offsets of due messages that the log refused."""
        self.leaving: set[int] = set()
        """Queue offsets of messages that are being written."""
        self._kept_back: dict[int, Entry] = {}
        """Entries of due messages that are being written already, by queue offset: each waits for the outcome."""
        self._left = asyncio.Event()
        self._news = asyncio.Event()
        self._begun_ms = max(clock.now_ms(), journal.begun_ms)
        journal.on_written = self._heard
        errors = (DependencyUnavailable, JournalLost)
        self._loops = [
            SupervisedLoop(f"delayed messages are {name}", step, backoff_ms_max=2_000, expected_errors=errors)
            for name, step in (("read", self._read), ("delivered", self._deliver))
        ]

    @property
    def due_count(self) -> int:
        """About how many messages are due and not delivered yet."""
        return self.schedule.due_count(self.time.now_ms(), self.time.clock_ms()) if self.time.is_known else 0

    def start(self) -> None:
        """Begin to read and to deliver."""
        for loop in self._loops:
            loop.start()

    async def stop(self) -> None:
        """Stop reading and delivering."""
        for loop in self._loops:
            await loop.stop()

    def finish(self, offsets: Sequence[int]) -> None:
        """Record that records are done."""
        for offset in offsets:
            self.count -= offset < self.next and offset not in self.done
            self.done.add(offset)
            self.refused.discard(offset)

    async def left(self) -> None:
        """Wait until a write of messages has succeeded or failed."""
        await self._left.wait()

    async def send(self, timed: Sequence[Timed], letters: Sequence[Copy | Note]) -> Written:
        """Write messages, and the event that their records are done. Raises AppendRefused, and the journal's errors."""
        offsets = tuple(one.queue_offset for one in timed)
        self.leaving.update(offsets)
        return await uninterrupted(self._send(offsets, letters))

    async def _send(self, offsets: tuple[int, ...], letters: Sequence[Copy | Note]) -> Written:
        try:
            written = await self.journal.write([DelaysDone(offsets)], letters, is_safe=True, may_be_refused=True)
            self.finish(offsets)
            return written
        finally:
            self.leaving.difference_update(offsets)
            self._wait_on(offsets)
            left, self._left = self._left, asyncio.Event()
            left.set()

    def _wait_on(self, offsets: Sequence[int]) -> None:
        """Put kept back entries into the schedule again if they are not done."""
        for entry in [self._kept_back.pop(offset) for offset in offsets if offset in self._kept_back]:
            if entry.queue_offset not in self.done:
                self.schedule.add(entry)
                self._news.set()

    def _heard(self, _: Written) -> None:
        self._news.set()

    async def _read(self) -> None:
        """Read records, and wait for the first; or wait while there is no room."""
        if self.count >= self.config.delayed_count_max:
            _log.warning("%d messages wait for their time: others are not seen until some are delivered", self.count)
            await asyncio.sleep(BEHIND_S)
            return
        read = await self.timers.waiting(self.next, wait_s=READ_WAIT_S)
        if read.next_queue_offset < self.next:
            await asyncio.sleep(BEHIND_S)  # the index is being built again
            return
        self._lose(read.min_queue_offset)
        ended: list[int] = []
        delivered = await self._delivered_before(read.found)
        for timed in read.found:
            if timed.queue_offset < self.next:
                continue
            over = await self._over_with(timed, delivered)
            self.finish(over)
            ended += over
            if timed.queue_offset not in self.done:
                self.count += 1
                self.schedule.add(timed.entry)
            self.next = timed.queue_offset + 1
        self.next = read.next_queue_offset
        self._news.set()
        if ended:
            await self.journal.write([DelaysDone(tuple(ended))], is_safe=True)

    def _lose(self, least: int) -> None:
        """Finish records that are gone from the log."""
        if least <= self.done.low:
            return
        known = sum(1 for _ in self.done.not_done(min(least, self.next)))
        if lost := known + max(0, least - self.next) * self.done.is_known:
            self.tally.timed_lost_count += lost
            _log.error("%d messages were gone from the log before they were due", lost)
        self.count -= known
        self.next = max(self.next, least)
        self.done.skip_to(least)

    async def _over_with(self, timed: Timed, delivered: set[int]) -> list[int]:
        """Return the offsets of records that are done because of a record that was read."""
        if timed.queue_offset in self.done:
            return []
        if timed.deletes:
            return await self._deleted_by(timed)
        former = await self._rolled_by_rocketmq(timed) if timed.is_rolled_by_rocketmq else []
        return [*former, timed.queue_offset] if timed.queue_offset in delivered else former

    async def _deleted_by(self, mark: Timed) -> list[int]:
        """Return the offsets of records that a cancel record of another program cancels, and its own offset."""
        if mark.is_cancelled:
            return [mark.queue_offset]
        found, _ = await self.timers.by_id(mark.topic, mark.deletes)
        offsets = [one.queue_offset for one in found if not one.deletes and one.queue_offset < mark.queue_offset]
        open_offsets = [one for one in offsets if one not in self.done and one not in self.leaving]
        self.tally.timed_cancelled_count += len(open_offsets)
        return [*open_offsets, mark.queue_offset]

    async def _rolled_by_rocketmq(self, timed: Timed) -> list[int]:
        """Return the offsets of the records that a record of RocketMQ replaces."""
        found, _ = await self.timers.by_id(timed.topic, timed.unique_id)
        former = [one for one in found if one.queue_offset < timed.queue_offset and one.out == timed.out]
        return [one.queue_offset for one in former if not one.deletes and one.queue_offset not in self.done]

    async def _delivered_before(self, found: Sequence[Timed]) -> set[int]:
        """Return the offsets of messages that RocketMQ has delivered: it may have had the store before this process."""
        old = [one for one in found if one.due_ms <= self._begun_ms and one.queue_offset not in self.done]
        delivered: set[int] = set()
        for start in range(0, len(old), ASKED_COUNT):
            some = old[start : start + ASKED_COUNT]
            answers = await asyncio.gather(*map(self.timers.is_delivered, some))
            delivered.update(one.queue_offset for one, is_delivered in zip(some, answers, strict=True) if is_delivered)
        return delivered

    async def _deliver(self) -> None:
        """Deliver due messages, or wait until a message may be due."""
        self._news.clear()
        if self.time.is_doubtful:
            await self.journal.write([], is_safe=False)  # its answer tells the time
        log_ms, clock_ms = self.time.now_ms(), self.time.clock_ms()
        due = [one for one in self.schedule.take(log_ms, clock_ms, COUNT) if one.queue_offset not in self.done]
        self._kept_back |= {one.queue_offset: one for one in due if one.queue_offset in self.leaving}
        if entries := [one for one in due if one.queue_offset not in self.leaving]:
            await self._deliver_all(entries)
            return
        wait_ms = self.schedule.wait_ms(self.time.now_ms(), self.time.clock_ms())
        wait_s = WAIT_S_MAX if wait_ms is None else min(WAIT_S_MAX, (wait_ms + 1) / 1000)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(wait_s):
                await self._news.wait()

    async def _deliver_all(self, entries: Sequence[Entry]) -> None:
        """Deliver due messages. Entries that are not done afterwards are in the schedule again."""
        again = {entry.queue_offset: entry for entry in entries}
        try:
            found = await self.timers.read([entry.physical_offset for entry in entries])
            pairs = list(zip(entries, found, strict=False))
            if gone := [
                one.queue_offset for one, timed in pairs if timed is None and one.queue_offset not in self.done
            ]:
                self.tally.timed_lost_count += len(gone)
                _log.error("%d messages were gone from the log when they were due", len(gone))
                self.finish(gone)
                await self.journal.write([DelaysDone(tuple(gone))], is_safe=True)
            alive = [timed for _, timed in pairs if timed is not None]
            while alive:
                count = _fitting(alive)
                await self._append(alive[:count], again)
                alive = alive[count:]
        finally:
            for entry in again.values():
                if entry.queue_offset not in self.done:
                    self.schedule.add(entry)

    async def _append(self, timed: Sequence[Timed], again: dict[int, Entry]) -> None:
        """Append messages to their topics. A refused batch is halved to find the refused messages."""
        timed = [one for one in timed if one.queue_offset not in self.done and one.queue_offset not in self.leaving]
        if not timed:
            return
        is_refused = len(timed) == 1 and timed[0].queue_offset in self.refused
        try:
            written = await self.send(timed, [_delivered(one, is_refused=is_refused) for one in timed])
        except AppendRefused as error:
            if len(timed) > 1:
                middle = len(timed) // 2
                await self._append(timed[:middle], again)
                await self._append(timed[middle:], again)
                return
            one = timed[0]
            if not is_refused:
                self.refused.add(one.queue_offset)
                await self._append(timed, again)  # its queue may be gone, so the log chooses the queue
                return
            now_ms = self.time.clock_ms() if one.is_by_clock else self.time.now_ms()
            again[one.queue_offset] = one.entry._replace(due_ms=now_ms + REFUSED_MS)
            _log.warning("delayed message %d for topic %s waits on: %s", one.queue_offset, one.topic, error)
        else:
            self.tally.timed_delivered_count += len(timed)
            self.tally.timed_late_ms += sum(max(0, _delivered_ms(one, written) - one.due_ms) for one in timed)


def _fitting(timed: Sequence[Timed]) -> int:
    """Return how many messages from the first on fit into a batch."""
    size_bytes = 0
    for index, one in enumerate(timed):
        size_bytes += one.size_bytes
        if index and size_bytes > SIZE_BYTES:
            return index
    return len(timed)


def _delivered(timed: Timed, *, is_refused: bool) -> Copy:
    """Return a message for its topic: as it was sent, with the time at which it was due."""
    queue_id = None if is_refused else timed.queue_id
    properties = timed_record.delivered(timed.due_ms, timed.out)
    return Copy(timed.message, timed.size_bytes, timed.topic, queue_id, properties, WITHOUT)


def _delivered_ms(timed: Timed, written: Written) -> int:
    """Return when a message was delivered, by the same clock as its due time."""
    return written.store_time_ms - (written.ahead_ms if timed.is_by_clock else 0)
