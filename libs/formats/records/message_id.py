# SPDX-License-Identifier: Apache-2.0
"""The two ids of a message. Spec: docs/formats/message_ids.md.

The offset id says where the record lies (store host and physical offset); the unique id is made by the client, stored
as the property UNIQ_KEY, and only indexed by the store.
"""

import binascii
import struct
from dataclasses import dataclass

from libs.formats.errors import BadField, BadLength
from libs.formats.records.host import HOST_IPV4_SIZE_BYTES, HOST_IPV6_SIZE_BYTES, IPV4_SIZE_BYTES, IPV6_SIZE_BYTES, Host

PHYSICAL_OFFSET = struct.Struct(">q")
UNIQUE_TAIL = struct.Struct(">HiiH")  # process id, class loader hash, milliseconds of the month, counter

OFFSET_ID_IPV4_DIGIT_COUNT = 2 * (HOST_IPV4_SIZE_BYTES + PHYSICAL_OFFSET.size)
OFFSET_ID_IPV6_DIGIT_COUNT = 2 * (HOST_IPV6_SIZE_BYTES + PHYSICAL_OFFSET.size)
UNIQUE_ID_IPV4_DIGIT_COUNT = 2 * (IPV4_SIZE_BYTES + UNIQUE_TAIL.size)
UNIQUE_ID_IPV6_DIGIT_COUNT = 2 * (IPV6_SIZE_BYTES + UNIQUE_TAIL.size)
assert (OFFSET_ID_IPV4_DIGIT_COUNT, OFFSET_ID_IPV6_DIGIT_COUNT) == (32, 56)
assert (UNIQUE_ID_IPV4_DIGIT_COUNT, UNIQUE_ID_IPV6_DIGIT_COUNT) == (32, 56)


@dataclass(frozen=True, slots=True)
class UniqueId:
    """The parts of a unique id. `month_time_ms` counts from the first day of the month, 00:00 local time."""

    address: bytes
    process_id: int
    class_loader_hash: int
    month_time_ms: int
    counter: int


def encode_offset_id(host: Host, physical_offset: int) -> str:
    """32 (IPv4) or 56 (IPv6) upper-case hexadecimal digits."""
    assert physical_offset >= 0
    return (host.to_bytes() + PHYSICAL_OFFSET.pack(physical_offset)).hex().upper()


def decode_offset_id(text: str) -> tuple[Host, int]:
    """Store host and physical offset; raises BadLength or BadField. Lower-case digits are accepted."""
    raw = _unhex(text, OFFSET_ID_IPV4_DIGIT_COUNT, OFFSET_ID_IPV6_DIGIT_COUNT)
    host = Host.from_bytes(raw, is_ipv6=len(text) == OFFSET_ID_IPV6_DIGIT_COUNT)
    physical_offset = PHYSICAL_OFFSET.unpack(raw[-PHYSICAL_OFFSET.size :])[0]
    if physical_offset < 0:
        raise BadField(position=len(text) - 16, reason="the physical offset is negative", field="physical offset")
    return host, physical_offset


def make_unique_id(address: bytes, *, process_id: int, class_loader_hash: int, month_time_ms: int, counter: int) -> str:
    """A unique id as MessageClientIDSetter makes it; process id and counter keep their low 16 bits.

    A clock that runs back by less than 1,000 seconds over the start of the month gives 0, as in RocketMQ.
    """
    assert len(address) in (IPV4_SIZE_BYTES, IPV6_SIZE_BYTES)
    assert -1_000_000 < month_time_ms < 2**31
    tail = UNIQUE_TAIL.pack(process_id & 0xFFFF, class_loader_hash, max(0, month_time_ms), counter & 0xFFFF)
    return (address + tail).hex().upper()


def decode_unique_id(text: str) -> UniqueId:
    """The parts of a unique id; raises BadLength or BadField. Ids of other clients may look different."""
    raw = _unhex(text, UNIQUE_ID_IPV4_DIGIT_COUNT, UNIQUE_ID_IPV6_DIGIT_COUNT)
    return UniqueId(raw[: -UNIQUE_TAIL.size], *UNIQUE_TAIL.unpack(raw[-UNIQUE_TAIL.size :]))


def _unhex(text: str, *digit_counts: int) -> bytes:
    if len(text) not in digit_counts:
        raise BadLength(position=0, reason=f"{len(text)} characters, not {' or '.join(map(str, digit_counts))}")
    try:
        return binascii.unhexlify(text)
    except ValueError:
        position = next((i for i, c in enumerate(text) if c not in "0123456789abcdefABCDEF"), 0)
        raise BadField(position=position, reason="not a hexadecimal digit", field="message id") from None
