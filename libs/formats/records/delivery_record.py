# SPDX-License-Identifier: Apache-2.0
"""DeliveryRecord: the body of a record of rmq_sys_reput_delivery, as JSON. Spec: docs/formats/delivery_record.md.

The journal of the deliveries of consumer groups, in order. A reader of the whole journal, or of all records from a
whole copy on, knows which messages are in flight, until when, and which messages are settled.
"""

from typing import Annotated, Final, TypeAlias

import msgspec
from msgspec import Meta

from libs.formats.limits import INT32_MAX, INT64_MAX
from libs.formats.records import versions

FORMAT = 1
"""The written format. The first version that reads a later format does not write it yet; the next version does."""
NAME_SIZE_MAX = 255
ATTEMPTS_MAX = 1_000
BACKOFFS_MAX = 64

Name: TypeAlias = Annotated[str, Meta(min_length=1, max_length=NAME_SIZE_MAX)]
QueueId: TypeAlias = Annotated[int, Meta(ge=0, le=INT32_MAX)]
Offset: TypeAlias = Annotated[int, Meta(ge=0, le=INT64_MAX)]
Key: TypeAlias = Annotated[int, Meta(ge=0, le=INT64_MAX)]
"""A hash of a message's ordering key. Messages of a queue with the same key wait for each other; 0 waits for none."""
Attempt: TypeAlias = Annotated[int, Meta(ge=0, le=INT32_MAX)]
"""The number of deliveries of a message."""


class Place(msgspec.Struct, frozen=True, array_like=True):
    """A queue of a group."""

    group: Name
    topic: Name
    queue_id: QueueId


class Flight(msgspec.Struct, frozen=True, array_like=True):
    """A message in flight, or waiting for its next attempt."""

    offset: Offset
    attempt: Attempt
    stamp: Offset
    """Stamp of the delivery: milliseconds since the epoch, larger with each delivery of the message. Handles have it.

    After a negative acknowledgement it is `until_ms` or more: no member has the message until then.
    """
    until_ms: Offset
    """When the message may be delivered again, in milliseconds since the epoch."""
    key: Key = 0

    def is_with_receiver(self, now_ms: int) -> bool:
        """Return whether a member has the message: it was not given back, and the member's time is not over."""
        return self.until_ms > max(now_ms, self.stamp)


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
"""RocketMQ's waits after failed attempts: its delay levels from the third on."""
ORDERED_BACKOFFS_MS = (1_000, 5_000, *BACKOFFS_MS)
"""RocketMQ's waits after failed attempts in an ordered group: all of its delay levels."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """The delivery policy of a group. Times are in milliseconds."""

    attempts_max: Annotated[int, Meta(ge=1, le=ATTEMPTS_MAX)] = 17
    """After so many failed attempts a message becomes a dead letter. RocketMQ's retryMaxTimes (16) plus the first."""
    backoffs_ms: Annotated[tuple[Annotated[int, Meta(ge=0, le=INT32_MAX)], ...], Meta(min_length=1)] = BACKOFFS_MS
    """The group's own waits. Either of RocketMQ's lists means that it has none. `waits_ms` has the effective waits."""
    invisible_ms: Annotated[int, Meta(ge=1, le=INT32_MAX)] = 60_000
    """The invisible time of a delivery, if the receive sets no other time."""
    is_ordered: bool = False
    """Whether messages with the same ordering key wait for each other."""
    from_end: bool = False
    """Whether a group that is new to a topic begins at the end of its present queues, not at their first messages."""
    is_paused: bool = False
    """Whether the group's deliveries are paused."""

    def __post_init__(self) -> None:
        """Refuse a policy with too many waits."""
        if len(self.backoffs_ms) > BACKOFFS_MAX:
            raise ValueError(f"backoffs_ms has {len(self.backoffs_ms)} entries, but may have {BACKOFFS_MAX}")

    @property
    def has_own_waits(self) -> bool:
        """Whether the group has waits that are not RocketMQ's."""
        return self.backoffs_ms not in (BACKOFFS_MS, ORDERED_BACKOFFS_MS)

    @property
    def waits_ms(self) -> tuple[int, ...]:
        """The waits after failed attempts by attempt, if no delay is requested. Later attempts have the last wait."""
        if self.has_own_waits:
            return self.backoffs_ms
        return ORDERED_BACKOFFS_MS if self.is_ordered else BACKOFFS_MS

    def backoff_ms(self, attempt: int) -> int:
        """Return the wait in milliseconds after so many attempts, from 1."""
        waits_ms = self.waits_ms
        return waits_ms[min(max(attempt, 1), len(waits_ms)) - 1]


