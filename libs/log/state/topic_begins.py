# SPDX-License-Identifier: Apache-2.0
"""TopicBegins: where in the log the messages of topics begin that were deleted, in `reput/topic_begins`.

Readers get no record of a topic below its begin, whether the topic is made again or not: the Indexer hears of the
begins with the handshake of its stream, and of each change before the records that follow it. The records stay in the
log until they expire.
Invariants: the file names a topic whose deletion is under way before `topics.json` loses it, so a crash in between
does not bring back its messages; a begin is in the file before the topic can be made again; no begin is above the end
of the log, or messages that come next would be hidden, so a start lowers those of a tail that is lost; those that the
log's first byte has passed are forgotten.
Callers: TopicRegistry, within a change; a start. Memory: a name and a number for each topic that was deleted and had
messages, at most `queue_count_max`, because queues of deleted topics count.
RocketMQ has no such file: it removes the queues of a deleted topic, and a topic that is made again begins at 0.
"""

import asyncio
from collections.abc import Container, Mapping
from pathlib import Path
from typing import Protocol

from libs.formats.state.log_history import TopicBeginsFile
from libs.log.state import small_files
from libs.machine.fs import Fs


class Bounds(Protocol):
    """The log's bytes."""

    @property
    def min_physical_offset(self) -> int:
        """First byte that is kept."""
        ...

    @property
    def max_physical_offset(self) -> int:
        """End of the log."""
        ...


class TopicBegins:
    """Those of one log. `load` comes first, and `settle` once the log is recovered."""

    def __init__(self, fs: Fs, data_dir: Path) -> None:
        self.by_topic: Mapping[str, int] = {}
        """Each change makes another object."""
        self._fs = fs
        self._data_dir = data_dir
        self._deleting = ""
        self._bounds: Bounds | None = None

    def load(self) -> None:
        """Read the file. Blocks."""
        file = small_files.load_topic_begins(self._fs, self._data_dir)
        self.by_topic, self._deleting = file.begins, file.deleting

    def settle(self, bounds: Bounds, topics: Container[str]) -> None:
        """End a deletion that a crash interrupted, and lower begins above the log's end. Blocks."""
        self._bounds = bounds
        begins = dict(self.by_topic)
        if self._deleting and self._deleting not in topics:
            begins[self._deleting] = bounds.max_physical_offset
        begins = self._fitting(begins)
        if begins != self.by_topic or self._deleting:
            self._write(TopicBeginsFile(begins=begins))
            self.by_topic, self._deleting = begins, ""

    async def announce(self, name: str) -> None:
        """Note that this topic is to be forgotten, durably."""
        await asyncio.to_thread(self._write, TopicBeginsFile(begins=dict(self.by_topic), deleting=name))

    async def note(self, name: str, *, had_messages: bool) -> None:
        """Note that the topic is forgotten and takes no records any more, durably."""
        end = 0 if self._bounds is None else self._bounds.max_physical_offset
        await self.replace({**self.by_topic, name: end} if had_messages else self.by_topic)

    async def replace(self, begins: Mapping[str, int]) -> None:
        """Have these in the place of the others, durably, but for those that say nothing any more."""
        first = 0 if self._bounds is None else self._bounds.min_physical_offset
        kept = {name: begin for name, begin in begins.items() if begin > first}
        await asyncio.to_thread(self._write, TopicBeginsFile(begins=kept))
        self.by_topic = kept

    def _fitting(self, begins: Mapping[str, int]) -> dict[str, int]:
        assert self._bounds is not None
        first, end = self._bounds.min_physical_offset, self._bounds.max_physical_offset
        lowered = {name: min(begin, end) for name, begin in begins.items()}
        return {name: begin for name, begin in lowered.items() if begin > first}

    def _write(self, file: TopicBeginsFile) -> None:
        small_files.save_topic_begins(self._fs, self._data_dir, file)
