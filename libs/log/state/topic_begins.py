# SPDX-License-Identifier: Apache-2.0
"""TopicBegins: the physical offsets where the messages of deleted and purged topics begin, in `reput/topic_begins`.

Readers get no record of a topic below its begin, also if a deleted topic is created again. The Indexer gets the begins
with the handshake of its stream, and each change before the records after it. The records remain in the log until they
expire.
Invariants:
- The file names a topic whose deletion is under way before `topics.json` loses it, so a crash in between does not
  restore its messages.
- A begin is in the file before the topic can be created again.
- No begin is above the end of the log, because it would hide the next messages. So a start lowers the begins of a lost
  tail.
- A begin below the log's first byte is dropped.
Callers: TopicRegistry, within a change; a start. Memory: a name and a number for each topic that was deleted or purged
and had messages, at most `queue_count_max`, because queues of deleted topics count.
RocketMQ has no such file: it removes the queues of a deleted topic, and a topic that is created again begins at 0.
"""

import asyncio
from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Protocol

from libs.formats.state.log_history import TopicBeginsFile
from libs.log.state import small_files
from libs.machine.fs import Fs


class Bounds(Protocol):
    """The bounds of the log's bytes."""

    @property
    def min_physical_offset(self) -> int:
        """The first byte that is kept."""
        ...

    @property
    def max_physical_offset(self) -> int:
        """The end of the log."""
        ...


class TopicBegins:
    """The topic begins of a log. Call `load` first, and `settle` after the log's recovery."""

    def __init__(self, fs: Fs, data_dir: Path) -> None:
        self.by_topic: Mapping[str, int] = {}
        """By topic: its begin. Each change creates a new object."""
        self._fs = fs
        self._data_dir = data_dir
        self._deleting = ""
        self._bounds: Bounds | None = None
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change: streams to readers tell them at once."""

    def load(self) -> None:
        """Read the file. Blocks."""
        file = small_files.load_topic_begins(self._fs, self._data_dir)
        self.by_topic, self._deleting = file.begins, file.deleting

    def settle(self, bounds: Bounds, topics: Container[str]) -> None:
        """Complete a deletion that a crash interrupted, and lower begins above the log's end. Blocks."""
        self._bounds = bounds
        begins = dict(self.by_topic)
        if self._deleting and self._deleting not in topics:
            begins[self._deleting] = bounds.max_physical_offset
        begins = self._fitting(begins)
        if begins != self.by_topic or self._deleting:
            self._write(TopicBeginsFile(begins=begins))
            self.by_topic, self._deleting = begins, ""

    async def announce(self, name: str) -> None:
        """Record that this topic will be deleted, durably."""
        await asyncio.to_thread(self._write, TopicBeginsFile(begins=dict(self.by_topic), deleting=name))

    async def note(self, name: str, *, had_messages: bool) -> None:
        """Record that no record of the topic up to here has readers any more, durably."""
        end = 0 if self._bounds is None else self._bounds.max_physical_offset
        await self.replace({**self.by_topic, name: end} if had_messages else self.by_topic)

    async def replace(self, begins: Mapping[str, int]) -> None:
        """Replace the begins, durably. Begins that hide no record any more are dropped."""
        first = 0 if self._bounds is None else self._bounds.min_physical_offset
        kept = {name: begin for name, begin in begins.items() if begin > first}
        await asyncio.to_thread(self._write, TopicBeginsFile(begins=kept))
        self.by_topic = kept
        self.on_change()

    def _fitting(self, begins: Mapping[str, int]) -> dict[str, int]:
        assert self._bounds is not None
        first, end = self._bounds.min_physical_offset, self._bounds.max_physical_offset
        lowered = {name: min(begin, end) for name, begin in begins.items()}
        return {name: begin for name, begin in lowered.items() if begin > first}

    def _write(self, file: TopicBeginsFile) -> None:
        small_files.save_topic_begins(self._fs, self._data_dir, file)
