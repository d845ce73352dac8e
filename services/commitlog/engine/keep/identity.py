# SPDX-License-Identifier: Apache-2.0
"""Identity: which copy of a log this is, what it promised, and up to where it knows that it is not the only one.

Invariants: the name of a data directory is made once, by chance, before anybody hears it; what is noted as replicated
is a lower bound, and durable before the checkpoint tells of it; an epoch is promised, durably, before anything of it
counts, so that a leader of an older one is never followed again, whatever became of the bytes of the newer one.
Callers: the loop that owns the log. Layout: docs/formats/reput_files.md section 6.
"""

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Self

import msgspec

from libs.formats.state.replication import ReplicaFile, Seat
from libs.log.state import small_files
from libs.machine.fs import Fs
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.keep.small_files import SmallFiles

STORE_ID_SIZE_BYTES = 16


@dataclass(slots=True, eq=False)
class Identity:
    """Of one data directory. A log that nobody follows, and that follows nobody, has none. Make it with `open`."""

    _fs: Fs
    _data_dir: Path
    _small_files: SmallFiles
    _saved: ReplicaFile | None
    _is_synchronous: bool
    was_synchronous: bool
    """Whether what was confirmed until now was replicated: by a synchronous master, or who follows one."""
    replicated_physical_offset: int = 0
    """At least two members have the log on their disks up to here."""
    promised_epoch: int = 0
    """Newest epoch that the log followed or led in."""
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    def open(cls, fs: Fs, config: CommitLogConfig, thread: SmallFiles) -> Self:
        """Read the file, if there is one. Raises ReplicaFileDamaged or OSError."""
        saved, is_synchronous = small_files.load_replica(fs, config.data_dir), config.role == "sync_master"
        if saved is None:
            return cls(fs, config.data_dir, thread, None, is_synchronous, was_synchronous=False)
        replicated = saved.replicated_physical_offset
        return cls(
            fs, config.data_dir, thread, saved, is_synchronous, saved.is_synchronous, replicated, saved.promised_epoch
        )

    def known(self, confirmed_physical_offset: int) -> tuple[int, int]:
        """Return what was confirmed, as the checkpoint has it, and what was replicated.

        What a log confirmed that did not wait for others is, for one that does, only what was replicated.
        """
        replicated = self.replicated_physical_offset
        is_believed = self.was_synchronous or not self._is_synchronous
        return confirmed_physical_offset if is_believed else replicated, replicated

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
            await self._write(create=True)
        return self.store_id

    async def promise(self, epoch: int) -> None:
        """Go back to no older epoch from here on, durably where there is a name. Raises OSError."""
        if epoch > self.promised_epoch:
            await self._write(promised_epoch=epoch)
            self.promised_epoch = epoch

    async def sit(self, seat: Seat, *, instead_of: Seat) -> None:
        """Keep what the log was told to do over restarts, for as long as the settings stay. Raises OSError."""
        told = None if seat == instead_of else seat
        await self._write(create=True, seat=told, instead_of=instead_of if told else None)

    async def note_role(self, save_checkpoint: Callable[[], Awaitable[None]]) -> None:
        """Note, durably, how the log leads from here on. The checkpoint never says more than that. Raises OSError."""
        if self._saved is not None and self._saved.is_synchronous != self._is_synchronous:
            if self._is_synchronous:
                await save_checkpoint()
            await self._write(is_synchronous=self._is_synchronous)

    async def note_asynchronous(self) -> None:
        """Note, durably, that what is confirmed from here on need not be replicated. Raises OSError."""
        if self._saved is not None and self._saved.is_synchronous:
            await self._write(is_synchronous=False)

    async def stand_up(self) -> None:
        """Forget what the log was told to do. Raises OSError."""
        if self._saved is not None and self._saved.seat is not None:
            await self._write(seat=None, instead_of=None)

    async def save(self) -> None:
        """Write what was noted, if that is news. Raises OSError."""
        noted = self.replicated_physical_offset
        if self._saved is not None and self._saved.replicated_physical_offset < noted:
            await self._write(replicated_physical_offset=noted)

    async def _write(self, *, create: bool = False, **changes: Any) -> None:
        """Change the file: one change after the other, each on what the one before has written."""
        async with self._writing:
            saved = self._saved
            if saved is None and create:
                saved = ReplicaFile(
                    store_id=secrets.token_hex(STORE_ID_SIZE_BYTES),
                    promised_epoch=self.promised_epoch,
                    is_synchronous=self._is_synchronous,
                )
            if saved is not None:
                file = msgspec.structs.replace(saved, **changes)
                save = partial(small_files.save_replica, self._fs, self._data_dir, file)
                await self._small_files.write(save, with_ballast=True)
                self._saved = file
