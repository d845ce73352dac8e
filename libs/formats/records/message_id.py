# SPDX-License-Identifier: Apache-2.0
"""The offset id of a message: the place of its record. Spec: docs/formats/message_ids.md.

The other id is the unique id. The client makes it and it is stored as the property UNIQ_KEY. The store only indexes it.
"""

import binascii
import string
import struct

from libs.formats.errors import BadField, BadLength
from libs.formats.records.host import HOST_IPV4_SIZE_BYTES, HOST_IPV6_SIZE_BYTES, Host

PHYSICAL_OFFSET = struct.Struct(">q")

OFFSET_ID_IPV4_DIGIT_COUNT = 2 * (HOST_IPV4_SIZE_BYTES + PHYSICAL_OFFSET.size)
OFFSET_ID_IPV6_DIGIT_COUNT = 2 * (HOST_IPV6_SIZE_BYTES + PHYSICAL_OFFSET.size)
assert (OFFSET_ID_IPV4_DIGIT_COUNT, OFFSET_ID_IPV6_DIGIT_COUNT) == (32, 56)


def encode_offset_id(host: Host, physical_offset: int) -> str:
    """Return 32 (IPv4) or 56 (IPv6) upper-case hexadecimal digits."""
    assert physical_offset >= 0
    return (host.to_bytes() + PHYSICAL_OFFSET.pack(physical_offset)).hex().upper()


def decode_offset_id(text: str) -> tuple[Host, int]:
    """Return store host and physical offset. Lower-case digits are accepted. Raises BadLength or BadField."""
    if len(text) not in (OFFSET_ID_IPV4_DIGIT_COUNT, OFFSET_ID_IPV6_DIGIT_COUNT):
        raise BadLength(position=0, reason=f"{len(text)} characters, not 32 or 56")
    try:
        raw = binascii.unhexlify(text)
    except ValueError:
        position = next((i for i, c in enumerate(text) if c not in string.hexdigits), 0)
        raise BadField(position=position, reason="not a hexadecimal digit", field="message id") from None
    host = Host.from_bytes(raw, is_ipv6=len(text) == OFFSET_ID_IPV6_DIGIT_COUNT)
    physical_offset = PHYSICAL_OFFSET.unpack(raw[-PHYSICAL_OFFSET.size :])[0]
    if physical_offset < 0:
        raise BadField(position=len(text) - 16, reason="the physical offset is negative", field="physical offset")
    return host, physical_offset
