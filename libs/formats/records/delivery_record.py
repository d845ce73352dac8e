# SPDX-License-Identifier: Apache-2.0
"""DeliveryRecord: the body of a record of rmq_sys_reput_delivery, as JSON. Spec: docs/formats/delivery_record.md.

What happened to the messages of consumer groups, in order. Whoever reads all of it, or all from a whole copy on, knows
what was delivered to whom, until when it is theirs, and what is settled.
"""

from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from libs.formats.limits import INT32_MAX, INT64_MAX
from libs.formats.records import versions

FORMAT = 1
"""The format that is written. A later format is written one version after the first version that reads it."""
NAME_SIZE_MAX = 255
ATTEMPTS_MAX = 1_000
BACKOFFS_MAX = 64

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=NAME_SIZE_MAX)]
QueueId: TypeAlias = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Offset: TypeAlias = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Key: TypeAlias = Annotated[int, Meta(ge=0, le=INT64_MAX)]
"""Which messages of a queue wait for each other: a hash of their ordering key, 0 for those that wait for none."""
Attempt: TypeAlias = Annotated[int, Meta(ge=0, le=INT32_MAX)]
"""How often a message was delivered."""


class Place(msgspec.Struct, frozen=True, array_like=True):
    """A queue, as one group sees it."""

    group: Name
    topic: Name
    queue_id: QueueId


class Flight(msgspec.Struct, frozen=True, array_like=True):
    """A message that somebody has, or had and gave back."""

    offset: Offset
    attempt: Attempt
    stamp: Offset
    """Of the delivery: milliseconds since the epoch, larger with each delivery of the message. Handles carry it.

    Once the message was given back it is `until_ms` or more: nobody has it until then.
    """
    until_ms: Offset
    """When it may be delivered again, milliseconds since the epoch."""
    key: Key = 0


BACKOFFS_MS = (
    10_000,
    30_000,
    60_000,
    120_000,
    180_000,
    240_000,
    300_000,
    360_000,
    420_000,
    480_000,
    540_000,
    600_000,
    1_200_000,
    1_800_000,
    3_600_000,
    7_200_000,
)
"""RocketMQ's waits after failures: its delay levels from the third on."""
ORDERED_BACKOFFS_MS = (1_000, 5_000, *BACKOFFS_MS)
"""RocketMQ's waits after failures in an ordered group: all of its delay levels."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How a group gets its messages. Times are in milliseconds."""

    attempts_max: Annotated[int, Meta(ge=1, le=ATTEMPTS_MAX)] = 17
    """A message that was given back so often goes to the dead letters. RocketMQ's retryMaxTimes (16) and the first."""
    backoffs_ms: Annotated[tuple[Annotated[int, Meta(ge=0, le=INT32_MAX)], ...], Meta(min_length=1)] = BACKOFFS_MS
    """Waits that the group was given. Either of RocketMQ's lists stands for none: `waits_ms` has those that count."""
    invisible_ms: Annotated[int, Meta(ge=1, le=INT32_MAX)] = 60_000
    """For how long a message is the receiver's who asks for no other time."""
    is_ordered: bool = False
    """Whether messages with the same ordering key wait for each other."""
    from_end: bool = False
    """Whether queues that exist when the group begins with a topic begin at their end, not with their first message."""
    is_paused: bool = False
    """Whether nobody receives anything."""

    def __post_init__(self) -> None:
        """Bound what a policy costs."""
        if len(self.backoffs_ms) > BACKOFFS_MAX:
            raise ValueError(f"backoffs_ms has {len(self.backoffs_ms)} entries, but may have {BACKOFFS_MAX}")

    @property
    def has_own_waits(self) -> bool:
        """Whether the group was given waits that are not RocketMQ's."""
        return self.backoffs_ms not in (BACKOFFS_MS, ORDERED_BACKOFFS_MS)

    @property
    def waits_ms(self) -> tuple[int, ...]:
        """How long a message waits that was given back without a delay, by its attempts. The last counts for others."""
        if self.has_own_waits:
            return self.backoffs_ms
        return ORDERED_BACKOFFS_MS if self.is_ordered else BACKOFFS_MS

    def backoff_ms(self, attempt: int) -> int:
        """Return how long a message waits after so many attempts, from 1."""
        waits_ms = self.waits_ms
        return waits_ms[min(max(attempt, 1), len(waits_ms)) - 1]


