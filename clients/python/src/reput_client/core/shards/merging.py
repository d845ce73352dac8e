# SPDX-License-Identifier: Apache-2.0
"""Merge: messages of several sources in the order of their store times. No I/O."""

import heapq
from typing import Generic, TypeVar

from reput_client.core.types import Message

S = TypeVar("S")


class Merge(Generic[S]):
    """The next message of each source. Each source has its messages in the order of the result.

    The order is that of the store times, which are the times of the shards' clocks. Messages of the same time keep the
    order of their sources.
    """

    def __init__(self, *, newest_first: bool) -> None:
        self._sign = -1 if newest_first else 1
        self._heap: list[tuple[int, int, Message]] = []
        self._sources: list[tuple[str, S]] = []

    def add(self, shard: str, source: S, first: Message) -> None:
        """Add a source of a shard, with its first message."""
        self._sources.append((shard, source))
        self.put(len(self._sources) - 1, first)

    def pop(self) -> tuple[int, Message] | None:
        """Pop the next message, and the number of its source, whose next message has to be given to `put`."""
        if not self._heap:
            return None
        _, number, message = heapq.heappop(self._heap)
        return number, message

    def source(self, number: int) -> tuple[str, S]:
        """Return a source and its shard."""
        return self._sources[number]

    def put(self, number: int, message: Message | None) -> None:
        """Put the next message of a source, None if it has no more."""
        if message is not None:
            heapq.heappush(self._heap, (self._sign * message.store_time_ms, number, message))

    def drop(self, shard: str) -> None:
        """Drop the messages of a shard."""
        self._heap = [entry for entry in self._heap if self._sources[entry[1]][0] != shard]
        heapq.heapify(self._heap)
