# SPDX-License-Identifier: Apache-2.0
"""The expected content of a store, and the comparison of every answer of either store with it.

The history grows with the acknowledged messages. After a kill, `adopt` adds the messages that were sent and stored,
but not acknowledged. Every other difference is an error.
"""

import bisect
import itertools
from collections.abc import Sequence

import msgspec

from libs.formats.indexes.consume_queue import UNIT_SIZE_BYTES
from libs.formats.indexes.index_file import key_hash, key_text
from tests.interop.rocketmq.reput_store import ReputStore
from tests.interop.rocketmq.rocketmq_store import RocketMqStore
from tests.interop.rocketmq.stored import ROLLBACK, TRANSACTION_MASK, Draft, Queue, Sizes, Stored, stored, without_size

Placed = tuple[int, int, int]
ROCKETMQ_KEY_COUNT_MAX = 64
SHOWN_DIFFERENCES = 5
TIME_QUESTIONS_PER_QUEUE = 3


def check_equal(expected: Sequence[object], found: Sequence[object], what: str) -> None:
    """Refuse lists that differ, and show only the first differences, because these lists are long."""
    if expected == found:
        return
    pairs = enumerate(itertools.zip_longest(expected, found))
    differences = [f"[{i}]\n  expected {e}\n  found    {f}" for i, (e, f) in pairs if e != f]
    raise AssertionError(
        f"{what}: {len(differences)} of {len(expected)} differ ({len(found)} found)\n"
        + "\n".join(differences[:SHOWN_DIFFERENCES])
    )


class History:
    """Messages of a store in the order of its log."""

    def __init__(self) -> None:
        self.messages: list[Stored] = []
        self._sent: dict[int, Draft] = {}

    def __len__(self) -> int:
        return len(self.messages)

    def send(self, drafts: Sequence[Draft]) -> None:
        """Record the messages that will be written next."""
        self._sent.update((draft.flag, draft) for draft in drafts)

    def acknowledge(self, drafts: Sequence[Draft], placed: Sequence[Placed]) -> None:
        """Record the places of messages."""
        for draft, place in zip(drafts, placed, strict=True):
            self._sent.pop(draft.flag, None)
            self.messages.append(stored(draft, *place))

    def adopt(self, log: Sequence[Stored]) -> int:
        """After a kill: add the messages that were stored without an acknowledgement, and return their number."""
        known = {message.flag for message in self.messages}
        count = 0
        for message in log:
            if message.flag not in known:
                assert message.flag in self._sent, f"nobody sent {message}"
                place = (message.physical_offset, message.queue_offset, message.store_time_ms)
                self.acknowledge([self._sent[message.flag]], [place])
                count += 1
        self._sent.clear()
        self.messages.sort(key=lambda message: message.physical_offset)
        return count

    def first(self, count: int) -> "History":
        """Return the history of a copy that has only the first `count` messages."""
        found = History()
        found.messages = self.messages[:count]
        return found

    @property
    def queues(self) -> list[Queue]:
        """The expected result of reading all queues, without the sizes of the records."""
        found: dict[tuple[str, int], list[Stored]] = {}
        for message in self.messages:
            if message.is_in_queue:
                rows = found.setdefault((message.topic, message.queue_id), [])
                if message.queue_offset == 0:
                    rows.clear()  # the queue begins again
                rows.append(message)
        for rows in found.values():
            check_equal(list(range(len(rows))), [row.queue_offset for row in rows], "queue offsets have a hole")
        return [Queue(topic, queue_id, 0, len(rows), rows) for (topic, queue_id), rows in sorted(found.items())]

    @property
    def identified(self) -> list[Stored]:
        """The messages that Reput finds by id: all that are in a queue or have a key.

        Other records are not found, because a body might hold the bytes of a record.
        """
        queued = {message.physical_offset for queue in self.queues for message in queue.messages}
        keyed = {message.physical_offset for messages in self.by_key.values() for message in messages}
        return [message for message in self.messages if message.physical_offset in queued | keyed]

    @property
    def by_key(self) -> dict[tuple[str, str], list[Stored]]:
        """Messages of each topic and key. A message that was rolled back is not found by key."""
        found: dict[tuple[str, str], list[Stored]] = {}
        for message in self.messages:
            if message.sys_flag & TRANSACTION_MASK != ROLLBACK:
                for key in message.keys:
                    found.setdefault((message.topic, key), []).append(message)
        return found


