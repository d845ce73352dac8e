# SPDX-License-Identifier: Apache-2.0
"""Model: the messages sent to the store, its promises, and whether the records that it shows agree.

The log is a sequence, so a promise is a single number: everything below `safe_physical_offset` outlives a power cut,
everything below `kept_physical_offset` a killed process. A message is sent, then placed (its append returned, or it was
found although no caller was told), or refused. A placed message may be lost when the log ends earlier after a fault,
and then must never come back. A message with a delay level is placed in the schedule topic. Bytes that were looked at
before are kept in `content`, so a later look costs a single comparison. Invariants that `look` checks: each record is a
message that was sent, at the place of the answer, with all its fields; no message twice; batches in order; queue
offsets count the messages of a queue; store times ascend.
"""

import bisect
from collections.abc import Iterable
from dataclasses import dataclass, field

from libs.formats.records import properties, record
from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.formats.records.record import Record

NUMBER_DIGIT_COUNT = 8


class Broken(Exception):
    """A promise that did not hold."""


def expect(condition: bool, text: str) -> None:
    """Raise Broken unless the condition holds."""
    if not condition:
        raise Broken(text)


@dataclass(slots=True)
class Message:
    """A message as it was sent. `physical_offset` is -1 until it is placed."""

    number: int
    topic: str
    queue_id: int
    """-1: the log chooses."""
    body: bytes
    tag: str
    keys: str
    unique_id: str
    delay_level: int
    is_first: bool
    """Whether it is the first of its batch, whose messages have consecutive numbers."""
    is_stamped: bool = False
    """The first of a writer's batch."""
    physical_offset: int = -1

    @property
    def properties(self) -> dict[str, str]:
        """Its properties without the properties that the store adds."""
        delay = str(self.delay_level) if self.delay_level else ""
        pairs = {"TAGS": self.tag, "KEYS": self.keys, "UNIQ_KEY": self.unique_id, "DELAY": delay}
        return {name: value for name, value in pairs.items() if value}

    @property
    def all_keys(self) -> set[str]:
        """The keys by which it is found."""
        return {key for key in [*self.keys.split(" "), self.unique_id] if key}


@dataclass(slots=True)
class Placed:
    """A record of the log. `end_physical_offset` is -1 until it was looked at."""

    message: Message
    topic: str
    queue_id: int
    physical_offset: int
    queue_offset: int
    store_time_ms: int = 0
    end_physical_offset: int = -1


