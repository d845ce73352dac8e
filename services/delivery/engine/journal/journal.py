# SPDX-License-Identifier: Apache-2.0
"""Journal: writes events into the log, in the order in which they happened, many of them in a record.

While a record is being written, events gather for the next record. Calls of the same turn of the event loop share a
record, and a record has the settlements of a queue as a single event.
Invariants: an event is reported as written only if all events before it are in the log, without records of another
process between them: the log ensures this, because it takes each number once, in order. After the first failure nothing
more is written, and all waiting writes get this failure: then the log alone is valid. A record that is appended and not
as durable as the log promises is such a failure: an event that was written safely is never undone by a failover.
Callers: the event loop's thread. Memory: the events that wait; the calls that made them bound it.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

from msgspec import Struct
from msgspec.structs import replace

from libs.formats.records.delivery_record import FORMAT, DeliveryRecord, Event
from services.delivery.engine.journal.merging import count, merged, weight
from services.delivery.engine.journal.store_time import StoreTime
from services.delivery.engine.ports.log import Log
from services.delivery.engine.ports.messages import JournaledMessage, Written
from services.delivery.errors import AppendRefused, JournalLost

EVENT_COUNT_MAX = 1_000
"""Events of a record before they are merged; each settled message counts. A single larger call still fits."""
WEIGHT_MAX = 20_000
"""Events of a record and messages in flight of its events, some 50 bytes each. A single heavier call still fits."""
LETTERS_SIZE_BYTES_MAX = 4 << 20
"""Size of the messages beside a record; a single larger message still fits. An append has 16 MiB at most."""
CLOSE_S = 5.0
"""How long a close waits for the record that is being written: the in-sync set may not answer."""


class _Entry(Struct, frozen=True):
    """Events and messages of a single call, written in the same record."""

    events: Sequence[Event]
    letters: Sequence[JournaledMessage]
    is_safe: bool
    written: "asyncio.Future[Written]"
    may_be_refused: bool
    is_alone: bool = False
    """Whether it gets its own record: a record with several entries was refused."""
    late: Callable[[], Sequence[Event]] = tuple
    """Returns further events when the record is made: earlier records are written or refused by then."""

    @property
    def count(self) -> int:
        """Events before they are merged."""
        return count(self.events)

    @property
    def weight(self) -> int:
        """Events, and messages in flight of the events."""
        return weight(self.events)

    @property
    def all_events(self) -> Sequence[Event]:
        return (*self.events, *self.late())

    @property
    def size_bytes(self) -> int:
        return sum(letter.size_bytes for letter in self.letters)


class Journal:
    """The journal of an ownership. `begin` first; `close` in the end. Each answer of the log updates `time`."""

    def __init__(self, log: Log, owner: str, time: StoreTime) -> None:
        self.failure: Exception | None = None
        self.failed = asyncio.Event()
        self.event_count = 0
        """Events passed to `write` since the beginning. Each settled message counts."""
        self.on_written: Callable[[Written], None] = lambda _: None
        """Called with each record that was written."""
        self.format = FORMAT
        """The format of the records that are written. In a journal with records of a later format, that format."""
        self.begun_ms = 0
        """Store time of the first record."""
        self.time = time
        self._log = log
        self._owner = owner
        self._entries: deque[_Entry] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._next_number = -1

    async def begin(self, event: Event) -> Written:
        """Write the first record, after which no other process writes any more. Raises the errors of `Log.write`."""
        self._next_number = await self._log.next_number()
        written = await self._append((event,), (), is_safe=True)
        self.begun_ms = written.store_time_ms
        return written

    def write(
        self,
        events: Sequence[Event],
        letters: Sequence[JournaledMessage] = (),
        *,
        is_safe: bool,
        may_be_refused: bool = False,
        late: Callable[[], Sequence[Event]] = tuple,
    ) -> "asyncio.Future[Written]":
        """Write events, and messages with them. Returns a future that ends when they are written, or with the error.

        Messages without events may be refused alone, with AppendRefused, and the journal continues. So may messages
        with `may_be_refused`: the caller applies their events only when they are written. `late` returns events to add
        when the record is made: earlier entries are written or refused by then, or are in the same record. Raises the
        journal's failure.
        """
        if self.failure is not None:
            raise self.failure
        entry = _Entry(events, letters, is_safe, asyncio.get_running_loop().create_future(), may_be_refused, late=late)
        self._entries.append(entry)
        self.event_count += entry.count
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all(), name="delivery journal")
        return entry.written

    async def close(self) -> None:
        """Write the waiting events if that succeeds within CLOSE_S, and refuse further events."""
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=CLOSE_S)
            self._writing.cancel()
            await asyncio.wait([self._writing])
        self._fail(JournalLost("the journal is closed"))

    async def _write_all(self) -> None:
        await asyncio.sleep(0)  # events of the same turn of the event loop get into the same record
        while self._entries:
            some = self._some()
            try:
                written = await self._write(some)
            except AppendRefused as error:
                if not await self._without_refused(some, error):
                    break
                continue
            except asyncio.CancelledError:
                self._entries.extendleft(reversed(some))
                self._fail(JournalLost("the journal was closed before its last record was durable"))
                raise
            except Exception as error:  # noqa: BLE001 - the waiting writes have to get any error
                self._entries.extendleft(reversed(some))
                self._fail(error)
                break
            for entry in some:
                if not entry.written.done():  # otherwise its caller is gone
                    entry.written.set_result(written)
        self._writing = None

    async def _without_refused(self, some: list[_Entry], error: AppendRefused) -> bool:
        """Fail entries whose messages the log never takes; keep the others. Returns whether the journal continues."""
        if len(some) > 1:
            for entry in reversed(some):
                self._entries.appendleft(replace(entry, is_alone=True))
        elif some[0].events and not some[0].may_be_refused:  # its events are applied already
            self._entries.appendleft(some[0])
            self._fail(error)
        elif not some[0].written.done():
            some[0].written.set_exception(error)
        return self.failure is None

    def _some(self) -> list[_Entry]:
        """Remove and return the entries of the next record."""
        some = [self._entries.popleft()]
        event_count, weight_sum, size_bytes = some[0].count, some[0].weight, some[0].size_bytes
        while self._entries and not some[0].is_alone:
            event_count += self._entries[0].count
            weight_sum += self._entries[0].weight
            size_bytes += self._entries[0].size_bytes
            is_full = event_count > EVENT_COUNT_MAX or weight_sum > WEIGHT_MAX or size_bytes > LETTERS_SIZE_BYTES_MAX
            if is_full or self._entries[0].is_alone:
                break
            some.append(self._entries.popleft())
        return some

    async def _write(self, some: list[_Entry]) -> Written:
        events = tuple(event for entry in some for event in entry.all_events)
        letters = [letter for entry in some for letter in entry.letters]
        written = await self._append(events, letters, is_safe=any(entry.is_safe for entry in some))
        self.on_written(written)
        return written

    async def _append(self, events: Sequence[Event], letters: Sequence[JournaledMessage], *, is_safe: bool) -> Written:
        record = DeliveryRecord(format=self.format, owner=self._owner, events=merged(events))
        asked_s = self.time.asks()
        written = await self._log.write(self._next_number, record.encode(), letters, is_safe=is_safe)
        self._next_number += 1
        self.time.heard(written.store_time_ms, written.ahead_ms, asked_s)
        return written

    def _fail(self, error: Exception) -> None:
        self.failure = self.failure or error
        self.failed.set()
        while self._entries:
            written = self._entries.popleft().written
            if not written.done():
                written.set_exception(error)
                written.exception()  # marks the error as seen: its caller may be gone
