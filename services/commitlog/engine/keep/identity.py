# SPDX-License-Identifier: Apache-2.0
"""Identity: which copy of a log this is, and up to where it knows that it is not the only one.

Invariants: the name of a data directory is made once, by chance, before anybody hears it; what is noted as replicated
is a lower bound, and durable within ten seconds.
Callers: the loop that owns the log. Layout: docs/formats/reput_files.md section 6.
"""

import secrets
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Self

import msgspec

from libs.formats.state.replication import ReplicaFile, Seat
from libs.log.state import small_files
from libs.machine.fs import Fs
from libs.machine.loop import SupervisedLoop
from services.commitlog.engine.keep.small_files import SmallFiles

STORE_ID_SIZE_BYTES = 16
INTERVAL_MS = 10_000


@dataclass(slots=True, eq=False)
class Identity:
    """Of one data directory. A log that nobody follows, and that follows nobody, has none. Make it with `open`."""

    _fs: Fs
    _data_dir: Path
    _small_files: SmallFiles
    _saved: ReplicaFile | None
    replicated_physical_offset: int
    """At least two members have the log on their disks up to here."""
    loop: SupervisedLoop = field(init=False)

    def __post_init__(self) -> None:
        self.loop = SupervisedLoop("replica", self.save, interval_ms=INTERVAL_MS)

    @classmethod
    def open(cls, fs: Fs, data_dir: Path, small_files_thread: SmallFiles) -> Self:
        """Read the file, if there is one."""
        saved = small_files.load_replica(fs, data_dir)
        return cls(fs, data_dir, small_files_thread, saved, saved.replicated_physical_offset if saved else 0)

    @property
    def store_id(self) -> str:
        """Name of the data directory, empty before `claim`."""
        return self._saved.store_id if self._saved else ""

    def note_replicated(self, physical_offset: int) -> None:
        """Take note that another member has the log up to here, too."""
        self.replicated_physical_offset = max(self.replicated_physical_offset, physical_offset)

    async def claim(self) -> str:
        """Return the name of the data directory, which is made if it has none. Raises OSError."""
        if self._saved is None:
            await self._write(ReplicaFile(store_id=secrets.token_hex(STORE_ID_SIZE_BYTES)))
        return self.store_id

    async def sit(self, seat: Seat, *, instead_of: Seat) -> None:
        """Keep what the log was told to do over restarts, for as long as the settings stay. Raises OSError."""
        await self.claim()
        assert self._saved is not None
        told = None if seat == instead_of else seat
        await self._write(msgspec.structs.replace(self._saved, seat=told, instead_of=instead_of if told else None))

    async def save(self) -> None:
        """Write what was noted, if that is news. Raises OSError."""
        noted = self.replicated_physical_offset
        if self._saved is not None and self._saved.replicated_physical_offset < noted:
            await self._write(msgspec.structs.replace(self._saved, replicated_physical_offset=noted))

    async def _write(self, file: ReplicaFile) -> None:
        save = partial(small_files.save_replica, self._fs, self._data_dir, file)
        await self._small_files.write(save, with_ballast=True)
        self._saved = file
