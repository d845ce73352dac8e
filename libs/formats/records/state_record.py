# SPDX-License-Identifier: Apache-2.0
"""StateRecord: the body of a record of rmq_sys_reput_state, as JSON. Spec: docs/formats/state_record.md."""

from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from libs.formats.errors import BadField
from libs.formats.limits import INT32_MAX, INT64_MAX
from libs.formats.records import versions

FORMAT = 1
NAME_SIZE_MAX = 255

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=NAME_SIZE_MAX, pattern="^[^@]+$")]
"""Name of a group or a topic that consumerOffset.json can hold."""
QueueId: TypeAlias = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Offset: TypeAlias = Annotated[int, Meta(ge=0, le=INT64_MAX)]
GroupOffsets: TypeAlias = dict[Name, dict[Name, dict[QueueId, Offset | None]]]
"""Offsets by group, topic and queue id. None: the group has no offset any more."""


class DelayProgress(msgspec.Struct, frozen=True, array_like=True):
    """The progress of a delay level's delivery."""

    next_queue_offset: Offset
    """Offset of the first undelivered message, in the level's queue of the schedule topic."""
    epoch: Annotated[int, Meta(ge=0, le=INT32_MAX)] = 0
    """Epoch of the delivery. The epoch and the level identify the writer."""
    next_sequence: Offset = 0
    """Number of the writer's next batch."""


class CopyPart(msgspec.Struct, frozen=True, array_like=True):
    """The position of a record in a whole copy: the part's index, from 0, and the number of parts."""

    index: Annotated[int, Meta(ge=0)]
    count: Annotated[int, Meta(ge=1)]


class StateRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Changes of the state that all Indexers of a log share, or a part of a copy of the whole state."""

    format: int = FORMAT
    origin: str
    """The writer: an Indexer's process."""
    number: Offset = 0
    """Number of the record within the origin, ascending. All parts of a copy have the same number."""
    offsets: GroupOffsets = {}
    delays: dict[QueueId, DelayProgress] = {}
    """Progress by the id of the level's queue, which is the level less 1."""
    copy: CopyPart | None = None
    """Present: the record is no change, but a part of a copy, with the state at the time of the copy."""

    def encode(self) -> bytes:
        """Return the JSON."""
        return msgspec.json.encode(self)

    @staticmethod
    def decode(data: bytes) -> "StateRecord":
        """Return the record in a body. Raises NewerVersion for a later format, and BadField for other bytes."""
        record = versions.decode(data, DECODERS, name="state record")
        if record.copy is not None and record.copy.index >= record.copy.count:
            raise BadField(position=0, reason=f"copy {record.copy}", field="state record")
        return record


DECODERS: Final = {1: StateRecord}
"""All formats that this version reads. A new field gets a new format, with its own decoder."""
