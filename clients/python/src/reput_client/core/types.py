# SPDX-License-Identifier: Apache-2.0
"""Values of the API: messages to send, stored messages, results, topics, queues and groups.

Times are accepted as aware datetimes or as milliseconds since the epoch, and returned as both.
"""

import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from enum import IntEnum
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from google.protobuf.timestamp_pb2 import Timestamp
from reput.common.v1 import message_pb2

from reput_client.core.compression import BODY_SIZE_BYTES_MAX, COMPRESSED_FLAG, inflate
from reput_client.core.errors import DataLossError

TimeLike: TypeAlias = datetime | int
"""An aware datetime, or milliseconds since the epoch."""
PLAUSIBLE_MS_MIN = 10**11
"""3 March 1973 as milliseconds, the year 5138 as seconds."""
TIME_MS_MAX = 253_402_300_799_999
"""The last millisecond of the year 9999; the store takes no later born time."""
_TIME_MS_MIN = -62_135_596_800_000
"""The first millisecond of the year 1."""
Place: TypeAlias = Literal["earliest", "latest"] | TimeLike
"""The first entry, the end, or the first entry at or after a time."""


class TopicQueue(NamedTuple):
    """A queue of a topic, as consumers name it. A plain tuple of the same values also works."""

    topic: str
    queue_id: int


Selection: TypeAlias = str | tuple[str, int]
"""Queues of a consumer: all queues of a topic, or a single queue."""


class Durability(IntEnum):
    """The durability of a stored message: in memory, on local disk, or replicated. DEFAULT is the store's choice."""

    @classmethod
    def _missing_(cls, value: object) -> "Durability | None":
        """Return DEFAULT for a level that this client does not know yet. See Enum."""
        return cls.DEFAULT if isinstance(value, int) else None

    DEFAULT = message_pb2.DURABILITY_UNSPECIFIED
    MEMORY = message_pb2.DURABILITY_MEMORY
    LOCAL_DISK = message_pb2.DURABILITY_LOCAL_DISK
    REPLICATED = message_pb2.DURABILITY_REPLICATED


class PullStatus(IntEnum):
    """The result of a pull, with the names of RocketMQ's store."""

    FOUND = 1
    NO_MATCHED_MESSAGE = 2
    MESSAGE_WAS_REMOVING = 3
    NO_MATCHED_LOGIC_QUEUE = 4
    NO_MESSAGE_IN_QUEUE = 5
    OFFSET_TOO_SMALL = 6
    OFFSET_OVERFLOW_ONE = 7
    OFFSET_OVERFLOW_BADLY = 8
    OFFSET_FOUND_NULL = 9


@dataclass(slots=True)
class NewMessage:
    """A message to send.

    `keys` is a key or several keys; a key has no space. With `queue_id` None the store chooses the queue: by
    `sharding_key` if it is given, otherwise round robin. With `unique_id` None the producer makes a unique id. With
    `born_time_ms` None the born time is now.
    A `delay_level` from 1 on delays it: consumers get it after 1 s, 5 s, 10 s, 30 s, 1 to 10 min, 20 min, 30 min, 1 h
    and 2 h (levels 1 to 18 unless the store has others). Until then it waits in SCHEDULE_TOPIC_XXXX.
    `deliver_at` (an aware datetime, or milliseconds since the epoch) and `delay_s` delay it up to 40 days: it is
    delivered at this time, not before. `client.delayed` lists such messages and cancels them.
    `property_string` is the fast way: RocketMQ's own `name 0x01 value 0x02 …` in UTF-8, sent as it is. Then tag, keys,
    properties, sharding_key, unique_id and delays are ignored.
    """

    topic: str
    body: bytes | bytearray | memoryview
    tag: str | None = None
    keys: str | Sequence[str] = ()
    properties: Mapping[str, str] = field(default_factory=dict)
    queue_id: int | None = None
    sharding_key: str | None = None
    unique_id: str | None = None
    flag: int = 0
    born_time_ms: int | None = None
    property_string: bytes | None = None
    delay_level: int = 0
    deliver_at: TimeLike | None = None
    delay_s: float | None = None


