# SPDX-License-Identifier: Apache-2.0
"""Where the in-sync set of a log that leads is recorded: its file, or with a coordinator the record of all members.

Invariants: whoever is recorded counts after a restart, too, connected or not; the file of another history, or of
another data directory, counts as none.
Layout of the file: docs/formats/reput_files.md section 6.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Final, NamedTuple, Protocol

from libs.formats.state.replication import InSyncFile, Member
from libs.log.state import small_files
from libs.machine.fs import Fs
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.keep.epochs import Elected, EpochHistory
from services.commitlog.engine.keep.identity import Identity
from services.commitlog.engine.keep.small_files import SmallFiles


class InSync(NamedTuple):
    """Who is in sync with the leader, and the least size of the set, leader included."""

    others: Iterable[Member] = ()
    min_in_sync: int = 1


class InSyncLedger(Protocol):
    """What is recorded last, and what will be."""

    def load(self) -> InSync:
        """Return what is recorded. May block."""
        ...

    async def record(self, in_sync: InSync, replicated_physical_offset: int) -> None:
        """Record another set, durably. Whatever it raises: it may be recorded all the same, or may be still."""
        ...


class Witnesses(Protocol):
    """The members that can be elected instead of a leader, and what they promise it."""

    @property
    def lease_ms(self) -> int:
        """For how long they are asked now not to stand for election, 0 if they are not to be asked."""
        ...

    def hear(self, member: Member, asked_at_s: float) -> None:
        """Take note that a member promised what it was asked for then, by the clock of leases."""
        ...


@dataclass(frozen=True, slots=True)
class Reign:
    """As what a log leads that was elected; nothing of it where people decide."""

    elected: Elected | None = None
    ledger: InSyncLedger | None = None
    check: Callable[[], None] | None = None
    """Raises LeaseOver from the moment on when another one may lead."""
    witnesses: Witnesses | None = None


BY_HAND: Final = Reign()


@dataclass(frozen=True, slots=True)
class InSyncFileLedger:
    """The file of a log that leads without a coordinator."""

    _fs: Fs
    _identity: Identity
    _epochs: EpochHistory
    _small_files: SmallFiles
    _config: CommitLogConfig

    def load(self) -> InSync:
        """See `InSyncLedger`. A set of another log, or of whom it led here before, is none."""
        file, mine = small_files.load_in_sync(self._fs, self._config.data_dir), self._epochs.history_id
        if file is None or (file.history_id, file.leader.store_id) != (mine, self._identity.store_id):
            return InSync()
        return InSync(file.others, file.min_in_sync)

    async def record(self, in_sync: InSync, replicated_physical_offset: int) -> None:  # noqa: ARG002
        """See `InSyncLedger`. Raises OSError."""
        store_id = await self._identity.claim()
        file = InSyncFile(
            history_id=self._epochs.history_id,
            epoch=self._epochs.number,
            leader=Member(self._config.replica_id, store_id),
            others=sorted(in_sync.others),
            min_in_sync=in_sync.min_in_sync,
        )
        save = partial(small_files.save_in_sync, self._fs, self._config.data_dir, file)
        await self._small_files.write(save, with_ballast=True)
