# SPDX-License-Identifier: Apache-2.0
# cython: boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""Enters the records of a batch into many consume queues in a single walk over its columns.

A Tail is the end of a queue, with room in the queue's last file. A queue is plain in a batch if its records continue
it: each has the next queue offset, a higher physical offset than the record before, and room. All other queues are left
to the caller. Columns are int64 and int32 buffers in the machine's byte order. Callers: a single thread.
Not handled: files, other readers' view of the end, syncing.
Layout: docs/formats/consume_queue.md.
"""

import cython
from cython.cimports.libs.kernel._bytes import put_int32, put_int64, target_of
from cython.cimports.libs.kernel.layout import *


class Tail:
    """The end of a queue and the room behind it. `end` and `last_physical_offset` move with each entered record.

    `buffer` has the units from queue offset `first` on, and room for the units below `room_end`. A closed tail has no
    room. Raises ValueError for numbers that do not fit each other.
    """

    def __init__(self, end, last_physical_offset, first, room_end, buffer):
        self.end = end
        self.last_physical_offset = last_physical_offset
        self.first = first
        self.room_end = room_end
        self.next = end
        self.next_physical_offset = 0
        self.view = buffer
        if not 0 <= first <= end <= room_end:
            raise ValueError(f"a queue that ends at {end} has no room from {first} to {room_end}")
        if (room_end - first) > len(self.view) // UNIT_SIZE:
            raise ValueError(f"{len(self.view)} bytes have no room for the units from {first} to {room_end}")
        self.target = target_of(self.view)

    def close(self):
        """Give the room back. No record is entered any more."""
        self.room_end = 0
        self.view = None


def leave_others(tails, queue_indexes, queue_offsets, physical_offsets):
    """Replace each tail whose queue is not plain by None. `tails` has a Tail or None for each queue of the batch.

    A queue index that is negative names no queue. Raises ValueError for columns of different lengths, and for a queue
    index without a tail.
    """
    index_view: cython.const[cython.int][::1] = memoryview(queue_indexes)
    queue_view: cython.const[cython.longlong][::1] = memoryview(queue_offsets)
    offset_view: cython.const[cython.longlong][::1] = memoryview(physical_offsets)
    row: cython.Py_ssize_t
    index: cython.Py_ssize_t
    tail: Tail
    entries: list = tails
    if not len(index_view) == len(queue_view) == len(offset_view):
        raise ValueError("columns have different lengths")
    for found in entries:
        if found is not None:
            tail = found
            tail.next = tail.end
            tail.next_physical_offset = tail.last_physical_offset + 1
    for row in range(len(index_view)):
        index = index_view[row]
        if index >= len(entries):
            raise ValueError(f"queue index {index} of {len(entries)} queues")
        if index < 0 or entries[index] is None:
            continue
        tail = entries[index]
        if queue_view[row] == tail.next and tail.next < tail.room_end and offset_view[row] >= tail.next_physical_offset:
            tail.next += 1
            tail.next_physical_offset = offset_view[row] + 1
        else:
            entries[index] = None


def enter(tails, queue_indexes, physical_offsets, record_sizes, tags_codes):
    """Enter the records of the queues that `leave_others` left in `tails`. Returns the number of records.

    Raises ValueError for columns of different lengths, and for a record without room, which `leave_others` excludes.
    """
    index_view: cython.const[cython.int][::1] = memoryview(queue_indexes)
    offset_view: cython.const[cython.longlong][::1] = memoryview(physical_offsets)
    size_view: cython.const[cython.int][::1] = memoryview(record_sizes)
    code_view: cython.const[cython.longlong][::1] = memoryview(tags_codes)
    row: cython.Py_ssize_t
    index: cython.Py_ssize_t
    at: cython.Py_ssize_t
    count: cython.Py_ssize_t = 0
    tail: Tail
    entries: list = tails
    if not len(index_view) == len(offset_view) == len(size_view) == len(code_view):
        raise ValueError("columns have different lengths")
    for row in range(len(index_view)):
        index = index_view[row]
        if index >= len(entries):
            raise ValueError(f"queue index {index} of {len(entries)} queues")
        if index < 0 or entries[index] is None:
            continue
        tail = entries[index]
        if tail.end >= tail.room_end:
            raise ValueError(f"the queue has no room at {tail.end}")
        at = UNIT_SIZE * (tail.end - tail.first)
        put_int64(tail.target, at, offset_view[row])
        put_int32(tail.target, at + 8, size_view[row])
        put_int64(tail.target, at + 12, code_view[row])
        tail.end += 1
        tail.last_physical_offset = offset_view[row]
        count += 1
    return count