class SendResult(NamedTuple):
    """The place of a stored message, and its durability when the store answered.

    For a delayed message it is the place where the message waits.
    """

    physical_offset: int
    queue_id: int
    queue_offset: int
    store_time_ms: int
    durability: Durability
    unique_id: str
    store_host: bytes
    """Address and port (4 bytes) of the store, as in the message's record."""

    @property
    def offset_message_id(self) -> str:
        """The id of the record's place: store host and physical offset in hexadecimal."""
        return (self.store_host + self.physical_offset.to_bytes(8)).hex().upper()


if TYPE_CHECKING:
    V_co = TypeVar("V_co", covariant=True)

    class _Shown(Generic[V_co]):
        """A read-only property, for type checkers."""

        def __get__(self, message: object, owner: type) -> V_co: ...


def _field(name: str, text: str) -> Any:
    """Make a property of a Message that returns a field of the answer unchanged."""
    return property(attrgetter(f"_raw.{name}"), doc=text)


class Message:
    """A message as it is stored: a thin, read-only view of the answer. Properties are decoded when they are read."""

    __slots__ = ("_inflated", "_raw")

    topic: "_Shown[str]" = _field("topic", "Topic that it was appended to.")
    queue_id: "_Shown[int]" = _field("queue_id", "Queue within the topic, from 0.")
    queue_offset: "_Shown[int]" = _field("queue_offset", "Entry number in the queue, from 0.")
    physical_offset: "_Shown[int]" = _field("physical_offset", "Position of the record's first byte in the whole log.")
    raw_body: "_Shown[bytes]" = _field(
        "body", "The body as it is stored: still compressed if the producer compressed it (see `sys_flag`)."
    )
    raw_properties: "_Shown[bytes]" = _field(
        "raw_properties", "The property string as stored, only if it is not UTF-8; `properties` is empty then."
    )
    offset_message_id: "_Shown[str]" = _field("offset_message_id", "The id that names the record's place.")
    born_time_ms: "_Shown[int]" = _field("born_time_ms", "Milliseconds since the epoch by the producer's clock.")
    store_time_ms: "_Shown[int]" = _field("store_time_ms", "Milliseconds since the epoch by the store's clock.")
    flag: "_Shown[int]" = _field("flag", "Opaque flag of the producer.")
    sys_flag: "_Shown[int]" = _field("sys_flag", "RocketMQ's system flag.")
    reconsume_times: "_Shown[int]" = _field("reconsume_times", "How often consumers sent it back.")
    prepared_transaction_offset: "_Shown[int]" = _field(
        "prepared_transaction_offset",
        "Physical offset of the prepared message of a committed transaction, otherwise 0.",
    )
    record_size_bytes: "_Shown[int]" = _field("record_size_bytes", "Bytes of the whole record in the log.")

    def __init__(self, raw: message_pb2.StoredMessage) -> None:
        self._raw = raw
        self._inflated: bytes

    @property
    def body(self) -> bytes:
        """The body that the producer sent, inflated if its client compressed it. Raises as `inflate`, above 64 MiB."""
        raw = self._raw
        if not raw.sys_flag & COMPRESSED_FLAG:
            return raw.body
        try:
            return self._inflated
        except AttributeError:
            self._inflated = self.inflate()
            return self._inflated

    def inflate(self, size_bytes_max: int = BODY_SIZE_BYTES_MAX) -> bytes:
        """Return the body, inflated up to the limit `size_bytes_max`, which may differ from the limit of `body`.

        Raises BodyTooLargeError above the limit, BodyError for a body that can't be inflated, and ModuleNotFoundError
        if its compression needs a package that is not installed.
        """
        raw = self._raw
        if not raw.sys_flag & COMPRESSED_FLAG:
            return raw.body
        place = f"{raw.topic} queue {raw.queue_id} offset {raw.queue_offset}"
        return inflate(raw.body, raw.sys_flag, size_bytes_max=size_bytes_max, place=place)

    @property
    def properties(self) -> dict[str, str]:
        """All properties, as a new dictionary."""
        return dict(self._raw.properties)

    @property
    def tag(self) -> str | None:
        """The tag, None without a tag."""
        return self._raw.properties.get("TAGS")

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys, without the unique id. Only spaces separate them, so that other white space is part of a key."""
        return tuple(filter(None, self._raw.properties.get("KEYS", "").split(" ")))

    @property
    def unique_id(self) -> str | None:
        """The unique id, None without a unique id."""
        return self._raw.properties.get("UNIQ_KEY")

    @property
    def born_time(self) -> datetime:
        """The born time by the producer's clock, in UTC, at most the end of the year 9999."""
        return from_ms(self._raw.born_time_ms)

    @property
    def store_time(self) -> datetime:
        """The store time by the store's clock, in UTC."""
        return from_ms(self._raw.store_time_ms)

    @property
    def born_host(self) -> str:
        """address:port of the producer."""
        return host_text(self._raw.born_host)

    @property
    def store_host(self) -> str:
        """address:port of the store."""
        return host_text(self._raw.store_host)

    def __repr__(self) -> str:
        place = f"{self.topic!r}, queue_id={self.queue_id}, queue_offset={self.queue_offset}"
        return f"Message({place}, physical_offset={self.physical_offset}, body={len(self.raw_body)} bytes)"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and self._raw == other._raw

    def __hash__(self) -> int:
        return hash((self._raw.physical_offset, self._raw.topic, self._raw.queue_id, self._raw.queue_offset))


