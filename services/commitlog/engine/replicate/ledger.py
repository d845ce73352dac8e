# SPDX-License-Identifier: Apache-2.0
"""The record of a leader's in-sync set: a file, or with a coordinator the leadership record.

Invariants: recorded members also count after a restart, connected or not. A file of another history or of another data
directory is ignored.
Layout of the file: docs/formats/reput_files.md section 6.
"""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Final, NamedTuple, Protocol

from msgspec import Struct

from libs.formats.state.replication import InSyncFile, Member
from libs.log.state import small_files
from libs.machine.fs import Fs
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.keep.epochs import ElectedEpoch, EpochHistory
from services.commitlog.engine.keep.identity import Identity
from services.commitlog.engine.keep.small_files import SmallFiles


class InSync(NamedTuple):
    """The in-sync set of a record."""

    others: Iterable[Member] = ()
    """Members besides the leader."""
    min_in_sync: int = 1
    """Minimum size of the set, leader included."""
    floor_physical_offset: int = 0
    """All members had the log up to this end on their disks. 0 if the record has no floor, as without elections."""


class InSyncLedger(Protocol):
    """Reads and writes the record of the in-sync set."""

    def load(self) -> InSync:
        """Return the set that was recorded when the log was opened."""
        ...

    async def record(self, in_sync: InSync) -> None:
        """Record a set durably. After any error the set may be recorded, also later."""
        ...


class LeasePromises(Protocol):
    """The members that can be elected instead of the leader, with their promises not to stand."""

    @property
    def lease_ms(self) -> int:
        """Milliseconds of the promise to ask for now, 0 to ask for none."""
        ...

    def hear(self, member: Member, asked_at_s: float) -> None:
        """Record a member's promise, which was requested at this monotonic time."""
        ...


class ElectedTerm(Struct, frozen=True):
    """The elected term that a leader opens its log with; all None if an operator assigned the role."""

    elected: ElectedEpoch | None = None
    ledger: InSyncLedger | None = None
    check: Callable[[], None] | None = None
    """Raises LeaseOver as soon as another log may lead."""
    promises: LeasePromises | None = None


BY_HAND: Final = ElectedTerm()


class InSyncFileLedger(Struct, frozen=True):
    """The file of a leader without a coordinator."""

    _fs: Fs
    _identity: Identity
    _epochs: EpochHistory
    _small_files: SmallFiles
    _config: CommitLogConfig
    _found: InSyncFile | None
    """The file at the start of the log."""

    def load(self) -> InSync:
        """See `InSyncLedger`. A file of another log or of another data directory is ignored."""
        file, mine = self._found, self._epochs.history_id
        if file is None or (file.history_id, file.leader.store_id) != (mine, self._identity.store_id):
            return InSync()
        return InSync(file.others, file.min_in_sync)

    async def record(self, in_sync: InSync) -> None:
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
