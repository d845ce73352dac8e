# SPDX-License-Identifier: Apache-2.0
"""History: the messages that were sent to a store, its answers, and the state of each message since.

States of a message: OPEN when it was sent and there is no answer; STORED with its place; REFUSED; GONE when a start
found it neither stored nor owed. STORED and GONE are for good. A message is a function of its number, so nothing of its
body is kept here. Callers: a single event loop.
"""

from __future__ import annotations

import enum
import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from reput.commitlog.v1 import append_service_pb2 as append_pb
from reput.common.v1 import message_pb2

UNIQUE_KEY, KEYS, TAGS, DELAY = "UNIQ_KEY", "KEYS", "TAGS", "DELAY"
BORN_HOST = message_pb2.Host(address=bytes((10, 1, 2, 3)), port=4567)

UNSPECIFIED = message_pb2.DURABILITY_UNSPECIFIED
MEMORY, LOCAL_DISK = message_pb2.DURABILITY_MEMORY, message_pb2.DURABILITY_LOCAL_DISK


class State(enum.Enum):
    """The state of a message: open, stored, refused or gone (see the module)."""

    OPEN = "open"
    STORED = "stored"
    REFUSED = "refused"
    GONE = "gone"


@dataclass(slots=True)
class Sent:
    """A message. `sequence` counts the messages of a caller; `queue_id` is -1 while the server may choose.

    `names_host` is false if it does not say where it was born, so that it gets the caller's address. `is_weak` is true
    while its acknowledgement does not cover the fault at hand. The place of a delayed message is the place of its
    record in the schedule topic; `copy_physical_offset` is the place of its copy in its own topic, -1 before that is
    found.
    """

    number: int
    caller: int
    sequence: int
    topic: str
    queue_id: int
    body_size_bytes: int
    properties: dict[str, str]
    born_time_ms: int
    names_host: bool = True
    state: State = State.OPEN
    physical_offset: int = -1
    queue_offset: int = -1
    is_weak: bool = False
    copy_physical_offset: int = -1

    @property
    def is_delayed(self) -> bool:
        """Whether it waits in the schedule topic first."""
        return DELAY in self.properties

    @property
    def body(self) -> bytes:
        """The body of the message, different from the body of every other message as far as its size allows."""
        return random.Random(self.number).randbytes(self.body_size_bytes)

    def to_request(self) -> append_pb.AppendMessage:
        """The message as it is sent."""
        return append_pb.AppendMessage(
            topic=self.topic,
            queue_id=self.queue_id if self.queue_id >= 0 else None,
            body=self.body,
            properties=self.properties,
            flag=self.number & 0x7FFFFFFF,
            born_time_ms=self.born_time_ms,
            born_host=BORN_HOST if self.names_host else None,
        )


@dataclass(slots=True)
class Batch:
    """Messages of a request, and the durability that was asked for."""

    messages: list[Sent]
    durability: message_pb2.Durability.ValueType


@dataclass(slots=True)
class History:
    """All messages by number, the batches without an answer, and the messages that readers have seen."""

    messages: dict[int, Sent] = field(default_factory=dict)
    seen: dict[int, int] = field(default_factory=dict)
    """Number of the message that a reader got from each physical offset."""
    open_batches: list[Batch] = field(default_factory=list)
    acknowledged_count: int = 0
    forgiven_count: int = 0
    """Messages that were lost although MEMORY was acknowledged, by a fault that MEMORY does not cover."""

    def send(self, batch: Batch) -> None:
        """Record a batch before it is sent."""
        for sent in batch.messages:
            self.messages[sent.number] = sent
        self.open_batches.append(batch)

    def acknowledge(self, batch: Batch, result: append_pb.AppendResult, *, weak_durability_max: int) -> list[str]:
        """Record the places of a batch. Returns the faults of the answer itself.

        Up to `weak_durability_max` its durability does not cover the fault to come.
        """
        places = zip(result.physical_offsets, result.queue_offsets, result.queue_ids, strict=True)
        columns = [(sent, *place) for sent, place in zip(batch.messages, places, strict=True)]
        wrong = [
            f"message {sent.number} was sent to queue {sent.queue_id}, the answer says {queue_id}"
            for sent, _, _, queue_id in columns
            if not sent.is_delayed and sent.queue_id not in (-1, queue_id)
        ]
        for sent, physical_offset, queue_offset, queue_id in columns:
            sent.state, sent.is_weak = State.STORED, result.durability <= weak_durability_max
            sent.physical_offset, sent.queue_offset = physical_offset, queue_offset
            if not sent.is_delayed:
                sent.queue_id = queue_id
        self.acknowledged_count += len(batch.messages)
        self.open_batches.remove(batch)
        return wrong

    def refuse(self, batch: Batch) -> None:
        """Take note that a batch must leave no trace."""
        for sent in batch.messages:
            sent.state = State.REFUSED
        self.open_batches.remove(batch)

    def stored(self) -> Iterable[Sent]:
        """All messages whose place is known."""
        return (sent for sent in self.messages.values() if sent.state is State.STORED)

    def see(self, messages: Sequence[message_pb2.StoredMessage]) -> None:
        """Record the messages that a reader got."""
        for message in messages:
            self.seen[message.physical_offset] = message.flag