class Took(msgspec.Struct, frozen=True, array_like=True, tag="took"):
    """Messages were delivered, and the group goes on at `next`. What lies between and is neither is settled."""

    place: Place
    next: Offset
    flights: tuple[Flight, ...]
    held: tuple[tuple[Offset, Key], ...] = ()
    """Passed, but not delivered yet: one with the same key is in flight."""


class Settled(msgspec.Struct, frozen=True, array_like=True, tag="settled"):
    """These messages are done with: acknowledged, given up, dead, replayed, or gone from the log."""

    place: Place
    offsets: tuple[Offset, ...]


class Postponed(msgspec.Struct, frozen=True, array_like=True, tag="postponed"):
    """Messages may be delivered again at another time: the receivers asked for more, or gave them back."""

    place: Place
    flights: tuple[Flight, ...]


class Moved(msgspec.Struct, frozen=True, array_like=True, tag="moved"):
    """The group goes on here, and nothing of the queue is in flight."""

    place: Place
    next: Offset


class PolicySet(msgspec.Struct, frozen=True, array_like=True, tag="policy"):
    """A group has this policy from here on. None: there is no such group any more, nor anything known of its queues."""

    group: Name
    policy: Policy | None


class Began(msgspec.Struct, frozen=True, array_like=True, tag="began"):
    """From here on only what this process writes counts."""

    owner: Annotated[str, Meta(min_length=1, max_length=64)]


class Copied(msgspec.Struct, frozen=True, array_like=True, tag="copied"):
    """What was known of a queue when this was written. It replaces what was read of it before."""

    place: Place
    next: Offset
    flights: tuple[Flight, ...]
    held: tuple[tuple[Offset, Key], ...]
    ahead: tuple[Offset, ...] = ()
    """From `next` on, and settled all the same."""


class CopyEdge(msgspec.Struct, frozen=True, array_like=True, tag="edge"):
    """A copy begins or ends here. All policies and queues were copied in between."""

    number: Offset
    is_end: bool


class DelaysDone(msgspec.Struct, frozen=True, array_like=True, tag="delays_done"):
    """These records of the timer topic are done with: delivered, cancelled, appended again, or gone from the log."""

    offsets: tuple[Offset, ...]


class DelaysCopied(msgspec.Struct, frozen=True, array_like=True, tag="delays_copied"):
    """What was known of the timer topic when this was written: one part of it. It adds to what was read before."""

    low: Offset
    """All below are done with."""
    start: Offset
    """The offset of the first bit."""
    bits: bytes
    """A bit for each offset that is done with, the lowest of a byte first, as zlib has them."""


class TimeBehind(msgspec.Struct, frozen=True, array_like=True, tag="time"):
    """From here on the times of flights are behind store times by so much: the log's time has jumped ahead."""

    behind_ms: Offset


Event: TypeAlias = (
    Took | Settled | Postponed | Moved | PolicySet | Began | Copied | CopyEdge | DelaysDone | DelaysCopied | TimeBehind
)


class DeliveryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Some events, in their order."""

    format: int = FORMAT
    owner: Annotated[str, Meta(max_length=64)]
    """The process that wrote it."""
    events: tuple[Event, ...]

    def encode(self) -> bytes:
        """Return the JSON."""
        return msgspec.json.encode(self)

    @staticmethod
    def decode(data: bytes) -> "DeliveryRecord":
        """Return the record in a body. Raises NewerVersion for a later format, and BadField for other bytes."""
        return versions.decode(data, DECODERS, name="delivery record")


DECODERS: Final = {1: DeliveryRecord}
"""All formats that this version reads. A new event or field gets a new format, with a decoder of its own."""
