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
"""Of a group or a topic, as consumerOffset.json can hold it."""
QueueId: TypeAlias = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Offset: TypeAlias = Annotated[int, Meta(ge=0, le=INT64_MAX)]
GroupOffsets: TypeAlias = dict[Name, dict[Name, dict[QueueId, Offset | None]]]
"""By group, topic and queue id. None: the group has none any more."""


class DelayProgress(msgspec.Struct, frozen=True, array_like=True):
    """How far the messages of a delay level are delivered."""

    next_queue_offset: Offset
    """Of the first one that is not, in the level's queue of the schedule topic."""
    epoch: Annotated[int, Meta(ge=0, le=INT32_MAX)] = 0
    """In which it was delivered. The epoch and the level name the writer."""
    next_sequence: Offset = 0
    """Number of the writer's next batch."""


class CopyPart(msgspec.Struct, frozen=True, array_like=True):
    """Which part of a whole copy a record is, from 0, and how many there are."""

    index: Annotated[int, Meta(ge=0)]
    count: Annotated[int, Meta(ge=1)]


class StateRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Some changes of what all Indexers of a log know, or a part of all of it."""

    format: int = FORMAT
    origin: str
    """Of whom it is: an Indexer's process."""
    number: Offset = 0
    """Within the origin, ascending. All parts of a copy have one."""
    offsets: GroupOffsets = {}
    delays: dict[QueueId, DelayProgress] = {}
    """By the id of the level's queue, which is the level less 1."""
    copy: CopyPart | None = None
    """Present: this is no change, but what was so when the copy was made."""

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
"""All formats that this version reads. A new field gets a new format, with a decoder of its own."""
