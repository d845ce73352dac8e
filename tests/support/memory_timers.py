# SPDX-License-Identifier: Apache-2.0
"""The timer topic of a log in memory, as Delivery's engine sees it."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from libs.formats.records import timed as timed_record
from libs.formats.state.system_topics import TIMER_TOPIC
from services.delivery.engine.ports.messages import Copy, Found, Note, Read
from services.delivery.engine.ports.timers import Timed
from services.delivery.errors import AppendRefused

RECORD_SIZE_BYTES = 100


@dataclass(frozen=True)
class Sent:
    """A message as it is stored."""

    text: str
    properties: dict[str, str] = field(default_factory=dict)
    store_time_ms: int = 0


class Store(Protocol):
    """The log that the topic is in."""

    end: int
    segment_size_bytes: int

    async def append(self, topic: str, message: object) -> int: ...
    async def tell(self) -> None: ...
    async def wait(self, wait_s: float) -> None: ...
    def queues(self, topic: str) -> list[list[Found]]: ...


class MemoryTimers:
    """The waiting messages of a store, in memory.

    A batch with a text that begins with `!` is refused while it names a queue, with `!!` always.
    """

    def __init__(self, store: Store) -> None:
        self.records: list[Timed] = []
        self.min_queue_offset = 0
        self.min_physical_offset = 0
        self.indexed_behind = 0
        """This many of the last records are not indexed."""
        self.rolled_count_max = 1_000
        self.now_ms: Callable[[], int] = lambda: 0
        """The time of the log, and how far it is ahead of the clock."""
        self.ahead_ms: Callable[[], int] = lambda: 0
        self._store = store

    async def send(self, topic: str, text: str, *, due_ms: int, **more: str) -> int:
        """Append a message that waits. Returns its queue offset."""
        place = {timed_record.REAL_TOPIC: topic, timed_record.REAL_QUEUE_ID: "0", timed_record.DELIVER_MS: str(due_ms)}
        return await self.put(Sent(text, {**place, **more}, self.now_ms()))

    async def put(self, sent: Sent) -> int:
        """Append a record. Returns its queue offset."""
        properties, end = sent.properties, self._store.end
        self.records.append(
            Timed(
                queue_offset=len(self.records),
                physical_offset=end,
                size_bytes=RECORD_SIZE_BYTES,
                due_ms=timed_record.due_ms(properties, sent.store_time_ms),
                topic=properties.get(timed_record.REAL_TOPIC, ""),
                queue_id=int(properties.get(timed_record.REAL_QUEUE_ID, "0")),
                unique_id=properties.get(timed_record.UNIQUE_ID) or f"id{end}",
                deletes=properties.get(timed_record.DELETE, ""),
                is_cancelled=timed_record.CANCELLED in properties,
                out=properties.get(timed_record.OUT_MS, ""),
                is_rolled_by_rocketmq=timed_record.DEQUEUED_MS in properties,
                message=sent,
                is_by_clock=timed_record.is_by_clock(properties),
            )
        )
        self._store.end += RECORD_SIZE_BYTES
        await self._store.tell()
        return len(self.records) - 1

    def check(self, letters: Sequence[object]) -> None:
        """Raise the error with which the log would refuse the letters."""
        if sum(isinstance(one, Copy) and one.topic == TIMER_TOPIC for one in letters) > self.rolled_count_max:
            raise AppendRefused("BATCH_TOO_LARGE")
        for letter in letters:
            self._check_one(letter)

    def _check_one(self, letter: object) -> None:
        if isinstance(letter, Copy) and letter.topic != TIMER_TOPIC:
            text = letter.message.text
            if text.startswith("!!") or (text.startswith("!") and letter.queue_id is not None):
                raise AppendRefused(f"QUEUE_OUT_OF_RANGE: {text}")

    async def keep(self, letter: Copy | Note) -> None:
        """Append Delivery's letter. No message is early."""
        if isinstance(letter, Note):
            await self.put(Sent("", dict(letter.properties), self.now_ms()))
            return
        kept = {name: value for name, value in letter.message.properties.items() if name not in letter.without}
        sent = replace(letter.message, properties={**kept, **letter.properties}, store_time_ms=self.now_ms())
        if letter.topic == TIMER_TOPIC:
            await self.put(sent)
        else:
            now_ms = self.now_ms() - (self.ahead_ms() if timed_record.is_by_clock(letter.message.properties) else 0)
            assert int(sent.properties[timed_record.DELIVER_MS]) <= now_ms, f"{sent.text} is early"
            assert timed_record.OUT_MS in sent.properties, f"{sent.text} may have to wait once more"
            await self._store.append(letter.topic, sent)

    @property
    def _indexed(self) -> list[Timed]:
        return self.records[: len(self.records) - self.indexed_behind]

    async def end(self) -> int:
        """Return the end of the topic's queue."""
        return len(self._indexed)

    async def waiting(self, queue_offset: int, *, wait_s: float) -> Read[Timed]:
        """See TimerIndex."""
        queue_offset = max(queue_offset, self.min_queue_offset)
        if queue_offset >= len(self._indexed) and wait_s:
            await self._store.wait(wait_s)
        found = self._indexed[queue_offset : queue_offset + 100]
        return Read(found, queue_offset + len(found), self.min_queue_offset, len(self._indexed))

    async def read(self, physical_offsets: Sequence[int]) -> list[Timed | None]:
        """See TimerIndex."""
        known = {one.physical_offset: one for one in self.records[self.min_queue_offset :]}
        return [known.get(one) for one in physical_offsets[:50]]

    async def by_id(self, topic: str, unique_id: str) -> tuple[list[Timed], int]:
        """See TimerIndex."""
        indexed = self._indexed[self.min_queue_offset :]
        found = [one for one in indexed if unique_id in (one.unique_id, f"id{one.physical_offset}")]
        end = self._store.end if not self.indexed_behind else self.records[-self.indexed_behind].physical_offset
        return [one for one in reversed(found) if topic in ("", one.topic)], end

    async def is_delivered(self, timed: Timed) -> bool:
        """See TimerIndex."""
        found = [one.message for one in self._store.queues(timed.topic)[0] if one.message.text == timed.message.text]
        outs = [one.properties.get(timed_record.OUT_MS) for one in found if timed_record.DEQUEUED_MS in one.properties]
        return timed.out in outs

    async def stored_before(self, time_ms: int) -> int:
        """See TimerIndex."""
        return next(
            (one.queue_offset for one in self.records if one.message.store_time_ms >= time_ms), len(self.records)
        )

    async def log_bounds(self) -> tuple[int, int, int]:
        """See TimerIndex."""
        return self.min_physical_offset, self._store.end, self._store.segment_size_bytes
