# SPDX-License-Identifier: Apache-2.0
"""Topics and queue counters in flat arrays that the append kernel reads and advances without the GIL.

Removing a topic forbids appends. The counters of queues that had a message stay, so that they continue when the topic
is created again. Rows contain the counters of the queues below COUNTER_CAPACITY, which is at least `write_queue_count`.
A counter of a higher queue, or of a removed topic, is in a dictionary. The space of removed topics is freed when it is
as large as the used space.
Callers: a single thread at a time, the thread that appends. An array must not change its size while `append` runs.
Not handled: permissions for readers, names (the service checks them), persistence (see `counters`).
"""

from array import array
from collections.abc import Collection, Iterator
from itertools import chain
from zlib import crc32

import numpy as np

from libs.formats.limits import QUEUE_ID_MAX
from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.formats.state.system_topics import HALF_TOPIC, TIMER_TOPIC
from libs.kernel.layout import (
    BEGUN_COUNT,
    COUNTER_CAPACITY,
    COUNTER_START,
    EVERYBODY,
    HAS_SHARE,
    NAME_HASH,
    NAME_SIZE,
    NAME_START,
    NOBODY,
    OPEN_QUEUE,
    REDIRECT_COUNT,
    REDIRECT_HALF,
    REDIRECT_LEVEL,
    REDIRECT_TIMER,
    ROUND_ROBIN,
    ROW_STRIDE,
    SEALED_QUEUE,
    SERVICES,
    WRITE_QUEUE_COUNT,
    WRITERS,
)

WASTE_MIN = 4_096
"""Unused rows or counters are freed only if there are more than half of this number."""
REDIRECTS = {SCHEDULE_TOPIC: REDIRECT_LEVEL, TIMER_TOPIC: REDIRECT_TIMER, HALF_TOPIC: REDIRECT_HALF}
"""Maps each topic where messages wait to the reason of the wait."""
_REDIRECT_NAMES = {name.encode(): redirect for name, redirect in REDIRECTS.items()}

Counter = tuple[bytes, int, int]
"""Topic, queue id, and the queue offset of the next message."""


