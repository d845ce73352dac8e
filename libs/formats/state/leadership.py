# SPDX-License-Identifier: Apache-2.0
"""LeadershipRecord: a coordinator's record of a replicated log, as JSON. Spec: docs/formats/leadership_record.md."""

from typing import Self

import msgspec

from libs.formats.errors import BadField, NewerVersion
from libs.formats.limits import INT32_MAX
from libs.formats.state.replication import Member

VERSION = 1


class LeadershipRecord(msgspec.Struct, frozen=True, kw_only=True):
    """The leader, its epoch, and the in-sync set. It is replaced as a whole, only by a member that has read it."""

    version: int = VERSION
    history_id: str
    """Name of the log's history. The record does not apply to a copy of another log."""
    epoch: int
    """The leader's epoch. Each election raises it by 1."""
    leader: Member | None = None
    """None after a leader has handed over."""
    leader_target: str = ""
    """Address of the leader, host:port."""
    in_sync: tuple[Member, ...]
    """The in-sync set: the members with all records that were acknowledged as replicated, including the leader. Only
    these members may be elected."""
    min_in_sync: int = 1
    """The set never gets smaller than this."""
    floor_physical_offset: int = 0
    """All members of the set had the log up to this end on their disks. A log with a lower end has lost records."""
    successor: str = ""
    """Replica id of the next leader, if the leader has handed over."""

    def encode(self) -> bytes:
        """Return the JSON."""
        return msgspec.json.encode(self)

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return the record in a JSON text. Raises NewerVersion for a later version, BadField for other bytes."""
        try:
            record = msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadField(position=0, reason=str(error), field="leadership record") from error
        if record.version > VERSION:
            raise NewerVersion("the leadership record", version=record.version, newest=VERSION)
        if record.version != VERSION or not 0 < record.epoch <= INT32_MAX:
            reason = f"version {record.version}, epoch {record.epoch}"
            raise BadField(position=0, reason=reason, field="leadership record")
        return record
