# SPDX-License-Identifier: Apache-2.0
"""Compressed bodies: the compression in RocketMQ's system flag, and limits of inflating. No I/O."""

from typing import NamedTuple

import grpc

from reput_client.core.body_codecs import compress, decompressor
from reput_client.core.errors import BodyError, BodyTooLargeError

COMPRESSED_FLAG = 0x1
TYPE_MASK = 0x700
FLAGS = {"lz4": COMPRESSED_FLAG | 0x100, "zstd": COMPRESSED_FLAG | 0x200, "zlib": COMPRESSED_FLAG | 0x300}
"""System flags by codec."""
_CODECS = {flag & TYPE_MASK: codec for codec, flag in FLAGS.items()} | {0: "zlib"}
"""Codecs by compression type. RocketMQ's clients before 5.0 set no type, which means zlib."""

BODY_SIZE_BYTES_MAX = 64 << 20
"""Most bytes of an inflated body unless the caller gives a limit. RocketMQ's clients send up to 4 MiB."""


class Compressor(NamedTuple):
    """The compression of a producer, for bodies from `threshold_bytes` on."""

    codec: str
    threshold_bytes: int
    level: int

    def pack(self, body: bytes) -> tuple[bytes, int]:
        """Return the body to send and its system flag. A body that would not become smaller stays as it is."""
        if len(body) >= self.threshold_bytes:
            packed = compress(self.codec, body, self.level)
            if len(packed) < len(body):
                return packed, FLAGS[self.codec]
        return body, 0


def inflate(body: bytes, sys_flag: int, *, size_bytes_max: int, place: str) -> bytes:
    """Return the inflated body. `place` names the message in errors.

    Raises BodyTooLargeError if it has more than `size_bytes_max` bytes, BodyError if it can't be inflated, and
    ModuleNotFoundError if the library of its codec is missing.
    """
    codec = _CODECS.get(sys_flag & TYPE_MASK)
    if codec is None:
        raise _error(place, f"its compression type {(sys_flag & TYPE_MASK) >> 8} is none of RocketMQ's")
    container, damage = decompressor(codec)
    try:
        found = container.decompress(body, size_bytes_max + 1)
    except damage as error:
        raise _error(place, f"its {len(body)} bytes are no whole {codec} body: {error}") from None
    if len(found) > size_bytes_max:
        text = f"its {len(body)} bytes of {codec} become more than {size_bytes_max}; inflate() takes another limit"
        raise BodyTooLargeError(f"{place}: {text}", code=grpc.StatusCode.RESOURCE_EXHAUSTED)
    if not container.eof:
        raise _error(place, f"its {len(body)} bytes are no whole {codec} body: the end is missing")
    if container.unused_data:
        raise _error(place, f"{len(container.unused_data)} bytes lie behind the end of its {codec} body")
    return found


def _error(place: str, text: str) -> BodyError:
    return BodyError(f"{place}: {text}; raw_body has it as it is stored", code=grpc.StatusCode.DATA_LOSS)