class PullResult(NamedTuple):
    """The messages of a pull, and the queue offset to continue at. `max_queue_offset` is exclusive."""

    status: PullStatus
    messages: list[Message]
    next_queue_offset: int
    min_queue_offset: int
    max_queue_offset: int


class KeyMessages(NamedTuple):
    """A key and its messages, newest first. With an `error` they could not be read, and may exist."""

    key: str
    messages: list[Message]
    error: DataLossError | None = None


class QueuePlace(NamedTuple):
    """A queue of a topic, and the name of its shard."""

    shard: str
    queue_id: int


class QueueRange(NamedTuple):
    """A queue of a topic on several shards. It has the keys whose hash is `first_hash` to `last_hash`.

    The hash of a key is the first four bytes of the SHA-256 of its UTF-8 text, the highest byte first. A sealed queue
    takes no messages any more; `parents` are the sealed queues that had the keys before.
    """

    queue_id: int
    first_hash: int
    last_hash: int
    is_sealed: bool = False
    parents: tuple[QueuePlace, ...] = ()


class ChildQueue(NamedTuple):
    """A queue that a change opens."""

    place: QueuePlace
    first_hash: int
    last_hash: int


class ShareChange(NamedTuple):
    """A change of a topic's queues that is under way: the parents are sealed, then the children open."""

    version: int
    parents: tuple[QueuePlace, ...]
    children: tuple[ChildQueue, ...]


class TopicShare(NamedTuple):
    """The queues that a shard has of a topic on several shards, by number. `version` grows with each change."""

    version: int
    queues: tuple[QueueRange, ...]
    change: ShareChange | None = None


class Topic(NamedTuple):
    """A topic. `is_system` marks a topic that the store itself needs. `set_apart` says why only RocketMQ uses it.

    A retention of 0 is no rule of its own. Without a `share` the whole topic is here.
    """

    name: str
    read_queue_count: int
    write_queue_count: int
    is_readable: bool
    is_writable: bool
    is_system: bool
    set_apart: str = ""
    retention_hours: int = 0
    retention_bytes: int = 0
    share: TopicShare | None = None


class Queue(NamedTuple):
    """A queue and its bounds. `max_queue_offset` is exclusive. The times are None if unknown or not wanted."""

    topic: str
    queue_id: int
    min_queue_offset: int
    max_queue_offset: int
    first_store_time: datetime | None
    last_store_time: datetime | None


