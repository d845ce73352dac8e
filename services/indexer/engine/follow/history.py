# SPDX-License-Identifier: Apache-2.0
"""LogHistory: what the Indexer knows of the log besides its indexes, in `reput/log_history`.

The name of the history that its epochs belong to; whether it has seen all that the log ever had; and the ends of queues
whose files were dropped, because those of queues whose records are all gone can't be built again. The log asks for them
when it has lost its own count, so that it gives no queue offset twice. And where the messages of deleted topics begin,
so that a start does not show them before it has heard the log.
Invariants: the file says so before files are dropped or records of another history are entered; a kept end counts only
for records that the log no longer has, all others come back by themselves.
Callers: the event loop's thread, and `keep` whoever drops files. Layout: docs/formats/reput_files.md. RocketMQ has no
such file: it keeps the queue files.
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
    """The file's content. Make it, then `load` it once."""

    def __init__(self, fs: Fs, path: Path) -> None:
        self._fs = fs
        self._path = path
        self._content = LogHistoryFile()

    def load(self) -> None:
        """Read the file. Without one that can be believed nobody can say that all was seen. Blocks."""
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
        """The epochs of the log as of the last handshake that changed what is held. Empty if they are not known."""
        return self._content.epochs

    @property
    def topic_begins(self) -> Mapping[str, int]:
        """Where the messages of topics begin that were deleted, as the log told last."""
        return self._content.topic_begins

    @property
    def is_complete(self) -> bool:
        """Whether queues and kept ends together tell of all records that the log ever had."""
        return self._content.is_complete

    def kept_below(self, min_physical_offset: int) -> list[QueueEnd]:
        """Return the ends of dropped queues all of whose records the log has dropped, too."""
        return [kept for kept in self._content.ends if kept.last_physical_offset < min_physical_offset]

    def keep(self, ends: Iterable[QueueEnd], *, are_all: bool) -> None:
        """Remember the ends of queues before their files go, durably. The end of the later record counts. Blocks.

        `are_all` says that these are all queues, so that nothing else is known below the last of their records.
        """
        kept = {end.name: end for end in self._content.ends}
        known = self._content.known_physical_offset
        for end in ends:
            known = max(known, end.last_physical_offset + 1) if are_all else known
            if kept.get(end.name, end).last_physical_offset <= end.last_physical_offset:
                kept[end.name] = end
        self._save(known_physical_offset=known, ends=list(kept.values()))

    async def skip(self, start_physical_offset: int, end_physical_offset: int) -> None:
        """Note that what lies between the two is gone and was not entered. Durable on return."""
        if end_physical_offset > max(start_physical_offset, self._content.known_physical_offset):
            await asyncio.to_thread(self._save, is_complete=False)

    async def truncate(
        self, end_physical_offset: int, *, has_queue: Callable[[str, int], bool] = lambda _topic, _queue_id: True
    ) -> None:
        """Forget what was learned of records at or past this offset. Durable on return. At 0 the log begins anew.

        A queue that is not there any more may have had earlier records, of which nobody knows then; without
        `has_queue` all queues come again.
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
        """Go by this name of the log's history, if it has one, and by its epochs from now on. Durable on return."""
        name = history_id or self._content.history_id
        await asyncio.to_thread(self._save, history_id=name, epochs=list(epochs))

    async def learn_topic_begins(self, begins: Mapping[str, int]) -> None:
        """Remember where the messages of deleted topics begin, and nothing else of that. Durable on return."""
        await asyncio.to_thread(self._save, topic_begins=dict(begins))

    def _save(self, **changes: object) -> None:
        content = msgspec.structs.replace(self._content, **changes)
        if content != self._content:
            self._fs.write_atomic(self._path, content.encode())
            self._content = content
