# SPDX-License-Identifier: Apache-2.0
"""Encoder: a message to send becomes the bytes of a `messages` entry of an append request.

A request then consists of such chunks in sequence, as protobuf writes a repeated field. A batch can be cut between any
two chunks without encoding the messages again.
"""

import itertools
import math
import os
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any

from reput.commitlog.v1.append_service_pb2 import AppendMessage, AppendStreamRequest, Writer
from reput.common.v1.message_pb2 import Durability as DurabilityLevel

from reput_client.core.compression import Compressor
from reput_client.core.errors import too_large
from reput_client.core.options import MESSAGE_SIZE_BYTES_MAX
from reput_client.core.speedups import PACKER, MakePacker
from reput_client.core.types import NewMessage, check_born_time, to_ms

CHUNK_SIZE_BYTES_MAX = MESSAGE_SIZE_BYTES_MAX - 1024
"""Most bytes of a message's chunk; the rest of the request is for its durability and writer."""
_MESSAGES_TAG = b"\x0a"
DELAY_S_MAX = 40 * 86_400
"""Longest delay that the store takes."""
NOTHING: Mapping[str, str] = {}


def request_end(durability: int, writer: Writer | None = None, *, needs_previous: bool = False) -> bytes:
    """Return the fields of a request that follow its messages."""
    level = DurabilityLevel.ValueType(durability)
    return AppendStreamRequest(durability=level, writer=writer, needs_previous=needs_previous).SerializeToString()


def chunk(message: AppendMessage) -> bytes:
    """Return a `messages` entry of a request."""
    payload = message.SerializeToString()
    return _MESSAGES_TAG + varint(len(payload)) + payload


class Encoder:
    """Encodes messages. Each producer has its own. Safe to call from any thread.

    `makes_unique_ids` gives a unique id to each message without a unique id. `makes_born_times` gives the current time
    to each message without a born time. Without both, and without a `compressor`, the same message gives the same
    bytes. `make_packer` is the compiled part.
    """

    def __init__(
        self,
        *,
        makes_unique_ids: bool,
        makes_born_times: bool = True,
        compressor: Compressor | None = None,
        make_packer: MakePacker | None = PACKER,
    ) -> None:
        self._compressor = compressor
        self._unique_ids = UniqueIds() if makes_unique_ids else None
        self._makes_born_times = makes_born_times
        self._packer = None
        if make_packer is not None and compressor is None:
            self._packer = make_packer(self._unique_ids, makes_born_times, CHUNK_SIZE_BYTES_MAX)

    def encode(self, message: NewMessage, carried: Mapping[str, str] = NOTHING) -> tuple[bytes, str]:
        """Encode a message. Returns the chunk and the unique id ("" if it has no unique id).

        `carried` are further properties. They are added to a message that has none of them and no property string.
        Raises ValueError or TypeError that names the field, and InvalidArgumentError (MESSAGE_TOO_LARGE) for a message
        that is larger than a request may be.
        """
        if type(message.topic) is not str or type(message.body) is not bytes:
            message = _as_sent(message)
        if self._packer is not None and not carried:
            packed = self._packer.pack(message)
            if packed is not None:
                return packed
        unique_id, now_ns = message.unique_id or message.properties.get("UNIQ_KEY", ""), time.time_ns()
        if not unique_id and message.property_string is None and self._unique_ids is not None:
            unique_id = self._unique_ids.next(now_ns)
        if (encoded_properties := message.property_string) is None:
            encoded_properties = property_string(_properties(message, unique_id, carried))
        born_time_ms = message.born_time_ms
        if born_time_ms is None:
            born_time_ms = now_ns // 1_000_000 if self._makes_born_times else 0
        else:
            check_born_time(born_time_ms)
        body: Any = message.body  # bytes by now
        sys_flag = 0
        if self._compressor is not None:
            body, sys_flag = self._compressor.pack(body)
        try:
            encoded = AppendMessage(
                topic=message.topic,
                queue_id=message.queue_id,
                body=body,
                property_string=encoded_properties,
                flag=message.flag,
                sys_flag=sys_flag,
                born_time_ms=born_time_ms,
            )
        except (TypeError, ValueError):
            _check_numbers(message)
            raise
        sent = chunk(encoded)
        if len(sent) > CHUNK_SIZE_BYTES_MAX:
            raise too_large(
                "MESSAGE_TOO_LARGE", "body", len(body), max(CHUNK_SIZE_BYTES_MAX - len(sent) + len(body), 0)
            )
        return sent, unique_id


def _as_sent(message: NewMessage) -> NewMessage:
    """Return a message whose body is bytes. Raises TypeError for a topic that is not a str or a body without bytes."""
    if not isinstance(message.topic, str):
        raise TypeError(f"topic is {message.topic!r}: expected a str")
    if not isinstance(message.body, bytes | bytearray | memoryview):
        hint = "; text has to be encoded first, as in text.encode()" if isinstance(message.body, str) else ""
        raise TypeError(f"body is of type {type(message.body).__name__}: expected bytes{hint}")
    return replace(message, topic=str(message.topic), body=bytes(message.body))


def _check_numbers(message: NewMessage) -> None:
    """Raise TypeError or ValueError that names the number that protobuf refuses."""
    for name in ("queue_id", "flag", "born_time_ms"):
        value = getattr(message, name)
        try:
            AppendMessage(**{name: value})
        except (TypeError, ValueError) as error:
            raise type(error)(f"{name} is {value!r}: {error}") from None


