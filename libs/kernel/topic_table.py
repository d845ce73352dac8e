# SPDX-License-Identifier: Apache-2.0
"""Topics and queue counters in flat arrays that the append kernel reads and advances without the GIL.

A topic keeps its row for ever: removing it only forbids appends, so that its queues go on counting when it is made
again. Rows hold the counters of the queues below `write_queue_count`; a counter above them waits in a dictionary.
Callers: one thread at a time, the one that appends. An array must not grow while `append` runs.
Not handled: permissions for readers, names (the service checks them), persistence (see `counters`).
"""

from array import array
from zlib import crc32

from libs.formats.delay_level import SCHEDULE_TOPIC

# Columns of a row of `rows`; append_cy.py repeats them and a test compares.
ROW_STRIDE = 8
NAME_START, NAME_SIZE, NAME_HASH, WRITE_QUEUE_COUNT = 0, 1, 2, 3
IS_WRITABLE, COUNTER_START, COUNTER_CAPACITY, ROUND_ROBIN = 4, 5, 6, 7
QUEUE_ID_MAX = 65535
_SCHEDULE_NAME = SCHEDULE_TOPIC.encode()


class TopicTable:
    """Topics by name, each with a queue count, a permission to write and the next offset of every queue."""

    __slots__ = ("_outside", "counter_values", "names", "rows", "schedule_row", "slots", "topic_count")

    def __init__(self) -> None:
        self.topic_count = 0
        self.schedule_row = -1
        """First column of the row of the topic where delayed messages wait; -1 as long as nobody has put it."""
        self.names = bytearray()
        self.rows = array("q")
        self.slots = array("i", bytes(4 * 64))  # open addressing, row number + 1; a power of two, at most half full
        self.counter_values = array("q")
        self._outside: dict[tuple[int, int], int] = {}

    def put_topic(self, name: bytes, *, write_queue_count: int, is_writable: bool) -> None:
        """Make or change a topic; counters are kept. 1 <= write_queue_count <= 65,535."""
        assert name
        assert 1 <= write_queue_count <= QUEUE_ID_MAX
        row = self._find_or_add(name)
        if write_queue_count > self.rows[row + COUNTER_CAPACITY]:
            self._grow_counters(row, write_queue_count)
        self.rows[row + WRITE_QUEUE_COUNT] = write_queue_count
        self.rows[row + IS_WRITABLE] = int(is_writable)
        if name == _SCHEDULE_NAME:
            self.schedule_row = row

    def remove_topic(self, name: bytes) -> None:
        """Forget a topic for appends; its counters stay. Nothing happens if there is none."""
        row = self._find(name)
        if row >= 0:
            self.rows[row + WRITE_QUEUE_COUNT] = 0

    def next_queue_offset(self, name: bytes, queue_id: int) -> int:
        """Queue offset of the next message of a queue; 0 for a queue that was never used."""
        row = self._find(name)
        if row < 0:
            return 0
        if 0 <= queue_id < self.rows[row + COUNTER_CAPACITY]:
            return self.counter_values[self.rows[row + COUNTER_START] + queue_id]
        return self._outside.get((row, queue_id), 0)

    def set_next_queue_offset(self, name: bytes, queue_id: int, value: int) -> None:
        """Set a counter of any queue up to 65,535, of a topic that may be unknown to put_topic. value >= 0."""
        assert 0 <= queue_id <= QUEUE_ID_MAX
        assert value >= 0
        row = self._find_or_add(name)
        if queue_id < self.rows[row + COUNTER_CAPACITY]:
            self.counter_values[self.rows[row + COUNTER_START] + queue_id] = value
        else:
            self._outside[row, queue_id] = value

    def counters(self) -> list[tuple[bytes, int, int]]:
        """(topic, queue_id, next_queue_offset) of every counter above 0, for the snapshot."""
        found = [(self._name(row), queue_id, value) for (row, queue_id), value in self._outside.items() if value > 0]
        for row in range(0, len(self.rows), ROW_STRIDE):
            start, capacity = self.rows[row + COUNTER_START], self.rows[row + COUNTER_CAPACITY]
            values = enumerate(self.counter_values[start : start + capacity])
            found.extend((self._name(row), queue_id, value) for queue_id, value in values if value > 0)
        return found

    def _name(self, row: int) -> bytes:
        start = self.rows[row + NAME_START]
        return bytes(self.names[start : start + self.rows[row + NAME_SIZE]])

    def _find(self, name: bytes) -> int:
        """First column of the topic's row, -1 if there is none."""
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
        self.rows.extend((len(self.names), len(name), crc32(name), 0, 0, 0, 0, 0))
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

    def _grow_counters(self, row: int, queue_count: int) -> None:
        """Move a topic's counters to a larger stretch; doubling bounds what the old stretches waste."""
        start, capacity = self.rows[row + COUNTER_START], self.rows[row + COUNTER_CAPACITY]
        grown = max(queue_count, min(2 * capacity, QUEUE_ID_MAX))
        values = self.counter_values[start : start + capacity]
        values.extend([0] * (grown - capacity))
        for outside_row, queue_id in [key for key in self._outside if key[0] == row and key[1] < grown]:
            values[queue_id] = self._outside.pop((outside_row, queue_id))
        self.rows[row + COUNTER_START] = len(self.counter_values)
        self.rows[row + COUNTER_CAPACITY] = grown
        self.counter_values.extend(values)
