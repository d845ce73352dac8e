# SPDX-License-Identifier: Apache-2.0
"""LeadershipRecord: what a coordinator keeps of a replicated log, as JSON. Spec: docs/formats/leadership_record.md."""

from typing import Self

import msgspec

from libs.formats.errors import BadField, NewerVersion
from libs.formats.limits import INT32_MAX
from libs.formats.state.replication import Member

VERSION = 1


class LeadershipRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Who leads, in which epoch, and who is in sync. Replaced as a whole, only by who has seen what it replaces."""

    version: int = VERSION
    history_id: str
    """Name of the log's history: a copy of another log stays away."""
    epoch: int
    """Of the leader; each election makes it larger by one."""
    leader: Member | None = None
    """None once a leader has handed over."""
    leader_target: str = ""
    """Address of the leader, host:port."""
    in_sync: tuple[Member, ...]
    """Who has all that was acknowledged as replicated, the leader included. Only these are elected."""
    min_in_sync: int = 1
    """The set never gets smaller."""
    floor_physical_offset: int = 0
    """Up to here all of them had the log on their disks. Who ends before has lost something."""
    successor: str = ""
    """Replica id of who leads next, if the leader has handed over."""

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
