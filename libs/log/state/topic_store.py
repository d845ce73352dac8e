# SPDX-License-Identifier: Apache-2.0
"""TopicStore: the topics of a log in memory and on the disk.

A change is appended to the journal, so it costs the same among any number of topics. topics.json is written whole some
seconds later, after many changes, and at an orderly stop.
Invariants: a change is in the journal or in topics.json, durably, before it is in memory. The journal has no change
behind an append that failed. `save` and changes may run at the same time.
Callers: the event loop's thread. A single change runs at a time.
"""

import asyncio
from collections.abc import Mapping
from pathlib import Path

from libs.formats.config.config_json import DataVersion
from libs.formats.config.topics_json import TopicConfig, TopicsFile
from libs.formats.state.topic_journal import TopicChange
from libs.log.state import topics_file
from libs.machine.fs import Fs
from libs.machine.uninterrupted import uninterrupted

SAVE_INTERVAL_MS = 5_000
"""Longest time for which topics.json lacks a change."""
CHANGE_COUNT_DUE, JOURNAL_SIZE_BYTES_DUE = 1_000, 4 << 20
"""With so many changes, or so large, the journal is due to be taken into topics.json."""
FULL_FACTOR = 4
"""With so many times more the journal is full: the next change waits until topics.json was written."""


class TopicStore:
    """The topics of a log by name. Call `load` first. Nothing else may change `topics` and `version`."""

    def __init__(self, fs: Fs, data_dir: Path) -> None:
        self.topics: dict[str, TopicConfig] = {}
        self.version = DataVersion()
        self.is_due = asyncio.Event()
        """Set when the journal is due: `save` should run."""
        self._fs = fs
        self._data_dir = data_dir
        self._pending: list[bytes] = []
        """The changes that topics.json lacks, encoded, oldest first."""
        self._pending_bytes = 0
        self._is_journal_exact = True
        """Whether the journal has the pending changes and nothing else."""
        self._is_file_known = True
        """Whether topics.json has the topics of a version that the journal continues."""
        self._saving = asyncio.Lock()
        self._journal = asyncio.Lock()
        """Held while the journal is written."""

    def load(self) -> None:
        """Read the topics. Writes nothing. Blocks. Raises ConfigFileDamaged and NewerVersion."""
        stored = topics_file.read(self._fs, self._data_dir)
        self.topics, self.version = dict(stored.file.topics), stored.file.data_version
        self._pending = [change.encode() for change in stored.changes]
        self._pending_bytes = sum(map(len, self._pending))
        self._is_journal_exact = stored.is_exact

    def create(self, topics: Mapping[str, TopicConfig], version: DataVersion) -> None:
        """Add topics and write topics.json, for a start. Blocks. Raises OSError."""
        self.topics, self.version = self.topics | dict(topics), version
        topics_file.save(self._fs, self._data_dir, self.file())
        topics_file.replace_journal(self._fs, self._data_dir, b"")
        self._pending, self._pending_bytes, self._is_journal_exact = [], 0, True

    def file(self) -> TopicsFile:
        """Return a copy of all topics."""
        return TopicsFile(dict(self.topics), self.version)

    async def change(self, change: TopicChange) -> None:
        """Make a change of the current version, durably. Raises OSError, nothing changed.

        After an error a start may find the change made.
        """
        assert change.before == self.version
        if self._is_beyond(FULL_FACTOR) or not self._is_file_known:
            await self.save()
        async with self._journal:
            await self._append(change.encode())
            self.version = change.after
            self.topics.update(change.put)
            for name in change.removed:
                self.topics.pop(name, None)
        if self._is_beyond(1):
            self.is_due.set()

    async def save(self) -> None:
        """Write topics.json, unless it has all changes, and take its changes out of the journal. Raises OSError.

        It runs to its end even if the caller is cancelled meanwhile.
        """
        await uninterrupted(self._save())

    async def _save(self) -> None:
        async with self._saving:
            if not self._pending and self._is_journal_exact and self._is_file_known:
                return
            file, count = self.file(), len(self._pending)
            await asyncio.to_thread(topics_file.save, self._fs, self._data_dir, file)
            self._is_file_known = True
            async with self._journal:
                later = self._pending[count:]
                await asyncio.to_thread(topics_file.replace_journal, self._fs, self._data_dir, b"".join(later))
                self._pending, self._is_journal_exact = later, True
                self._pending_bytes = sum(map(len, later))

    async def replace(self, file: TopicsFile) -> None:
        """Replace all topics, durably. No change may run. Raises OSError."""
        await self.save()  # an older journal beside the new topics would look like changes before another program's
        async with self._saving:
            self._is_file_known = False
            await asyncio.to_thread(topics_file.save, self._fs, self._data_dir, file)
            self._is_file_known = True
            self.topics, self.version = dict(file.topics), file.data_version

    async def finish(self) -> None:
        """Wait for a `save` whose caller may be gone."""
        async with self._saving:
            pass

    async def _append(self, change: bytes) -> None:
        """Append a change. Behind a failed append the journal is replaced: nothing may follow a part of a change."""
        if self._is_journal_exact:
            self._is_journal_exact = False
            await asyncio.to_thread(topics_file.append_change, self._fs, self._data_dir, change)
        else:
            whole = b"".join([*self._pending, change])
            await asyncio.to_thread(topics_file.replace_journal, self._fs, self._data_dir, whole)
        self._pending.append(change)
        self._pending_bytes += len(change)
        self._is_journal_exact = True

    def _is_beyond(self, factor: int) -> bool:
        is_long = len(self._pending) >= factor * CHANGE_COUNT_DUE
        return is_long or self._pending_bytes >= factor * JOURNAL_SIZE_BYTES_DUE
