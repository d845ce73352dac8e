# SPDX-License-Identifier: Apache-2.0
"""Identity: the name of this copy of a log, its promised epoch, and its known replicated offset.

Invariants: the name of a data directory is created once, at random, before it is sent anywhere. The recorded replicated
offset is a lower bound, and durable before the checkpoint includes it. An epoch is promised, durably, before anything
of it is effective. So the log never again follows a leader of an older epoch, even if the bytes of the newer epoch are
lost.
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

from libs.formats.state.replication import ReplicaFile, RoleSetting
from libs.log.state import small_files
from libs.machine.fs import Fs
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.keep.small_files import SmallFiles

STORE_ID_SIZE_BYTES = 16


@dataclass(slots=True, eq=False)
class Identity:
    """The identity of a data directory. A log without followers and leader has no file. Create it with `open`."""

    _fs: Fs
    _data_dir: Path
    _small_files: SmallFiles
    _saved: ReplicaFile | None
    _is_synchronous: bool
    was_synchronous: bool
    """Whether confirmed bytes were replicated until now: in a synchronous master, or in a follower of such a master."""
    replicated_physical_offset: int = 0
    """At least two members have the log on their disks up to this offset."""
    promised_epoch: int = 0
    """Newest epoch in which the log followed or led."""
    _writing: asyncio.Lock = field(default_factory=asyncio.Lock)

    @classmethod
    def open(cls, fs: Fs, config: CommitLogConfig, thread: SmallFiles) -> Self:
        """Read the file, if it exists. Raises ReplicaFileDamaged or OSError."""
        saved, is_synchronous = small_files.load_replica(fs, config.data_dir), config.role_name == "sync_master"
        if saved is None:
            return cls(fs, config.data_dir, thread, None, is_synchronous, was_synchronous=False)
        replicated = saved.replicated_physical_offset
        return cls(
            fs, config.data_dir, thread, saved, is_synchronous, saved.is_synchronous, replicated, saved.promised_epoch
        )

    def known(self, confirmed_physical_offset: int) -> tuple[int, int]:
        """Return the confirmed offset, from the checkpoint's value, and the replicated offset.

        If the log confirmed bytes without waiting for other members, but waits for them now, the confirmed offset is
        the replicated offset.
        """
        replicated = self.replicated_physical_offset
        is_believed = self.was_synchronous or not self._is_synchronous
        return confirmed_physical_offset if is_believed else replicated, replicated

    @property
    def store_id(self) -> str:
        """Name of the data directory, empty before `claim`."""
        return self._saved.store_id if self._saved else ""

    def note_replicated(self, physical_offset: int) -> None:
        """Record that another member also has the log up to this offset."""
        self.replicated_physical_offset = max(self.replicated_physical_offset, physical_offset)

    async def claim(self) -> str:
        """Return the name of the data directory. Creates it if it is missing. Raises OSError."""
        if self._saved is None:
            await self._write(create=True)
        return self.store_id

    async def promise(self, epoch: int) -> None:
        """Promise never to return to an older epoch, durably if the directory has a name. Raises OSError."""
        if epoch > self.promised_epoch:
            await self._write(promised_epoch=epoch)
            self.promised_epoch = epoch

    async def save_setting(self, setting: RoleSetting, *, instead_of: RoleSetting) -> None:
        """Save an operator's choice of role and leader for restarts with the same settings. Raises OSError."""
        told = None if setting == instead_of else setting
        await self._write(create=True, seat=told, instead_of=instead_of if told else None)

    async def note_role(self, save_checkpoint: Callable[[], Awaitable[None]]) -> None:
        """Record, durably, whether the log leads synchronously from now on. Raises OSError.

        The checkpoint never claims more than this record.
        """
        if self._saved is not None and self._saved.is_synchronous != self._is_synchronous:
            if self._is_synchronous:
                await save_checkpoint()
            await self._write(is_synchronous=self._is_synchronous)

    async def note_asynchronous(self) -> None:
        """Record, durably, that bytes confirmed from now on may not be replicated. Raises OSError."""
        if self._saved is not None and self._saved.is_synchronous:
            await self._write(is_synchronous=False)

    async def remove_setting(self) -> None:
        """Remove the operator's saved choice of role and leader. Raises OSError."""
        if self._saved is not None and self._saved.seat is not None:
            await self._write(seat=None, instead_of=None)

    async def save(self) -> None:
        """Write the recorded replicated offset if it has grown. Raises OSError."""
        noted = self.replicated_physical_offset
        if self._saved is not None and self._saved.replicated_physical_offset < noted:
            await self._write(replicated_physical_offset=noted)

    async def _write(self, *, create: bool = False, **changes: Any) -> None:
        """Change the file. Changes run in sequence, each on the result of the change before it."""
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