class TopicTable:
    """Topics by name, each with a queue count, a permission to write and the next offset of every queue."""

    def __init__(self) -> None:
        self.topic_count = 0
        """Number of rows."""
        self.redirect_rows = array("q", [-1] * REDIRECT_COUNT)
        """First column of the row of each topic where messages wait. -1 until `put_topic` was called for it."""
        self.names = bytearray()
        self.rows = array("q")
        self.slots = array("i", bytes(4 * 64))  # open addressing, row number + 1; a power of two, at most half full
        self.counter_values = array("q")
        self.own_queues = array("b")
        """A flag beside each counter: whether the queue is here, for a topic that has a share."""
        self._outside: dict[int, dict[int, int]] = {}
        self._removed_count = 0
        self._wasted_counter_count = 0

    def put_topic(
        self,
        name: bytes,
        *,
        write_queue_count: int,
        is_writable: bool,
        is_internal: bool = False,
        own_queue_ids: Collection[int] | None = None,
        sealed_queue_ids: Collection[int] = (),
    ) -> None:
        """Create or change a topic, and keep its counters. 1 <= write_queue_count <= 65,535.

        Only the store itself writes to a topic that `is_internal`. With `own_queue_ids` callers must name the queue of
        a message, and only these queues take messages, without those that are sealed: only the store itself still
        writes to them.
        """
        assert name
        assert 1 <= write_queue_count <= QUEUE_ID_MAX
        row = self._find_or_add(name)
        if write_queue_count > self.rows[row + COUNTER_CAPACITY]:
            self._grow_counters(row, write_queue_count)
        self.rows[row + WRITE_QUEUE_COUNT] = write_queue_count
        self.rows[row + WRITERS] = SERVICES if is_internal else EVERYBODY if is_writable else NOBODY
        self._own(row, own_queue_ids, sealed_queue_ids)
        if (redirect := _REDIRECT_NAMES.get(name)) is not None:
            self.redirect_rows[redirect] = row

    def remove_topic(self, name: bytes) -> None:
        """Forbid appends to a topic, and keep its counters. An unknown topic has no effect."""
        row = self._find(name)
        if row < 0 or self.rows[row + WRITE_QUEUE_COUNT] == 0:
            return
        counters = {queue_id: value for _, queue_id, value in self._counters_of(row)}
        self._outside.pop(row, None)
        if counters:
            self._outside[row] = counters
        else:
            self._removed_count += 1
        self._wasted_counter_count += self.rows[row + COUNTER_CAPACITY]
        self.rows[row + WRITE_QUEUE_COUNT] = self.rows[row + COUNTER_START] = self.rows[row + COUNTER_CAPACITY] = 0
        self._own(row, None, ())
        self._give_back()

    def counters_of(self, name: bytes) -> list[Counter]:
        """Return the counters above 0 of a topic."""
        row = self._find(name)
        return list(self._counters_of(row)) if row >= 0 else []

    def next_queue_offset(self, name: bytes, queue_id: int) -> int:
        """Return the queue offset of the next message of a queue, 0 for a queue that was never used."""
        row = self._find(name)
        if row < 0:
            return 0
        if 0 <= queue_id < self.rows[row + COUNTER_CAPACITY]:
            return self.counter_values[self.rows[row + COUNTER_START] + queue_id]
        return self._outside.get(row, {}).get(queue_id, 0)

    def set_next_queue_offset(self, name: bytes, queue_id: int, value: int) -> None:
        """Set a counter of any queue up to 65,535, of a topic that may be unknown to put_topic. value >= 0."""
        assert 0 <= queue_id <= QUEUE_ID_MAX
        assert value >= 0
        row = self._find_or_add(name)
        self.rows[row + BEGUN_COUNT] += (value > 0) - (self.next_queue_offset(name, queue_id) > 0)
        if queue_id < self.rows[row + COUNTER_CAPACITY]:
            self.counter_values[self.rows[row + COUNTER_START] + queue_id] = value
        else:
            self._outside.setdefault(row, {})[queue_id] = value

    @property
    def queue_count(self) -> int:
        """Number of queues of all topics: per topic the maximum of writable queues and queues with a message."""
        if not self.rows:
            return 0
        columns = np.frombuffer(self.rows, np.int64).reshape(-1, ROW_STRIDE)
        return int(np.maximum(columns[:, WRITE_QUEUE_COUNT], columns[:, BEGUN_COUNT]).sum())

    def begun_count(self, places: Iterator[tuple[int, int]]) -> int:
        """Return the number of queues that would get their first message from records.

        `places` has the row and the queue id of each record. The queue id -1 means the topic's next queue in turn.
        """
        begun: set[tuple[int, int]] = set()
        chosen: dict[int, int] = {}
        for row, queue_id in places:
            number = queue_id
            if queue_id < 0:
                turn = chosen.get(row, self.rows[row + ROUND_ROBIN])
                number, chosen[row] = turn % self.rows[row + WRITE_QUEUE_COUNT], turn + 1
            if self.counter_values[self.rows[row + COUNTER_START] + number] == 0:
                begun.add((row, number))
        return len(begun)

    def counters(self) -> list[Counter]:
        """Return every counter above 0, for the snapshot."""
        return list(self.frozen_counters())

    def frozen_counters(self) -> Iterator[Counter]:
        """Return the counters above 0 as of now, for a walk in any thread. The table may change meanwhile."""
        frozen = TopicTable()
        frozen.names, frozen.rows, frozen.counter_values = self.names[:], self.rows[:], self.counter_values[:]
        frozen._outside = {row: dict(counters) for row, counters in self._outside.items()}
        return chain.from_iterable(frozen._counters_of(row) for row in range(0, len(frozen.rows), ROW_STRIDE))

    def _counters_of(self, row: int) -> Iterator[Counter]:
        name, start, capacity = self._name(row), self.rows[row + COUNTER_START], self.rows[row + COUNTER_CAPACITY]
        inside = enumerate(self.counter_values[start : start + capacity])
        outside = self._outside.get(row, {}).items()
        return ((name, queue_id, value) for queue_id, value in chain(inside, outside) if value > 0)

    def _name(self, row: int) -> bytes:
        start = self.rows[row + NAME_START]
        return bytes(self.names[start : start + self.rows[row + NAME_SIZE]])

    def _find(self, name: bytes) -> int:
        """Return the first column of the topic's row, -1 if there is none."""
        mask = len(self.slots) - 1
        slot = crc32(name) & mask
        while self.slots[slot]:
            row = (self.slots[slot] - 1) * ROW_STRIDE
            if self._name(row) == name:
                return row
            slot = (slot + 1) & mask
        return -1

    def _find_or_add(self, name: bytes) -> int:
        row = self._find(name)
        if row >= 0:
            return row
        row = len(self.rows)
        self.rows.extend((len(self.names), len(name), crc32(name), 0, 0, 0, 0, 0, 0, 0))
        self.names += name
        self.topic_count += 1
        if self.topic_count * 2 > len(self.slots):
            self.slots = array("i", bytes(4 * 2 * len(self.slots)))
            for number in range(self.topic_count):
                self._put_slot(number)
        else:
            self._put_slot(self.topic_count - 1)
        return row

    def _put_slot(self, number: int) -> None:
        mask = len(self.slots) - 1
        slot = self.rows[number * ROW_STRIDE + NAME_HASH] & mask
        while self.slots[slot]:
            slot = (slot + 1) & mask
        self.slots[slot] = number + 1

    def _own(self, row: int, queue_ids: Collection[int] | None, sealed: Collection[int]) -> None:
        """Set the queues that are here, all for None."""
        self.rows[row + HAS_SHARE] = queue_ids is not None
        if queue_ids is not None:
            start, capacity = self.rows[row + COUNTER_START], self.rows[row + COUNTER_CAPACITY]
            self.own_queues[start : start + capacity] = array("b", bytes(capacity))
            for queue_id in queue_ids:
                self.own_queues[start + queue_id] = SEALED_QUEUE if queue_id in sealed else OPEN_QUEUE

    def _grow_counters(self, row: int, queue_count: int) -> None:
        """Move a topic's counters to a larger stretch. Doubling bounds the waste of the old stretches."""
        start, capacity = self.rows[row + COUNTER_START], self.rows[row + COUNTER_CAPACITY]
        grown = max(queue_count, min(2 * capacity, QUEUE_ID_MAX))
        values = self.counter_values[start : start + capacity]
        values.extend(array("q", bytes(8 * (grown - capacity))))
        outside = self._outside.pop(row, {})
        if above := {queue_id: value for queue_id, value in outside.items() if queue_id >= grown}:
            self._outside[row] = above
        for queue_id in outside.keys() - above.keys():
            values[queue_id] = outside[queue_id]
        self._wasted_counter_count += capacity
        self.rows[row + COUNTER_START] = len(self.counter_values)
        self.rows[row + COUNTER_CAPACITY] = grown
        self.counter_values.extend(values)
        self.own_queues.extend(array("b", bytes(grown)))

    def _give_back(self) -> None:
        """Free unused rows and counters, if they are more than half of all. So each removal pays for its part."""
        is_waste = 2 * self._wasted_counter_count > max(len(self.counter_values), WASTE_MIN)
        if not is_waste and 2 * self._removed_count <= max(self.topic_count, WASTE_MIN):
            return
        fresh = TopicTable()
        for row in range(0, len(self.rows), ROW_STRIDE):
            if not self.rows[row + WRITE_QUEUE_COUNT] and not self.rows[row + BEGUN_COUNT]:
                continue
            name, start, capacity = self._name(row), self.rows[row + COUNTER_START], self.rows[row + COUNTER_CAPACITY]
            at = fresh._find_or_add(name)
            for column in (WRITE_QUEUE_COUNT, WRITERS, COUNTER_CAPACITY, ROUND_ROBIN, BEGUN_COUNT, HAS_SHARE):
                fresh.rows[at + column] = self.rows[row + column]
            fresh.rows[at + COUNTER_START] = len(fresh.counter_values)
            fresh.counter_values.extend(self.counter_values[start : start + capacity])
            fresh.own_queues.extend(self.own_queues[start : start + capacity])
            if row in self._outside:
                fresh._outside[at] = self._outside[row]
        for name, redirect in _REDIRECT_NAMES.items():
            fresh.redirect_rows[redirect] = fresh._find(name) if self.redirect_rows[redirect] >= 0 else -1
        vars(self).update(vars(fresh))
