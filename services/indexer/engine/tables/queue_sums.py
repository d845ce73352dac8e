# SPDX-License-Identifier: Apache-2.0
"""QueueSums: the sums of the begins and of the ends of all queues. By them a start detects that queues lost units.

Invariants: updated with each change of a queue, without further cost; -1 if unknown.
Callers: the event loop's thread.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from services.indexer.engine.tables.queue import ConsumeQueue
from services.indexer.errors import FilesMissing


class LeftQueues(NamedTuple):
    """The queues that a clean stop left, and the sum of their ends."""

    queues: list[ConsumeQueue]
    end_sum: int


class QueueSums:
    """The sums of a store, without queues at first."""

    def __init__(self) -> None:
        self.queue_count = 0
        self.start = 0
        """Sum of the queue offsets with which the first files begin."""
        self.end = 0
        """Sum of the ends of all queues; -1 if unknown."""
        self.left: LeftQueues | None = None
        """Set by a clean start, until the queues were compared (check_queue_ends) or a part of them was removed."""
        self._are_ends_known = True
        """Whether the ends of the queues were found to match the sum of all ends."""

    def add(self, queue: ConsumeQueue) -> None:
        """Add a queue to the count and to the sum of begins. Its growth, `believe` and `recount` add its end."""
        self.queue_count += 1
        self.start += queue.first_file_queue_offset

    def drop(self, queue: ConsumeQueue) -> None:
        """Remove a queue from the count and from the sums."""
        self.left = None
        self.queue_count -= 1
        self.start -= queue.first_file_queue_offset
        self.end -= queue.max_queue_offset if self.end >= 0 else 0

    def move_start(self, old: int, queue: ConsumeQueue) -> None:
        """Update the sum of begins: the first file of a queue began at `old`, and may begin elsewhere now."""
        self.start += queue.first_file_queue_offset - old

    def move_end(self, old: int, queue: ConsumeQueue) -> None:
        """Update the sum of ends: a queue ended at `old` before it grew."""
        self.end += queue.max_queue_offset - old if self.end >= 0 else 0

    def grow(self, unit_count: int) -> None:
        """Update the sum of ends: queues grew by so many units together."""
        self.end += unit_count if self.end >= 0 else 0

    def forget_end(self) -> None:
        """Mark the sum of ends as unknown, because the former end of a queue is unknown."""
        self.end = -1

    def recount(self, queues: Collection[ConsumeQueue]) -> None:
        """Compute both sums again, because units were removed."""
        self.left = None
        self.start = sum(queue.first_file_queue_offset for queue in queues)
        self.end = sum(queue.max_queue_offset for queue in queues)

    def check_start(self, start_max: int) -> None:
        """Raise FilesMissing if the first files begin later than a stop saved. -1 means that it saved nothing."""
        if -1 < start_max < self.start:
            raise FilesMissing("first files of queues begin", found=self.start, expected=start_max)

    def check_end(self, end: int) -> None:
        """Raise FilesMissing if the sum of ends differs from the saved sum. -1 means that no sum was saved."""
        self._are_ends_known = True
        if end not in (-1, self.end):
            raise FilesMissing("units of queues", found=self.end, expected=end)

    def believe(self, queues: Collection[ConsumeQueue], end: int) -> None:
        """Assume that these queues end as a clean stop saved, until their ends are compared."""
        self.end, self._are_ends_known = end, False
        self.left = LeftQueues(list(queues), end) if end >= 0 else None

    def settle(self, *, are_as_left: bool) -> None:
        """Record that the queues of a clean stop were compared. If all ends are equal, `agrees` adds nothing up."""
        self.left, self._are_ends_known = None, self._are_ends_known or are_as_left

    def agrees(self, queues: Iterable[ConsumeQueue]) -> bool:
        """Return whether the ends of the queues match the sum. They are added up until they have matched."""
        if not self._are_ends_known:
            self._are_ends_known = self.end in (-1, sum(queue.max_queue_offset for queue in queues))
        return self._are_ends_known
