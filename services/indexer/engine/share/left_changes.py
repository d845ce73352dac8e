# SPDX-License-Identifier: Apache-2.0
"""LeftChanges: changes that the process before could not put into the log, from its orderly stop to the next one.

They are in the file `reput/unsent_offsets` until the log has them. A change counts until a record tells of the same
place: that record was written while this Indexer was away, so it is the later one.
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


class LeftChanges:
    """Of one directory. Make it, then `load` it once."""

    def __init__(self, fs: Fs, path: Path) -> None:
        self._fs, self._path = fs, path
        self._changes: dict[Place, int | None] = {}
        self._next_queue_offset = 0
        """Of the first record that may be later than the changes."""
        self._has_file = False

    def __contains__(self, place: Place) -> bool:
        return place in self._changes

    def __bool__(self) -> bool:
        return bool(self._changes)

    def load(self, next_queue_offset: int) -> None:
        """Read the file. `next_queue_offset`: of the records that come next. Blocks. Raises NewerVersion and OSError.

        Records between the file's and this one were read by a process that knew nothing of the file: it is too old.
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

    def read(self, changed: Iterable[Place], queue_offset: int) -> None:
        """Forget changes of places that a record tells of, if it is a later one, not an old one that is read anew."""
        if queue_offset >= self._next_queue_offset:
            for place in changed:
                self._changes.pop(place, None)

    def clear(self) -> None:
        """Forget all."""
        self._changes.clear()

    def take(self) -> dict[Place, int | None]:
        """Return all, which the caller sends. The file stays until `remove`."""
        taken, self._changes = self._changes, {}
        return taken

    async def save(self, changes: Mapping[Place, int | None], next_queue_offset: int) -> None:
        """Write down these changes besides those that are left. Durable on return. Raises OSError."""
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
        """Remove the file, if nothing is left. Raises OSError."""
        if self._has_file and not self._changes:
            with contextlib.suppress(FileNotFoundError):
                await asyncio.to_thread(self._fs.remove, self._path)
            self._has_file = False
