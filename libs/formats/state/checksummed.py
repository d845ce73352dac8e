# SPDX-License-Identifier: Apache-2.0
"""Envelope of our own files: snapshots and progress. Spec: docs/formats/reput_files.md section 1.

Magic, version, kind, payload size, CRC-32C, payload. The checksum covers everything but itself, so a flip anywhere is
found, and a file of one kind is never taken for another.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, ClassVar, Self

import msgspec

from libs.formats.crc import crc32c
from libs.formats.errors import BadChecksum, BadField, BadLength, BadMagic, Truncated
from libs.formats.limits import INT32_MAX

if TYPE_CHECKING:
    from libs.formats.buffers import ReadableBuffer

MAGIC = b"RPUT"
VERSION = 1
KIND_SIZE_BYTES_MAX = 16
COVERED = struct.Struct(">4si16si")  # magic, version, kind, payload size
CHECKSUM = struct.Struct(">I")
HEADER_SIZE_BYTES = COVERED.size + CHECKSUM.size
assert HEADER_SIZE_BYTES == 32


def wrap(kind: str, payload: bytes) -> bytes:
    """Return the file with this payload. `kind` is 1 to 16 ASCII characters and says what the payload is."""
    name = kind.encode("ascii")
    assert 0 < len(name) <= KIND_SIZE_BYTES_MAX
    assert len(payload) <= INT32_MAX
    covered = COVERED.pack(MAGIC, VERSION, name, len(payload))
    return covered + CHECKSUM.pack(crc32c(covered + payload)) + payload


def unwrap(kind: str, data: ReadableBuffer) -> bytes:
    """Return the payload of a file of this kind. Raises Truncated, BadMagic, BadLength, BadChecksum or BadField."""
    found, payload = unwrap_any(data)
    if found != kind:
        raise BadField(position=8, reason=f"the file holds {found!r}, not {kind!r}", field="kind")
    return payload


class JsonFile(msgspec.Struct, frozen=True):
    """Base: a checksummed file whose payload is the fields of the class as JSON. KIND is the envelope's kind."""

    KIND: ClassVar[str]

    def encode(self) -> bytes:
        """Return the file."""
        return wrap(self.KIND, msgspec.json.encode(self))

    @classmethod
    def decode(cls, data: ReadableBuffer) -> Self:
        """Return what a file says. Raises BadField if its content is of another type, and what `unwrap` raises."""
        try:
            return msgspec.json.decode(unwrap(cls.KIND, data), type=cls)
        except msgspec.DecodeError as error:
            raise BadField(position=HEADER_SIZE_BYTES, reason=str(error), field="content") from error


def unwrap_any(data: ReadableBuffer) -> tuple[str, bytes]:
    """Return kind and payload of a file. Raises Truncated, BadMagic, BadLength or BadChecksum."""
    raw = bytes(data)
    if len(raw) < HEADER_SIZE_BYTES:
        raise Truncated(position=len(raw), reason=f"the header takes {HEADER_SIZE_BYTES} bytes")
    magic, version, kind, size = COVERED.unpack_from(raw)
    if magic != MAGIC:
        raise BadMagic(position=0, reason=f"magic {magic!r}", field="magic")
    if version != VERSION:
        raise BadMagic(position=4, reason=f"version {version}", field="version")
    payload = raw[HEADER_SIZE_BYTES:]
    if size != len(payload):
        error = Truncated if size > len(payload) else BadLength
        raise error(position=24, reason=f"payload size {size}, {len(payload)} bytes follow", field="payload size")
    stored = CHECKSUM.unpack_from(raw, COVERED.size)[0]
    computed = crc32c(raw[: COVERED.size] + payload)
    if stored != computed:
        reason = f"CRC-32C is {stored:#010x}, the bytes have {computed:#010x}"
        raise BadChecksum(position=COVERED.size, reason=reason, field="checksum")
    return kind.rstrip(b"\0").decode("ascii", "replace"), payload
