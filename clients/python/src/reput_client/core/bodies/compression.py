# SPDX-License-Identifier: Apache-2.0
"""Compressed bodies: what RocketMQ's system flag says of one, and how far one may be inflated. No I/O."""

from typing import NamedTuple

import grpc

from reput_client.core.bodies.codecs import compress, decompressor
from reput_client.core.errors import BodyError, BodyTooLargeError

COMPRESSED_FLAG = 0x1
TYPE_MASK = 0x700
FLAGS = {"lz4": COMPRESSED_FLAG | 0x100, "zstd": COMPRESSED_FLAG | 0x200, "zlib": COMPRESSED_FLAG | 0x300}
"""System flags by codec."""
_CODECS = {flag & TYPE_MASK: codec for codec, flag in FLAGS.items()} | {0: "zlib"}
"""Codecs by type; RocketMQ's clients before 5.0 name none."""

BODY_SIZE_BYTES_MAX = 64 << 20
"""Most bytes that a body becomes unless the caller says otherwise; RocketMQ's clients send up to 4 MiB."""


class Compressor(NamedTuple):
    """How a producer compresses bodies from a size on."""

    codec: str
    threshold_bytes: int
    level: int

    def pack(self, body: bytes) -> tuple[bytes, int]:
        """Return the body to send and its system flag. What would not become smaller stays as it is."""
        if len(body) >= self.threshold_bytes:
            packed = compress(self.codec, body, self.level)
            if len(packed) < len(body):
                return packed, FLAGS[self.codec]
        return body, 0


def inflate(body: bytes, sys_flag: int, *, size_bytes_max: int, place: str) -> bytes:
    """Return what a compressed body was made of. `place` names the message.

    Raises BodyTooLargeError for more than `size_bytes_max`, BodyError for what can't be inflated, and
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
