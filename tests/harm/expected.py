# SPDX-License-Identifier: Apache-2.0
"""The content of the store and of each answer: messages that are functions of their numbers, a line for each.

An answer is a tuple of lines. The line of a message names its number, its place and a digest of its content, so that
two lines are equal if, and only if, the messages are; the copy of a delayed message has no place, because it is not
known beforehand. Invariant: `Expected` grows by acknowledged messages and never loses anything.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.common.v1.message_pb2 import StoredMessage

from libs.formats.records.delay_level import SCHEDULE_TOPIC
from tests.crash.history import DELAY, KEYS, TAGS, UNIQUE_KEY, Sent

ORDERS, PARTS, LATER = "orders", "parts", "later"
QUEUES = ((ORDERS, 0), (ORDERS, 1), (PARTS, 3), (LATER, 0), (SCHEDULE_TOPIC, 0), (SCHEDULE_TOPIC, 1))
TAG = "red"
TAGS_BY_CHANCE = (TAG, "green", "blue")
KEY_COUNT = 7
GROUP = "readers"
BORN_TIME_MS = 1_700_000_000_000
LEFT_OUT = frozenset({"__CRC32#", "REAL_TOPIC", "REAL_QID", DELAY})
"""Properties that the store adds to a record or takes from a delivered message."""

COPY = "copy of "
"""How the line of a delayed message's copy begins."""

LOG, GROUPS, TOPICS, RUNS, LEVELS = "log", "groups", "topics", "runs", "delay levels"
STATES = (GROUPS, TOPICS, RUNS, LEVELS)
"""Questions about something else than messages."""


def sent(number: int) -> Sent:
    """The message of a number: most are orders, every eighth goes to parts, every sixteenth waits."""
    topic, queue_id = (ORDERS, 0 if number % 4 else 1)
    if number % 8 == 3:
        topic, queue_id = PARTS, 3
    properties = {UNIQUE_KEY: f"u{number}", KEYS: f"key-{number % KEY_COUNT}", TAGS: TAGS_BY_CHANCE[number % 3]}
    if number % 16 == 0:
        topic, queue_id = LATER, 0
        properties[DELAY] = str(1 + number // 16 % 2)
    return Sent(
        number=number,
        caller=1,
        sequence=number,
        topic=topic,
        queue_id=queue_id,
        body_size_bytes=600 + 97 * number % 800,
        properties=properties,
        born_time_ms=BORN_TIME_MS + number,
    )


def line_of_record(message: StoredMessage) -> str:
    """The line of a message in an answer."""
    place = f"{message.topic}/{message.queue_id}@{message.queue_offset} at {message.physical_offset}"
    digest = _digest(message.body, message.properties, message.born_time_ms)
    return _line(message.flag, message.topic, place, digest)


def line_of_sent(one: Sent) -> str:
    """The line of an acknowledged message in answers. For a delayed message it is its copy's line."""
    place = f"{one.topic}/{one.queue_id}@{one.queue_offset} at {one.physical_offset}"
    return _line(one.number, one.topic, place, _digest(one.body, one.properties, one.born_time_ms))


def offset_line(group: str, topic: str, queue_id: int, queue_offset: int) -> str:
    """The line of a consumer group's offset."""
    return f"{group} {topic}/{queue_id} = {queue_offset}"


def queue_question(topic: str, queue_id: int, tag: str = "") -> str:
    """A queue from its begin to its end, all of it or the messages with a tag."""
    return f"queue {topic}/{queue_id}" + (f" tag {tag}" if tag else "")


def key_question(topic: str, key: str) -> str:
    """All messages of a topic that have a key."""
    return f"key {topic} {key}"


def id_question(topic: str, unique_id: str) -> str:
    """The message with a unique id."""
    return f"id {topic} {unique_id}"


def time_question(topic: str, start_time_ms: int = 0) -> str:
    """All messages of a topic from a store time on."""
    return f"time {topic} {start_time_ms}"


@dataclass(slots=True)
class Expected:
    """The questions, and the expected answer to each."""

    lines: dict[str, list[str]] = field(default_factory=dict)
    numbers: list[int] = field(default_factory=list)
    """All messages that were sent, also expired messages."""
    middle_time_ms: int = 0
    """A store time in the middle of the store, from which on a question asks."""

    def copy(self) -> Expected:
        """An independent copy."""
        lines = {question: list(lines) for question, lines in self.lines.items()}
        return Expected(lines, list(self.numbers), self.middle_time_ms)

    def add(self, messages: Iterable[Sent], result: append_pb.AppendResult) -> None:
        """Take in a batch that was acknowledged."""
        places = zip(result.physical_offsets, result.queue_offsets, result.queue_ids, strict=True)
        for one, (physical_offset, queue_offset, queue_id) in zip(messages, places, strict=True):
            one.physical_offset, one.queue_offset = physical_offset, queue_offset
            self.numbers.append(one.number)
            if one.is_delayed:
                place = f"{SCHEDULE_TOPIC}/{queue_id}@{queue_offset} at {physical_offset}"
                digest = _digest(one.body, one.properties, one.born_time_ms)
                record = _line(one.number, SCHEDULE_TOPIC, place, digest)
                self._put(record, LOG, queue_question(SCHEDULE_TOPIC, queue_id))
            self._put(line_of_sent(one), *self._questions(one))

    def commit(self, topic: str, queue_id: int, queue_offset: int) -> None:
        """Take in the offset of a group that was committed."""
        start = offset_line(GROUP, topic, queue_id, 0)[:-1]
        kept = [line for line in self.lines.setdefault(GROUPS, []) if not line.startswith(start)]
        self.lines[GROUPS] = [*kept, offset_line(GROUP, topic, queue_id, queue_offset)]

    def keep(self, kept: frozenset[str]) -> list[str]:
        """Forget messages that are not among these lines, because they have expired; the lines that went."""
        gone: dict[str, None] = {}
        for question, lines in self.lines.items():
            if question not in STATES:
                gone.update(dict.fromkeys(line for line in lines if line not in kept))
                self.lines[question] = [line for line in lines if line in kept]
        return list(gone)

    def _questions(self, one: Sent) -> list[str]:
        topic, properties = one.topic, one.properties
        tagged = [queue_question(topic, one.queue_id, TAG)] if properties[TAGS] == TAG else []
        questions = [
            *(LOG, queue_question(topic, one.queue_id), *tagged),
            *(key_question(topic, properties[KEYS]), id_question(topic, properties[UNIQUE_KEY])),
            *(time_question(topic), time_question(topic, self.middle_time_ms)),
        ]
        return list(dict.fromkeys(questions))

    def _put(self, line: str, *questions: str) -> None:
        for question in questions:
            self.lines.setdefault(question, []).append(line)


def _line(number: int, topic: str, place: str, digest: str) -> str:
    return f"{COPY}{number}: {digest}" if topic == LATER else f"{number} {place}: {digest}"


def _digest(body: bytes, properties: Mapping[str, str], born_time_ms: int) -> str:
    kept = sorted((name, value) for name, value in properties.items() if name not in LEFT_OUT)
    return hashlib.sha256(repr((body, kept, born_time_ms)).encode()).hexdigest()[:8]