class Reader:
    """Asks a store for everything and compares it with a history. Record sizes are compared between stores."""

    def __init__(self, history: History, sizes: Sizes) -> None:
        self.history = history
        self.queues = history.queues
        self._times = {(q.topic, q.queue_id): [message.store_time_ms for message in q.messages] for q in self.queues}
        self._units_per_file = sizes.queue_file_size_bytes // UNIT_SIZE_BYTES
        self.by_key = history.by_key
        self._read: list[Queue] | None = None

    def check_queues(self, found: Sequence[Queue]) -> None:
        """Check every message by queue offset, with all fields.

        A second store must return the same record sizes as the first.
        """
        for expected, queue in itertools.zip_longest(self.queues, found):
            assert expected is not None, f"{queue.topic} {queue.queue_id} is not known"
            assert queue is not None, f"{expected.topic} {expected.queue_id} is missing"
            name = f"{expected.topic[:20]} {expected.queue_id}"
            check_equal(expected.messages, without_size(queue.messages), name)
            assert msgspec.structs.replace(queue, messages=expected.messages) == expected
        if self._read is not None:
            for first, second in zip(self._read, found, strict=True):
                check_equal(first.messages, second.messages, f"sizes: {first.topic[:20]} {first.queue_id}")
        self._read = list(found)

    async def check_rocketmq(self, store: RocketMqStore) -> None:
        """Check every message in the order of the log, by queue offset, by each of its keys and by its time."""
        self.check_queues(await store.read())
        messages = self.history.messages
        check_equal(messages, without_size(await store.walk()), "the log")
        keys = list(self.by_key)
        for name, offsets in zip(keys, await store.by_keys(keys), strict=True):
            self._check_rocketmq_key(name, offsets)
        questions = self._time_questions()
        for question, answer in zip(questions, await store.by_times(questions), strict=True):
            self._check_time(question, answer)

    async def check_reput(self, store: ReputStore) -> None:
        """Check every message in the order of the log, by Pull, QueryByKey, QueryByTime, GetOffsetByTime and by id."""
        self.check_queues(await store.read())
        messages = self.history.messages
        check_equal(messages, without_size(await store.walk()), "the log")
        by_id = await store.by_ids([message.message_id for message in self.history.identified])
        check_equal(self.history.identified, without_size(by_id), "by id")
        keys = list(self.by_key)
        for name, rows in zip(keys, await store.by_keys(keys), strict=True):
            check_equal(self.by_key[name], without_size(rows), f"key {name}")
        questions = self._time_questions()
        for question, answer in zip(questions, await store.by_times(questions), strict=True):
            self._check_time(question, answer)
        for topic in {queue.topic for queue in self.queues}:
            cut, last = messages[len(messages) // 3].store_time_ms, messages[-1].store_time_ms
            rows = [row for queue in self.queues if queue.topic == topic for row in queue.messages]
            for start, end in ((0, cut), (cut, last + 1)):
                expected = [row for row in rows if start <= row.store_time_ms < end]
                check_equal(expected, without_size(await store.by_time(topic, start, end)), f"time {topic[:20]}")

    def _check_rocketmq_key(self, name: tuple[str, str], found: Sequence[int]) -> None:
        """RocketMQ returns the newest 64 messages, and also messages with another key of the same hash.

        A message that it indexed twice is returned twice.
        """
        expected = [message.physical_offset for message in self.by_key[name]]
        own = [offset for offset in dict.fromkeys(found) if offset in set(expected)]
        foreign = set(found) - set(expected)
        if len(found) < ROCKETMQ_KEY_COUNT_MAX:
            check_equal(expected, sorted(own), f"key {name}")
        else:
            assert own, name
            check_equal(expected[-len(own) :], sorted(own), f"key {name}")
        for offset in foreign:
            other = self._at(offset)
            hashes = {key_hash(key_text(other.topic, key)) for key in other.keys}
            assert key_hash(key_text(*name)) in hashes, (name, other)

    def _at(self, physical_offset: int) -> Stored:
        index = bisect.bisect_left(self.history.messages, physical_offset, key=lambda m: m.physical_offset)
        return self.history.messages[index]

    def _time_questions(self) -> list[tuple[str, int, int]]:
        questions = []
        for (topic, queue_id), times in self._times.items():
            step = max(1, len(times) // TIME_QUESTIONS_PER_QUEUE)
            asked = {times[0] - 1, times[-1] + 1}.union(*({time, time + 1} for time in times[::step]))
            questions += [(topic, queue_id, time) for time in sorted(asked)]
        return questions

    def _check_time(self, question: tuple[str, int, int], answer: Sequence[int]) -> None:
        """Check two bounds, or the offset that 4.9 returns.

        4.9 chooses the queue file by its time on the disk, and no entry in this file is nearer.
        """
        topic, queue_id, time = question
        times = self._times[topic, queue_id]
        if len(answer) == 2:
            lower = bisect.bisect_left(times, time)
            upper = max(0, bisect.bisect_right(times, time) - 1)
            assert list(answer) == [lower, upper], (question, answer, lower, upper)
            return
        (offset,) = answer
        first = offset - offset % self._units_per_file
        distances = [abs(other - time) for other in times[first : first + self._units_per_file]]
        assert distances[offset - first] == min(distances), (question, answer)