class Took(msgspec.Struct, frozen=True, array_like=True, tag="took"):
    """Messages were delivered, and the group continues at `next`.

    Offsets below `next` that are neither in flight nor held are settled.
    """

    place: Place
    next: Offset
    flights: tuple[Flight, ...]
    held: tuple[tuple[Offset, Key], ...] = ()
    """Messages below `next` that are not delivered yet. They wait for a message in flight with the same key, or, also
    with key 0, for a member whose filter they pass.
    """


class Settled(msgspec.Struct, frozen=True, array_like=True, tag="settled"):
    """These messages are settled: acknowledged, given up, dead letters, replayed, or deleted from the log."""

    place: Place
    offsets: tuple[Offset, ...]


class Postponed(msgspec.Struct, frozen=True, array_like=True, tag="postponed"):
    """Messages may be delivered again at another time: a consumer extended the invisible time, or returned them."""

    place: Place
    flights: tuple[Flight, ...]


class Moved(msgspec.Struct, frozen=True, array_like=True, tag="moved"):
    """The group continues at `next`, and no message of the queue is in flight or held."""

    place: Place
    next: Offset


class PolicySet(msgspec.Struct, frozen=True, array_like=True, tag="policy"):
    """A group has this policy from here on. None: the group and all state of its queues are deleted."""

    group: Name
    policy: Policy | None


class Began(msgspec.Struct, frozen=True, array_like=True, tag="began"):
    """From here on only records of this process apply."""

    owner: Annotated[str, Meta(min_length=1, max_length=64)]


class Copied(msgspec.Struct, frozen=True, array_like=True, tag="copied"):
    """The state of a queue at the time of the write. It replaces the state that was read before."""

    place: Place
    next: Offset
    flights: tuple[Flight, ...]
    held: tuple[tuple[Offset, Key], ...]
    ahead: tuple[Offset, ...] = ()
    """Offsets from `next` on that are already settled."""


class CopyEdge(msgspec.Struct, frozen=True, array_like=True, tag="edge"):
    """A copy begins or ends here. All policies and queues were copied in between."""

    number: Offset
    is_end: bool


class DelaysDone(msgspec.Struct, frozen=True, array_like=True, tag="delays_done"):
    """These records of the timer topic are done: delivered, cancelled, appended again, or deleted from the log."""

    offsets: tuple[Offset, ...]


class DelaysCopied(msgspec.Struct, frozen=True, array_like=True, tag="delays_copied"):
    """A part of the state of the timer topic at the time of the write. It adds to the parts that were read before."""

    low: Offset
    """All records below this offset are done."""
    start: Offset
    """The offset of the first bit."""
    bits: bytes
    """A bit for each offset, set if its record is done. The lowest bit of a byte is first. Compressed with zlib."""


class TimeBehind(msgspec.Struct, frozen=True, array_like=True, tag="time"):
    """From here on the times of flights are behind store times by `behind_ms`, because the log's time jumped ahead."""

    behind_ms: Offset


Event: TypeAlias = (
    Took | Settled | Postponed | Moved | PolicySet | Began | Copied | CopyEdge | DelaysDone | DelaysCopied | TimeBehind
)


class DeliveryRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Events, in their order."""

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
"""All formats that this version reads. A new event or field gets a new format, with its own decoder."""
