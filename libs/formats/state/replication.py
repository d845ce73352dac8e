# SPDX-License-Identifier: Apache-2.0
"""Files of a store that is replicated: who the log is, who is in sync, what its Indexer read. Spec: reput_files 6."""

from typing import Literal, TypeAlias

import msgspec

from libs.formats.records.state_record import DelayProgress, GroupOffsets
from libs.formats.state.checksummed import JsonFile


class Member(msgspec.Struct, frozen=True, array_like=True, order=True):
    """One copy of a log: its name, and that of its data directory, so that a replaced disk is another member."""

    replica_id: str
    store_id: str


RoleName: TypeAlias = Literal["async_master", "sync_master", "slave"]
"""As in the settings."""


class Seat(msgspec.Struct, frozen=True, array_like=True):
    """What a log does: its role, and whom it follows, as host:port, if it does."""

    role: RoleName
    leader_target: str = ""


class ReplicaFile(JsonFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a copy knows of itself."""

    KIND = "replica"

    store_id: str
    """32 hexadecimal digits, made with the file."""
    promised_epoch: int = 0
    """Newest epoch that it followed or led in. It goes back to no older one, ever."""
    replicated_physical_offset: int = 0
    """Up to here at least two members had the log on their disks; it may be more. An exclusive end."""
    is_synchronous: bool = False
    """Whether the log leads as a synchronous master: then what the checkpoint calls confirmed is replicated."""
    seat: Seat | None = None
    """What it was told to do instead of what its settings say."""
    instead_of: Seat | None = None
    """The settings of then. Other ones count again."""


class SharedStateFile(JsonFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Indexer's: how far it has read what all Indexers of the log share."""

    KIND = "shared-state"

    next_queue_offset: int
    """Of the first record of rmq_sys_reput_state that may not be in its other files."""
    delays: dict[int, DelayProgress]
    """What the records before told of the delay levels, by the id of the level's queue."""


class UnsentOffsetsFile(JsonFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Indexer's: changes of consumer offsets that the log lacked when the Indexer stopped."""

    KIND = "unsent-offsets"

    next_queue_offset: int
    """Queue offset of the first unread record of rmq_sys_reput_state."""
    offsets: GroupOffsets
    """The changes, as in a record."""


class InSyncFile(JsonFile, frozen=True, kw_only=True):
    """The leader's: whose disks an acknowledgement as replicated waits for. Unknown fields are for later versions."""

    KIND = "in-sync-set"

    history_id: str
    epoch: int
    leader: Member
    others: list[Member]
    min_in_sync: int
    """The set, leader included, never gets smaller."""
