# SPDX-License-Identifier: Apache-2.0
"""Number of messages of each topic, and its first and last time, from the ends of its queues in the Indexer."""

from __future__ import annotations

import contextlib
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from msgspec import Struct

from cli.output.moments import time_text

if TYPE_CHECKING:
    from collections.abc import Iterable
    from datetime import datetime

    from reput_client import Client, Queue

TIMED_QUEUES_MAX = 400
"""Most queues whose times are read by default: a call for each queue, some tenths of a second in all."""
CALLS_AT_ONCE = 8


class Extent(Struct):
    """The extent of a topic. Times are None if they were not read, or if it has no messages."""

    message_count: int = 0
    first_store_time: datetime | None = None
    last_store_time: datetime | None = None

    def add_times(self, queue: Queue) -> None:
        """Add the times of a queue of the topic."""
        firsts = (self.first_store_time, queue.first_store_time)
        lasts = (self.last_store_time, queue.last_store_time)
        self.first_store_time = min((time for time in firsts if time is not None), default=None)
        self.last_store_time = max((time for time in lasts if time is not None), default=None)

    def fields(self) -> dict[str, object]:
        """Return the extent for a row, with times as text."""
        times = {"first_store_time": self.first_store_time, "last_store_time": self.last_store_time}
        texts = {name: time and time_text(round(time.timestamp() * 1000)) for name, time in times.items()}
        return {"message_count": self.message_count, **texts}


def extents_of(client: Client, *, times: bool | None) -> dict[str, Extent]:
    """Return the extent of each topic that has a queue. If `times` is None, times are read if that is quick.

    Raises ReputError.
    """
    found: dict[str, Extent] = {}
    filled: list[Queue] = []
    for queue in client.queues.list():
        count = queue.max_queue_offset - queue.min_queue_offset
        found.setdefault(queue.topic, Extent()).message_count += count
        filled += [queue] if count else []
    if times or (times is None and len(filled) <= TIMED_QUEUES_MAX):
        for queue in _with_times(client, filled):
            found[queue.topic].add_times(queue)
    return found


def _with_times(client: Client, queues: Iterable[Queue]) -> Iterable[Queue]:
    """Ask for the times of queues. A queue that was removed meanwhile, or can't be asked, has none."""
    from reput_client import ReputError

    def ask(queue: Queue) -> Queue:
        with contextlib.suppress(ReputError):
            return client.queues.range(queue.topic, queue.queue_id)
        return queue

    with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:
        yield from pool.map(ask, queues)