def _properties(message: NewMessage, unique_id: str, carried: Mapping[str, str]) -> dict[str, str]:
    """Return all properties of a message.

    Raises ValueError for invalid keys or an invalid delay, and for a field that is also given as a property.
    """
    properties = dict(message.properties)
    if message.tag is not None:
        _put(properties, "TAGS", message.tag, "tag")
    if message.keys:
        _put(properties, "KEYS", _joined(message.keys), "keys")
    if message.sharding_key is not None:
        _put(properties, "__SHARDINGKEY", message.sharding_key, "sharding_key")
    if message.delay_level < 0:
        raise ValueError(f"delay_level is {message.delay_level}, but levels begin at 1, and 0 is no delay")
    if message.delay_level:
        _put(properties, "DELAY", str(message.delay_level), "delay_level")
    if message.deliver_at is not None or message.delay_s is not None:
        _put_time(properties, message)
    if unique_id and properties.setdefault("UNIQ_KEY", unique_id) != unique_id:
        raise ValueError("unique_id and the property UNIQ_KEY are both given, and differ")
    if carried and properties.keys().isdisjoint(carried):
        properties.update(carried)
    return properties


def _put(properties: dict[str, str], name: str, value: str, field: str) -> None:
    if name in properties:
        raise ValueError(f"{field} and the property {name} are both given")
    properties[name] = value


def _put_time(properties: dict[str, str], message: NewMessage) -> None:
    """Put the delivery time of a message. Raises ValueError for more than a single delay, and for an invalid delay."""
    if bool(message.delay_level) + (message.deliver_at is not None) + (message.delay_s is not None) > 1:
        raise ValueError("a message has one of delay_level, deliver_at and delay_s")
    if message.deliver_at is not None:
        _put(properties, "TIMER_DELIVER_MS", str(to_ms(message.deliver_at)), "deliver_at")
    elif message.delay_s is not None:
        if not 0 <= message.delay_s <= DELAY_S_MAX:
            raise ValueError(f"delay_s is {message.delay_s}, but a delay is 0 to {DELAY_S_MAX} s (40 days)")
        _put(properties, "TIMER_DELAY_MS", str(math.ceil(message.delay_s * 1000)), "delay_s")


def _joined(keys: str | Sequence[str]) -> str:
    """Return the property of keys. Raises ValueError for a key that is empty or has spaces, TypeError for a non-str."""
    keys = (keys,) if isinstance(keys, str) else keys
    try:
        text = " ".join(keys)
    except TypeError:
        raise TypeError(f"keys is {keys!r}: expected a str, or several") from None
    if text.count(" ") != len(keys) - 1 or not all(keys):
        raise ValueError(f"keys {keys!r}: a key is not empty and has no space")
    return text


def property_string(properties: Mapping[str, str]) -> bytes:
    """Make RocketMQ's property string.

    Raises ValueError for a name or value that is empty or would change another property, TypeError for a non-str.
    """
    try:
        text = "\x02".join([*map("\x01".join, properties.items()), ""])
    except TypeError:
        name, value = next(pair for pair in properties.items() if not all(isinstance(part, str) for part in pair))
        raise TypeError(f"the property {name!r} is {value!r}: expected text") from None
    has_odd_name = "" in properties or (text.count("\x01") > len(properties) and "\x01" in "".join(properties))
    if has_odd_name or text.count("\x02") != len(properties):
        raise ValueError("a property name is empty or has a separator (0x01, 0x02), or a value has one (0x02)")
    if "" in properties.values():
        raise ValueError("a property value is empty")
    return text.encode()


@lru_cache(1024)
def varint(number: int) -> bytes:
    """Return a number as protobuf's base-128 integer.

    To make a request object that contains the message would take longer.
    """
    if number < 0x80:
        return bytes((number,))
    if number < 0x4000:
        return bytes((number & 0x7F | 0x80, number >> 7))
    return bytes((number & 0x7F | 0x80,)) + varint(number >> 7)


class UniqueIds:
    """Makes unique ids in RocketMQ's form: 32 hexadecimal digits of address, process, time in the month and a counter.

    Four random bytes replace the hash code of the class loader of RocketMQ's client. Layout: RocketMQ 5.3
    MessageClientIDSetter. Not safe across a fork: make a producer after the fork.
    """

    def __init__(self) -> None:
        prefix = _own_address() + (os.getpid() & 0xFFFF).to_bytes(2) + os.urandom(4)
        self.prefix = prefix.hex().upper()
        self.count = itertools.count()
        self._month_ns = 0, 0

    def next(self, now_ns: int) -> str:
        """Return a new id. `now_ns` is the time since the epoch."""
        start_ns, end_ns = self._month_ns
        if not start_ns <= now_ns < end_ns:
            start_ns, _ = self.month_of(now_ns)
        time_ms = (now_ns - start_ns) // 1_000_000 & 0xFFFFFFFF
        return f"{self.prefix}{time_ms << 16 | next(self.count) & 0xFFFF:012X}"

    def month_of(self, now_ns: int) -> tuple[int, int]:
        """Return the start and the end of the month that has a time, in local time, as RocketMQ's client does."""
        now = datetime.fromtimestamp(now_ns // 10**9).astimezone()
        first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        following = first.replace(year=first.year + first.month // 12, month=first.month % 12 + 1)
        self._month_ns = int(first.timestamp()) * 10**9, int(following.timestamp()) * 10**9
        return self._month_ns


def _own_address() -> bytes:
    """Return the IPv4 address of this machine's default route, random bytes without a route. Sends nothing."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))  # an address for documentation: only its route is used
            return socket.inet_aton(probe.getsockname()[0])
        except OSError:
            return os.urandom(4)
