# SPDX-License-Identifier: Apache-2.0
"""The schedule topic of a log in memory, as Delivery's engine sees it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from services.delivery.engine.ports.levels import Delayed
from services.delivery.engine.ports.messages import Copy, Read
from services.delivery.errors import AppendRefused

READ_COUNT = 100


@dataclass(frozen=True)
class Waiting:
    """A message as it is stored in the schedule topic."""

    text: str


class Store(Protocol):
    """The log that the topic is in."""

    async def append(self, topic: str, message: object, *, queue_id: int = 0) -> int: ...
    async def tell(self) -> None: ...
    async def wait(self, wait_s: float) -> None: ...


class MemoryLevels:
    """The messages with a delay level of a store, in memory.

    A batch with a text that begins with `!` is refused while it names a queue, with `!!` always.
    """

    def __init__(self, store: Store) -> None:
        self.queues: dict[int, list[Delayed]] = {}
        self.min_queue_offsets: dict[int, int] = {}
        self.indexed_count: int | None = None
        """This many messages of each queue are indexed. None: all."""
        self.delivered: list[tuple[str, int | None, str]] = []
        """Topic, queue id and text of each delivered message, in the order of the log."""
        self.batch_sizes: list[int] = []
        self._store = store

    async def send(
        self, level: int, text: str, store_time_ms: int, *, topic: str = "t", queue_id: int | None = 0, size: int = 100
    ) -> int:
        """Append a message with a delay level. Returns its queue offset."""
        queue = self.queues.setdefault(level - 1, [])
        queue.append(Delayed(len(queue), size, store_time_ms, topic, queue_id, Waiting(text)))
        await self._store.tell()
        return len(queue) - 1

    def check(self, letters: Sequence[object]) -> None:
        """Raise the error with which the log would refuse the letters."""
        for letter in letters:
            assert isinstance(letter, Copy)
            text = letter.message.text
            if text.startswith("!!") or (text.startswith("!") and letter.queue_id is not None):
                raise AppendRefused(f"QUEUE_OUT_OF_RANGE: {text}")

    def texts(self) -> list[str]:
        """Return the texts of delivered messages, in the order of the log."""
        return [text for _, _, text in self.delivered]

    async def keep(self, letter: Copy) -> None:
        """Append a delivered message to its topic."""
        self.delivered.append((letter.topic, letter.queue_id, letter.message.text))
        await self._store.append(letter.topic, letter.message.text, queue_id=letter.queue_id or 0)

    async def end(self, queue_id: int) -> int:
        """Return the end of a level's queue."""
        return len(self._indexed(queue_id))

    def bounds(self) -> dict[int, tuple[int, int]]:
        """Return the first queue offset and the end of each queue with messages."""
        return {queue_id: (self._least(queue_id), len(queue)) for queue_id, queue in self.queues.items()}

    async def delayed(self, queue_id: int, queue_offset: int, *, wait_s: float) -> Read[Delayed]:
        """See LevelIndex."""
        if queue_offset >= len(self._indexed(queue_id)) and wait_s:
            await self._store.wait(wait_s)
        indexed, least = self._indexed(queue_id), self._least(queue_id)
        if queue_offset > len(indexed):
            return Read([], len(indexed), least, len(indexed))
        queue_offset = max(queue_offset, least)
        found = indexed[queue_offset : queue_offset + READ_COUNT]
        return Read(found, queue_offset + len(found), least, len(indexed))

    def _indexed(self, queue_id: int) -> list[Delayed]:
        return self.queues.get(queue_id, [])[: self.indexed_count]

    def _least(self, queue_id: int) -> int:
        return self.min_queue_offsets.get(queue_id, 0)
