# SPDX-License-Identifier: Apache-2.0
"""Files of a replicated store: the copy's identity, the in-sync set, the Indexer's progress. Spec: reput_files 6."""

from collections.abc import Mapping
from typing import Final, Literal, TypeAlias

import msgspec

from libs.formats.records.state_record import DelayProgress, GroupOffsets
from libs.formats.state.checksummed import JsonFile


class Member(msgspec.Struct, frozen=True, array_like=True, order=True):
    """A copy of a log: its name, and its data directory's name, so that a replaced disk is another member."""

    replica_id: str
    store_id: str


RoleName: TypeAlias = Literal["async_master", "sync_master", "slave"]
"""A role, by RocketMQ's name. Files and protocols have these names."""

RoleWord: TypeAlias = Literal[RoleName, "async_leader", "sync_leader", "follower"]
"""A role, as a setting may name it."""

ROLE_ALIASES: Final[Mapping[str, RoleName]] = {
    "async_leader": "async_master",
    "sync_leader": "sync_master",
    "follower": "slave",
}


class RoleSetting(msgspec.Struct, frozen=True, array_like=True):
    """The role setting of a log: its role and, if it follows, its leader's address as host:port."""

    role: RoleName
    leader_target: str = ""


class ReplicaFile(JsonFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A copy's knowledge of itself."""

    KIND = "replica"

    store_id: str
    """32 hexadecimal digits, made with the file."""
    promised_epoch: int = 0
    """The newest epoch in which the copy followed or led. It never accepts an older epoch."""
    replicated_physical_offset: int = 0
    """End of the log's part that at least two members had on their disks, exclusive. The true end may be higher."""
    is_synchronous: bool = False
    """Whether the log leads as a synchronous master: then the checkpoint's confirmed offset is replicated."""
    seat: RoleSetting | None = None
    """The assigned role setting, which replaces the settings."""
    instead_of: RoleSetting | None = None
    """The settings at the time of the assignment. Changed settings replace the assigned role setting."""


class SharedStateFile(JsonFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Indexer's file: its progress in the state that all Indexers of the log share."""

    KIND = "shared-state"

    next_queue_offset: int
    """Queue offset of the first record of rmq_sys_reput_state that may not be in the Indexer's other files."""
    delays: dict[int, DelayProgress] = msgspec.field(default_factory=dict)
    """Progress of the delay levels. Only older versions write it."""


class UnsentOffsetsFile(JsonFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The Indexer's file: changes of consumer offsets that the log lacked when the Indexer stopped."""

    KIND = "unsent-offsets"

    next_queue_offset: int
    """Queue offset of the first unread record of rmq_sys_reput_state."""
    offsets: GroupOffsets
    """The changes, as in a record."""


class InSyncFile(JsonFile, frozen=True, kw_only=True):
    """The leader's file: the members on whose disks an acknowledgement as replicated depends.

    Unknown fields are for later versions.
    """

    KIND = "in-sync-set"

    history_id: str
    epoch: int
    leader: Member
    others: list[Member]
    min_in_sync: int
    """The set, including the leader, never gets smaller than this."""
