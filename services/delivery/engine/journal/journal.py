# SPDX-License-Identifier: Apache-2.0
"""Journal: writes events into the log, in the order in which they happened, many of them at once.

While one record is on its way, events gather for the next one. Invariants: an event is told as written only if all
events before it are in the log, with nothing of another process between them, which the log itself sees to: it takes
each number once, in order; after the first failure nothing more is
written, and everybody who waits hears of it: then what is in the log is what counts. A record that is there and not as
durable as the log promises is such a failure: an event is told as written only if no failover can undo it.
Callers: the event loop's thread. Memory: the events that wait, which is bounded by the calls that made them.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from libs.formats.records.delivery_record import FORMAT, DeliveryRecord, Event
from services.delivery.engine.journal.store_time import StoreTime
from services.delivery.engine.ports.log import Log
from services.delivery.engine.ports.messages import JournaledMessage, Written
from services.delivery.errors import AppendRefused, JournalLost

EVENT_COUNT_MAX = 1_000
"""Events of one record; with the messages in flight of a receive, some hundred KiB."""
LETTERS_SIZE_BYTES_MAX = 4 << 20
"""Messages beside one record, unless one alone is larger. An append has 16 MiB at most."""
CLOSE_S = 5.0
"""How long a close waits for the record that is on its way: the in-sync set may not answer."""


@dataclass(frozen=True, slots=True)
class _Entry:
    """What is written together."""

    events: Sequence[Event]
    letters: Sequence[JournaledMessage]
    is_safe: bool
    written: "asyncio.Future[Written]"
    may_be_refused: bool
    is_alone: bool = False
    """Whether it gets a record of its own: together with others it was refused."""
    late: Callable[[], Sequence[Event]] = tuple
    """Returns further events when the record is made, and all before it are decided."""

    @property
    def all_events(self) -> Sequence[Event]:
        return (*self.events, *self.late())

    @property
    def size_bytes(self) -> int:
        return sum(letter.size_bytes for letter in self.letters)


class Journal:
    """Of one owner. `begin` first; `close` in the end. Each record tells `time` the log's time."""

    def __init__(self, log: Log, owner: str, time: StoreTime) -> None:
        self.failure: Exception | None = None
        self.failed = asyncio.Event()
        self.event_count = 0
        """Events that were given, since the beginning."""
        self.on_written: Callable[[Written], None] = lambda _: None
        """Hears of each record that was written."""
        self.format = FORMAT
        """The format of the records that are written. A journal that has records of a later one gets that."""
        self.begun_ms = 0
        """Store time of the first record."""
        self.time = time
        self._log = log
        self._owner = owner
        self._entries: deque[_Entry] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._next_number = -1

    async def begin(self, event: Event) -> Written:
        """Write the first record, after which no other process writes any more. Raises what `Log.write` raises."""
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
        """Write events, and messages with them, and return what tells when they are written, or why not.

        Messages without events may be refused alone, by AppendRefused, and so may those with `may_be_refused`, whose
        events nothing that is known has before they are written: the journal goes on. `late` returns events to add when
        the record is made: what was given before is written or refused by then, or is in the same record. Raises why
        nothing can be written any more.
        """
        if self.failure is not None:
            raise self.failure
        entry = _Entry(events, letters, is_safe, asyncio.get_running_loop().create_future(), may_be_refused, late=late)
        self._entries.append(entry)
        self.event_count += len(events)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all(), name="delivery journal")
        return entry.written

    async def close(self) -> None:
        """Write what waits, if that goes well soon, and nothing more."""
        if self._writing is not None:
            await asyncio.wait([self._writing], timeout=CLOSE_S)
            self._writing.cancel()
            await asyncio.wait([self._writing])
        self._fail(JournalLost("the journal is closed"))

    async def _write_all(self) -> None:
        await asyncio.sleep(0)  # what else happens in this turn of the loop comes along
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
            except Exception as error:  # noqa: BLE001 - whatever it is, those who wait have to hear of it
                self._entries.extendleft(reversed(some))
                self._fail(error)
                break
            for entry in some:
                if not entry.written.done():  # else its caller has gone
                    entry.written.set_result(written)
        self._writing = None

    async def _without_refused(self, some: list[_Entry], error: AppendRefused) -> bool:
        """Tell those whose messages the log never takes, and write the others. Returns whether the journal goes on."""
        if len(some) > 1:
            for entry in reversed(some):
                self._entries.appendleft(replace(entry, is_alone=True))
        elif some[0].events and not some[0].may_be_refused:  # what is known has them already
            self._entries.appendleft(some[0])
            self._fail(error)
        elif not some[0].written.done():
            some[0].written.set_exception(error)
        return self.failure is None

    def _some(self) -> list[_Entry]:
        """Take the entries of the next record."""
        some = [self._entries.popleft()]
        event_count, size_bytes = len(some[0].events), some[0].size_bytes
        while self._entries and not some[0].is_alone:
            event_count += len(self._entries[0].events)
            size_bytes += self._entries[0].size_bytes
            if event_count > EVENT_COUNT_MAX or size_bytes > LETTERS_SIZE_BYTES_MAX or self._entries[0].is_alone:
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
        record = DeliveryRecord(format=self.format, owner=self._owner, events=tuple(events))
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
                written.exception()  # nobody may be left to hear of it
