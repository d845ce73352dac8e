# SPDX-License-Identifier: Apache-2.0
"""Envelope of Reput's own files: snapshots and progress. Spec: docs/formats/reput_files.md section 1.

Magic, version, kind, payload size, CRC-32C, payload. The checksum covers all bytes but itself, so any changed bit is
found, and a file is never taken for a file of another kind. The version is the version of the payload: each kind has
its own versions.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, ClassVar, Self

import msgspec

from libs.formats.crc import crc32c
from libs.formats.errors import BadChecksum, BadField, BadLength, BadMagic, NewerVersion, Truncated
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


def wrap(kind: str, payload: bytes, *, version: int = VERSION) -> bytes:
    """Return the file with this payload. `kind` is 1 to 16 ASCII characters and names the type of the payload."""
    name = kind.encode("ascii")
    assert 0 < len(name) <= KIND_SIZE_BYTES_MAX
    assert len(payload) <= INT32_MAX
    covered = COVERED.pack(MAGIC, version, name, len(payload))
    return covered + CHECKSUM.pack(crc32c(covered + payload)) + payload


def unwrap(kind: str, data: ReadableBuffer, *, version: int = VERSION) -> bytes:
    """Return the payload of a file of this kind and version.

    Raises NewerVersion for a later version, and Truncated, BadMagic, BadLength, BadChecksum or BadField for damage.
    """
    found, found_version, payload = unwrap_any(data)
    if found != kind:
        raise BadField(position=8, reason=f"the file holds {found!r}, not {kind!r}", field="kind")
    if found_version > version:
        raise NewerVersion(f"the file of the kind {kind}", version=found_version, newest=version, position=4)
    if found_version != version:
        raise BadField(position=4, reason=f"version {found_version}", field="version")
    return payload


class JsonFile(msgspec.Struct, frozen=True):
    """The base class of a checksummed file whose payload is the fields of the class as JSON.

    KIND is the envelope's kind, VERSION the kind's version. A field that older programs must not ignore needs a new
    version.
    """

    KIND: ClassVar[str]
    VERSION: ClassVar[int] = VERSION

    def encode(self) -> bytes:
        """Return the file."""
        return wrap(self.KIND, msgspec.json.encode(self), version=self.VERSION)

    @classmethod
    def decode(cls, data: ReadableBuffer) -> Self:
        """Return the content of a file. Raises BadField if it is of another type, and the errors of `unwrap`."""
        try:
            return msgspec.json.decode(unwrap(cls.KIND, data, version=cls.VERSION), type=cls)
        except msgspec.DecodeError as error:
            raise BadField(position=HEADER_SIZE_BYTES, reason=str(error), field="content") from error


def unwrap_any(data: ReadableBuffer) -> tuple[str, int, bytes]:
    """Return kind, version and payload of a file. Raises Truncated, BadMagic, BadLength, BadChecksum or BadField."""
    raw = bytes(data)
    if len(raw) < HEADER_SIZE_BYTES:
        raise Truncated(position=len(raw), reason=f"the header takes {HEADER_SIZE_BYTES} bytes")
    magic, version, kind, size = COVERED.unpack_from(raw)
    if magic != MAGIC:
        raise BadMagic(position=0, reason=f"magic {magic!r}", field="magic")
    payload = raw[HEADER_SIZE_BYTES:]
    if size != len(payload):
        error = Truncated if size > len(payload) else BadLength
        raise error(position=24, reason=f"payload size {size}, {len(payload)} bytes follow", field="payload size")
    stored = CHECKSUM.unpack_from(raw, COVERED.size)[0]
    computed = crc32c(raw[: COVERED.size] + payload)
    if stored != computed:
        reason = f"CRC-32C is {stored:#010x}, the bytes have {computed:#010x}"
        raise BadChecksum(position=COVERED.size, reason=reason, field="checksum")
    if version < 1:
        raise BadField(position=4, reason=f"version {version}", field="version")
    return kind.rstrip(b"\0").decode("ascii", "replace"), version, payload
