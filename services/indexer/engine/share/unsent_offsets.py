# SPDX-License-Identifier: Apache-2.0
"""UnsentOffsets: changes of consumer offsets that the previous process could not append to the log before its stop.

The file `reput/unsent_offsets` keeps them until the log has them. A record for the same place replaces a change: the
record was written while this Indexer was stopped, so it is the later change.
Callers: the event loop's thread. Layout: docs/formats/reput_files.md section 6.
"""

import asyncio
import contextlib
import logging
from collections.abc import Iterable, Mapping
from pathlib import Path

from libs.formats.errors import FormatError
from libs.formats.state.replication import UnsentOffsetsFile
from libs.machine.fs import Fs
from services.indexer.engine.share.local_changes import Place, nested, places

_log = logging.getLogger(__name__)


class UnsentOffsets:
    """The unsent changes of a data directory, by place. Call `load` once, before all other methods."""

    def __init__(self, fs: Fs, path: Path) -> None:
        self._fs, self._path = fs, path
        self._changes: dict[Place, int | None] = {}
        self._next_queue_offset = 0
        """Queue offset of the first record that may be later than the changes."""
        self._has_file = False

    def __contains__(self, place: Place) -> bool:
        return place in self._changes

    def __len__(self) -> int:
        return len(self._changes)

    def load(self, next_queue_offset: int) -> None:
        """Read the file. `next_queue_offset` is that of the next state record. Blocks. Raises NewerVersion and OSError.

        A file with a smaller offset is outdated: a process of a version without this file has read records since.
        """
        try:
            file = UnsentOffsetsFile.decode(self._fs.read(self._path))
        except FileNotFoundError:
            return
        except FormatError as error:
            _log.error("%s is damaged, changes of consumer offsets in it are lost: %s", self._path, error)
        else:
            if file.next_queue_offset >= next_queue_offset:
                self._changes, self._next_queue_offset = dict(places(file.offsets)), file.next_queue_offset
                _log.info("%d changes of consumer offsets wait for the log since the last stop", len(self._changes))
        self._has_file = True

    def drop(self, changed: Iterable[Place], queue_offset: int) -> None:
        """Drop changes of the places of a state record. An old record, which is only read again, drops nothing."""
        if queue_offset >= self._next_queue_offset:
            for place in changed:
                self._changes.pop(place, None)

    def clear(self) -> None:
        """Drop all changes."""
        self._changes.clear()

    def take(self) -> dict[Place, int | None]:
        """Return all changes, for the caller to send. The file stays until `remove`."""
        taken, self._changes = self._changes, {}
        return taken

    async def save(self, changes: Mapping[Place, int | None], next_queue_offset: int) -> None:
        """Write these changes and the remaining changes to the file. Durable on return. Raises OSError."""
        self._changes.update(changes)
        if not self._changes:
            await self.remove()
            return
        file = UnsentOffsetsFile(next_queue_offset=next_queue_offset, offsets=nested(self._changes))
        self._has_file = True
        await asyncio.to_thread(self._fs.write_atomic, self._path, file.encode())
        _log.warning(
            "%d changes of consumer offsets are not in the log: they wait in %s for the next start",
            len(self._changes),
            self._path,
        )

    async def remove(self) -> None:
        """Remove the file if no change remains. Raises OSError."""
        if self._has_file and not self._changes:
            with contextlib.suppress(FileNotFoundError):
                await asyncio.to_thread(self._fs.remove, self._path)
            self._has_file = False
