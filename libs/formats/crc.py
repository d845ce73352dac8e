# SPDX-License-Identifier: Apache-2.0
"""Checksums: RocketMQ's masked CRC-32, its reversed decimal property, and CRC-32C for Reput's own files.

RocketMQ clears the top bit of a CRC-32, so plain zlib.crc32 equals it only for half of all data.
Spec: docs/formats/commit_log.md sections 6 and 7; docs/formats/reput_files.md section 1.
"""

from __future__ import annotations

import re
import zlib
from typing import TYPE_CHECKING

import crcmod.predefined
from isal import isal_zlib

from libs.formats.errors import BadChecksum
from libs.formats.limits import CRC_PROPERTY_SIZE_BYTES

if TYPE_CHECKING:
    from libs.formats.buffers import ReadableBuffer

CRC_MASK = 0x7FFFFFFF
CRC_PROPERTY_NAME = b"__CRC32#"
CRC_PROPERTY_PREFIX = CRC_PROPERTY_NAME + b"\x01"
CRC_DIGIT_COUNT = 10
_CRC_PROPERTY = re.compile(CRC_PROPERTY_PREFIX + rb"([0-9]{%d})\x02" % CRC_DIGIT_COUNT)
assert len(CRC_PROPERTY_PREFIX) + CRC_DIGIT_COUNT + 1 == CRC_PROPERTY_SIZE_BYTES
assert len(str(CRC_MASK)) == CRC_DIGIT_COUNT

_crc32c = crcmod.predefined.mkPredefinedCrcFun("crc-32c")
assert _crc32c(b"123456789") == 0xE3069283


def crc32(data: ReadableBuffer) -> int:
    """Return all 32 bits of zlib's CRC-32. ISA-L computes it, which is many times as fast as zlib."""
    return isal_zlib.crc32(data)


def body_crc(data: ReadableBuffer) -> int:
    """Return the CRC-32 with the top bit cleared, for BODYCRC and the CRC property. It is 0 without bytes."""
    return zlib.crc32(data) & CRC_MASK


def crc_property(crc: int) -> bytes:
    """Return the 20 bytes at the end of a record: name, 0x01, ten digits (least significant first), 0x02."""
    assert 0 <= crc <= CRC_MASK
    return CRC_PROPERTY_PREFIX + f"{crc:0{CRC_DIGIT_COUNT}d}"[::-1].encode("ascii") + b"\x02"


def crc_property_value(raw: bytes, *, position: int = 0) -> int:
    """Return the CRC in these 20 bytes. Raises BadChecksum at `position` if they are no CRC property."""
    match = _CRC_PROPERTY.fullmatch(raw)
    if match is None:
        raise BadChecksum(position=position, reason="the CRC property is not well formed", field="CRC property")
    return int(match[1][::-1])


def crc32c(data: ReadableBuffer) -> int:
    """Return the CRC-32C (Castagnoli) of these bytes, 0 to 2**32 - 1."""
    return int(_crc32c(data))
