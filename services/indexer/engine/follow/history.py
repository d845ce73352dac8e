# SPDX-License-Identifier: Apache-2.0
"""LogHistory: the Indexer's knowledge of the log besides its indexes, in `reput/log_history`.

It holds:
- the name of the history that the log's epochs belong to, and these epochs;
- whether the Indexer has seen all records that the log ever had;
- the ends of queues whose files were dropped. An end can't be built again if all records of its queue are gone. The log
  requests the ends when it has lost its own queue offsets, so that it assigns no queue offset twice;
- where the messages of deleted topics begin, so that a start does not show older messages before the log is heard.
Invariants: the file is written before files are dropped or records of another history are entered; a kept end is used
only for records that the log no longer has, because all other records are indexed again.
Callers: the event loop's thread; `keep`: the code that drops files. Layout: docs/formats/reput_files.md. RocketMQ has
no such file: it keeps the queue files.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from libs.formats.epoch import Epoch
from libs.formats.errors import FormatError
from libs.formats.state.log_history import LogHistoryFile, QueueEnd
from libs.machine.fs import Fs

_log = logging.getLogger(__name__)


class LogHistory:
    """The content of the file. Create it, then `load` it once."""

    def __init__(self, fs: Fs, path: Path) -> None:
        self._fs = fs
        self._path = path
        self._content = LogHistoryFile()

    def load(self) -> None:
        """Read the file. If it is damaged, the history is incomplete: it is unknown whether all was seen. Blocks."""
        try:
            self._content = LogHistoryFile.decode(self._fs.read(self._path))
        except FileNotFoundError:
            pass
        except FormatError as error:
            _log.error(
                "%s is damaged: what the log had before its first byte is not known any more: %s", self._path, error
            )
            self._content = LogHistoryFile(is_complete=False)

    @property
    def history_id(self) -> str:
        """Name of the log's history. Empty if it is unknown."""
        return self._content.history_id

    @property
    def epochs(self) -> Sequence[Epoch]:
        """The epochs of the log as of the last handshake that changed the history. Empty if they are not known."""
        return self._content.epochs

    @property
    def topic_begins(self) -> Mapping[str, int]:
        """The begins of the messages of deleted topics, as the log last reported them."""
        return self._content.topic_begins

    @property
    def is_complete(self) -> bool:
        """Whether queues and kept ends together cover all records that the log ever had."""
        return self._content.is_complete

    def kept_below(self, min_physical_offset: int) -> list[QueueEnd]:
        """Return the ends of dropped queues whose records were all deleted from the log, too."""
        return [kept for kept in self._content.ends if kept.last_physical_offset < min_physical_offset]

    def keep(self, ends: Iterable[QueueEnd], *, are_all: bool) -> None:
        """Store the ends of queues durably before their files are dropped. The end with the later record wins. Blocks.

        `are_all` says that these are all queues, so that all records up to the last of theirs are covered.
        """
        kept = {end.name: end for end in self._content.ends}
        known = self._content.known_physical_offset
        for end in ends:
            known = max(known, end.last_physical_offset + 1) if are_all else known
            if kept.get(end.name, end).last_physical_offset <= end.last_physical_offset:
                kept[end.name] = end
        self._save(known_physical_offset=known, ends=list(kept.values()))

    async def skip(self, start_physical_offset: int, end_physical_offset: int) -> None:
        """Record that the bytes between these offsets are gone and were not entered. Durable on return."""
        if end_physical_offset > max(start_physical_offset, self._content.known_physical_offset):
            await asyncio.to_thread(self._save, is_complete=False)

    async def truncate(
        self, end_physical_offset: int, *, has_queue: Callable[[str, int], bool] = lambda _topic, _queue_id: True
    ) -> None:
        """Drop all knowledge of records at or past this offset. Durable on return. At 0 the log begins anew.

        A queue without files may have had earlier records, and its end is unknown then; without `has_queue` all queues
        are assumed to exist.
        """
        content = self._content
        ends = [kept for kept in content.ends if kept.last_physical_offset < end_physical_offset]
        gone = [kept for kept in content.ends if kept.last_physical_offset >= end_physical_offset]
        is_known = all(kept.end_queue_offset == 1 or has_queue(*kept.name) for kept in gone)
        await asyncio.to_thread(
            self._save,
            is_complete=(content.is_complete and is_known) or end_physical_offset == 0,
            known_physical_offset=min(content.known_physical_offset, end_physical_offset),
            ends=ends,
        )

    async def adopt(self, history_id: str, epochs: Sequence[Epoch] = ()) -> None:
        """Adopt the name of the log's history, if it has a name, and its epochs. Durable on return."""
        name = history_id or self._content.history_id
        await asyncio.to_thread(self._save, history_id=name, epochs=list(epochs))

    async def learn_topic_begins(self, begins: Mapping[str, int]) -> None:
        """Store where the messages of deleted topics begin, in place of the begins before. Durable on return."""
        await asyncio.to_thread(self._save, topic_begins=dict(begins))

    def _save(self, **changes: object) -> None:
        content = msgspec.structs.replace(self._content, **changes)
        if content != self._content:
            self._fs.write_atomic(self._path, content.encode())
            self._content = content