class ConsumerOffset(NamedTuple):
    """The next offset of a group in a queue, and the number of entries between it and the queue's end (`lag`)."""

    topic: str
    queue_id: int
    queue_offset: int
    lag: int = 0


class ConsumerGroup(NamedTuple):
    """A consumer group with its offsets by topic and queue id."""

    name: str
    offsets: tuple[ConsumerOffset, ...]


def check_place(place: Place) -> None:
    """Raise ValueError for a word that is not a place, and for a time as `to_ms` does."""
    if not isinstance(place, str):
        to_ms(place)
    elif place not in ("earliest", "latest"):
        raise ValueError(f"{place!r} is not a place: use 'earliest', 'latest' or a time")


def check_queue_offset(queue_offset: int) -> None:
    """Raise TypeError or ValueError for an invalid queue offset."""
    if not isinstance(queue_offset, int):
        raise TypeError(f"queue_offset is {queue_offset!r}: expected an int")
    if queue_offset < 0:
        raise ValueError(f"queue_offset is {queue_offset}, but queues begin at 0")


def to_ms(time: TimeLike) -> int:
    """Return milliseconds since the epoch.

    Raises ValueError for a naive datetime, whose meaning differs between machines. Raises ValueError for a number that
    would be a time of 1970 to 1973, which is most likely in seconds, and for a number behind the year 9999, which is
    most likely in microseconds or nanoseconds. Raises TypeError for a value that is not a time.
    """
    if isinstance(time, datetime):
        if time.tzinfo is None:
            raise ValueError(f"{time} has no time zone; use an aware datetime or milliseconds since the epoch")
        return (time - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)
    if not isinstance(time, int) or isinstance(time, bool):
        raise TypeError(f"{time!r} is no time: use an aware datetime or milliseconds since the epoch")
    if 0 < time < PLAUSIBLE_MS_MIN:
        raise ValueError(
            f"{time} looks like seconds: use milliseconds since the epoch ({time}000) or an aware datetime"
        )
    if time > TIME_MS_MAX:
        raise ValueError(f"{time} is behind the year 9999: {_smaller_unit(time)} or an aware datetime")
    return time


def check_born_time(born_time_ms: int) -> None:
    """Raise TypeError or ValueError for an invalid born time."""
    if not isinstance(born_time_ms, int) or isinstance(born_time_ms, bool):
        raise TypeError(f"born_time_ms is {born_time_ms!r}: expected an int")
    if not 0 <= born_time_ms <= TIME_MS_MAX:
        raise ValueError(f"born_time_ms is {born_time_ms}, and not 0 to {TIME_MS_MAX}: {_smaller_unit(born_time_ms)}")


def _smaller_unit(time: int) -> str:
    """Return a hint for a caller that gave microseconds or nanoseconds."""
    unit = "nanoseconds" if time >= 10**17 else "microseconds"
    guess = f"; it looks like {unit}" if 10**14 <= time < 10**20 else ""
    return f"use milliseconds since the epoch{guess}"


def from_ms(time_ms: int) -> datetime:
    """Return the time in UTC. A time outside the range of datetime becomes its first or last millisecond."""
    time_ms = min(max(time_ms, _TIME_MS_MIN), TIME_MS_MAX)
    return datetime.fromtimestamp(time_ms // 1000, UTC).replace(microsecond=time_ms % 1000 * 1000)


def to_timestamp(time: TimeLike | None) -> Timestamp | None:
    """Return a Timestamp for a request. None stays absent."""
    if time is None:
        return None
    time_ms = to_ms(time)
    return Timestamp(seconds=time_ms // 1000, nanos=time_ms % 1000 * 1_000_000)


def host_text(host: message_pb2.Host) -> str:
    """Return address:port, with IPv6 in brackets, "" without an address."""
    if not host.address:
        return ""
    address = ipaddress.ip_address(host.address)
    return f"[{address}]:{host.port}" if address.version == 6 else f"{address}:{host.port}"
