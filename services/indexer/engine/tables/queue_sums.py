# SPDX-License-Identifier: Apache-2.0
"""QueueSums: what the begins and the ends of all queues add up to, so that a start can tell whether any has lost units.

Invariants: moves with each change of a queue, and costs nothing more; -1 if nobody knows.
Callers: the event loop's thread.
"""

from collections.abc import Collection, Iterable
from typing import NamedTuple

from services.indexer.engine.tables.queue import ConsumeQueue
from services.indexer.errors import FilesMissing


class LeftQueues(NamedTuple):
    """The queues that a clean stop left, and what their ends add up to."""

    queues: list[ConsumeQueue]
    end_sum: int


class QueueSums:
    """The sums of one store, without queues at first."""

    def __init__(self) -> None:
        self.queue_count = 0
        self.start = 0
        """Sum of the queue offsets with which the first files begin."""
        self.end = 0
        """Sum of the ends of all queues; -1 if unknown."""
        self.left: LeftQueues | None = None
        """Set by a clean start, until they were compared or anything of them was removed (check_queue_ends)."""
        self._are_ends_known = True
        """Whether the queues were found to end where the sum of all ends says."""

    def add(self, queue: ConsumeQueue) -> None:
        """Count one queue more. Its end is counted as it grows, or by `believe` and `recount`."""
        self.queue_count += 1
        self.start += queue.first_file_queue_offset

    def drop(self, queue: ConsumeQueue) -> None:
        """Count one queue less."""
        self.left = None
        self.queue_count -= 1
        self.start -= queue.first_file_queue_offset
        self.end -= queue.max_queue_offset if self.end >= 0 else 0

    def move_start(self, old: int, queue: ConsumeQueue) -> None:
        """Note that the first file of a queue began at `old`, and may begin elsewhere now."""
        self.start += queue.first_file_queue_offset - old

    def move_end(self, old: int, queue: ConsumeQueue) -> None:
        """Note that a queue ended at `old` before it grew."""
        self.end += queue.max_queue_offset - old if self.end >= 0 else 0

    def forget_end(self) -> None:
        """Note that nobody knows where a queue ended."""
        self.end = -1

    def recount(self, queues: Collection[ConsumeQueue]) -> None:
        """Count all again, because units were removed."""
        self.left = None
        self.start = sum(queue.first_file_queue_offset for queue in queues)
        self.end = sum(queue.max_queue_offset for queue in queues)

    def check_start(self, start_max: int) -> None:
        """Raise FilesMissing if the first files begin later than a stop said. It said nothing if that is -1."""
        if -1 < start_max < self.start:
            raise FilesMissing("first files of queues begin", found=self.start, expected=start_max)

    def check_end(self, end: int) -> None:
        """Raise FilesMissing if the counted queues end elsewhere than was said. Nothing was said if that is -1."""
        self._are_ends_known = True
        if end not in (-1, self.end):
            raise FilesMissing("units of queues", found=self.end, expected=end)

    def believe(self, queues: Collection[ConsumeQueue], end: int) -> None:
        """Believe that these queues end as a clean stop said, until somebody has compared them."""
        self.end, self._are_ends_known = end, False
        self.left = LeftQueues(list(queues), end) if end >= 0 else None

    def settle(self, *, are_as_left: bool) -> None:
        """Note that what a clean stop left was compared. If all end as they did nobody needs to add it up again."""
        self.left, self._are_ends_known = None, self._are_ends_known or are_as_left

    def agrees(self, queues: Iterable[ConsumeQueue]) -> bool:
        """Return whether the queues end where the sum says. They are looked at until they do once."""
        if not self._are_ends_known:
            self._are_ends_known = self.end in (-1, sum(queue.max_queue_offset for queue in queues))
        return self._are_ends_known
