# SPDX-License-Identifier: Apache-2.0
"""StateRecord: the body of a record of rmq_sys_reput_state, as JSON. Spec: docs/formats/state_record.md."""

from typing import Annotated, Self, TypeAlias

import msgspec
from msgspec import Meta

from libs.formats.errors import BadField
from libs.formats.limits import INT32_MAX, INT64_MAX

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

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return what a body says. Raises BadField for what is no record, or of a later form."""
        try:
            record = msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise BadField(position=0, reason=str(error), field="state record") from error
        if record.format != FORMAT or (record.copy is not None and record.copy.index >= record.copy.count):
            reason = f"format {record.format}, copy {record.copy}"
            raise BadField(position=0, reason=reason, field="state record")
        return record