@dataclass(slots=True)
class Model:
    """The messages, places and promises of a store, and the checks of its records."""

    sent: dict[int, Message] = field(default_factory=dict)
    """By number, the messages whose batch may be in the log."""
    placed: list[Placed] = field(default_factory=list)
    """In log order."""
    lost: dict[int, Message] = field(default_factory=dict)
    min_physical_offset: int = 0
    safe_physical_offset: int = 0
    kept_physical_offset: int = 0
    base_physical_offset: int = 0
    """Where `content` begins."""
    content: bytearray = field(default_factory=bytearray)
    next_queue_offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    """The next queue offset of each queue, after the records in `content` and all before."""
    begun_again: set[tuple[str, int]] = field(default_factory=set)
    """Queues whose numbers were dropped: the next record of each may have queue offset 0."""
    last_store_time_ms: int = 0
    last_number: int = -1

    @property
    def seen_physical_offset(self) -> int:
        """End of the records that were looked at."""
        return self.base_physical_offset + len(self.content)

    def place(self, messages: list[Message], physical_offsets: Iterable[int], queue_offsets: Iterable[int]) -> None:
        """Record the places of a batch from the log's answer."""
        for message, physical_offset, queue_offset in zip(messages, physical_offsets, queue_offsets, strict=True):
            expect(message.physical_offset in (-1, physical_offset), f"message {message.number} moved")
            if message.physical_offset == -1:
                message.physical_offset = physical_offset
                topic = SCHEDULE_TOPIC if message.delay_level else message.topic
                self._insert(Placed(message, topic, -1, physical_offset, queue_offset))

    def keep(self, end_physical_offset: int) -> None:
        """The log promised that everything up to here outlives its process."""
        self.kept_physical_offset = max(self.kept_physical_offset, end_physical_offset)

    def promise(self, end_physical_offset: int) -> None:
        """The log promised that everything up to here outlives a power cut."""
        self.safe_physical_offset = max(self.safe_physical_offset, end_physical_offset)
        self.keep(end_physical_offset)

    def refuse(self, messages: list[Message]) -> None:
        """The log refused a batch: it must leave no trace."""
        for message in messages:
            expect(message.physical_offset == -1, f"message {message.number} was refused and is there")
            del self.sent[message.number]

    def restarted(self, end_physical_offset: int, *, was_power_cut: bool) -> None:
        """The log came back with this end, which it settled on."""
        least = self.safe_physical_offset if was_power_cut else self.kept_physical_offset
        expect(end_physical_offset >= least, f"the log ends at {end_physical_offset}, but promised to keep {least}")
        while self.placed and self.placed[-1].physical_offset >= end_physical_offset:
            gone = self.placed.pop()
            self.lost[gone.message.number] = gone.message
        if end_physical_offset < self.seen_physical_offset:
            self._forget_after(end_physical_offset)
        self.kept_physical_offset = self.safe_physical_offset

    def give_up(self) -> None:
        """Give up messages sent to a process that is gone: a message that is not in the log now must never appear."""
        for message in [one for one in self.sent.values() if one.physical_offset == -1]:
            self.lost[message.number] = self.sent.pop(message.number)

    def trimmed(self, min_physical_offset: int) -> None:
        """Segments at the old end are gone."""
        self.min_physical_offset = min_physical_offset
        cut = min(max(min_physical_offset - self.base_physical_offset, 0), len(self.content))
        del self.content[:cut]
        self.base_physical_offset += cut

    def kept(self) -> list[Placed]:
        """Records that are in the log, oldest first."""
        first = bisect.bisect_left(self.placed, self.min_physical_offset, key=lambda one: one.physical_offset)
        return self.placed[first:]

    def queued(self) -> dict[tuple[str, int], list[Placed]]:
        """The same by queue, only the messages that a queue has: a queue that begins again has no earlier message."""
        found: dict[tuple[str, int], list[Placed]] = {}
        for one in self.kept():
            messages = found.setdefault((one.topic, one.queue_id), [])
            if one.queue_offset == 0:
                messages.clear()
            messages.append(one)
        return found

    def look(self, start_physical_offset: int, data: bytes, positions: list[int], end_physical_offset: int) -> None:
        """Compare a stretch of the log, records at `positions` of `data` (a blank may follow), with sent messages."""
        known = min(max(self.seen_physical_offset - start_physical_offset, 0), len(data))
        at = start_physical_offset - self.base_physical_offset
        expect(data[:known] == self.content[at : at + known], f"the log changed after {start_physical_offset}")
        for position in positions:
            if position >= known:
                self._look_at(record.decode(data, position), start_physical_offset + position)
        if end_physical_offset > self.seen_physical_offset:
            expect(start_physical_offset <= self.seen_physical_offset, f"a hole before {start_physical_offset}")
            self.content += data[known:]
            self.content += bytes(end_physical_offset - self.seen_physical_offset)

    def check_complete(self, end_physical_offset: int) -> None:
        """All that was placed below the end was seen."""
        for one in reversed(self.placed):
            if one.end_physical_offset != -1 or one.physical_offset < self.min_physical_offset:
                break
            where = f"message {one.message.number}, placed at {one.physical_offset}"
            expect(one.physical_offset >= end_physical_offset, f"{where}, is not in the log")

    def _look_at(self, found: Record, physical_offset: int) -> None:
        where = f"the record at {physical_offset}"
        digits = found.body[:NUMBER_DIGIT_COUNT]
        number = int(digits) if digits.isdigit() else -1
        message = self.sent.get(number)
        expect(message is not None, f"{where} is message {number}, which was {self._absence(number)}")
        assert message is not None
        _check_fields(found, message, where)
        queue = (found.topic, found.queue_id)
        next_offset = self.next_queue_offsets.get(queue, 0)
        if found.queue_offset == 0 and queue in self.begun_again:
            next_offset = 0
        follows = message.is_first or self.last_number in (number - 1, -1)
        for is_right, what in (
            (found.physical_offset == physical_offset, f"says that it is at {found.physical_offset}"),
            (found.queue_offset == next_offset, f"has queue offset {found.queue_offset} of {queue}, not {next_offset}"),
            (found.store_time_ms >= self.last_store_time_ms, "is older than the one before it"),
            (follows, f"does not follow message {number - 1} of its batch"),
        ):
            expect(is_right, f"{where}, message {number}, {what}")
        placed = self._placed_at(found, message, physical_offset, where)
        placed.queue_id, placed.store_time_ms = found.queue_id, found.store_time_ms
        placed.end_physical_offset = physical_offset + found.size_bytes
        self._take_note(placed)

    def _placed_at(self, found: Record, message: Message, physical_offset: int, where: str) -> Placed:
        """The place of a record, new if no caller was told of it."""
        self.place([message], [physical_offset], [found.queue_offset])
        at = bisect.bisect_left(self.placed, physical_offset, key=lambda one: one.physical_offset)
        placed = self.placed[at]
        expect(placed.queue_offset == found.queue_offset, f"{where}: its queue offset was told otherwise")
        return placed

    def _insert(self, placed: Placed) -> None:
        bisect.insort(self.placed, placed, key=lambda one: one.physical_offset)

    def _absence(self, number: int) -> str:
        return "lost before" if number in self.lost else "never sent or was refused"

    def _take_note(self, placed: Placed) -> None:
        self.next_queue_offsets[placed.topic, placed.queue_id] = placed.queue_offset + 1
        self.last_store_time_ms = placed.store_time_ms
        self.last_number = placed.message.number

    def _forget_after(self, end_physical_offset: int) -> None:
        """Forget the records behind an end, and count the queues again."""
        del self.content[max(end_physical_offset - self.base_physical_offset, 0) :]
        self.base_physical_offset = min(self.base_physical_offset, end_physical_offset)
        self.next_queue_offsets = {}
        self.last_store_time_ms, self.last_number = 0, -1
        for placed in self.placed:
            if placed.end_physical_offset != -1:
                self._take_note(placed)


def _check_fields(found: Record, message: Message, where: str) -> None:
    """Compare a stored message with the sent message. A delayed message names its real place."""
    stored = properties.decode(found.properties)
    stored.pop("__CRC32#", None)
    has_stamp = stored.pop("REPUT_WRITER", "") != ""
    expect(has_stamp == message.is_stamped, f"{where} has a stamp: {has_stamp}")
    topic, queue_id = message.topic, message.queue_id
    if message.delay_level:
        real_topic, real_queue_id = stored.pop("REAL_TOPIC", ""), int(stored.pop("REAL_QID", "-2"))
        expect(
            real_topic == topic and queue_id in (-1, real_queue_id),
            f"{where} is to be delivered to {real_topic}/{real_queue_id}, not to {topic}/{queue_id}",
        )
        topic, queue_id = SCHEDULE_TOPIC, message.delay_level - 1
    is_same = (found.topic, found.body, stored) == (topic, message.body, message.properties)
    expect(
        is_same and queue_id in (-1, found.queue_id), f"{where} differs from message {message.number} as it was sent"
    )
