# SPDX-License-Identifier: Apache-2.0
"""gRPC's messages in the bytes of a stream: a prefix of five bytes, a flag and a size, and then the message.

Source: PROTOCOL-HTTP2.md of gRPC, "Length-Prefixed-Message". No I/O.
Invariants: nothing is set aside for a message before its size was admitted; a compressed one never becomes larger than
the limit; a message is put together once.
"""

import zlib
from collections.abc import Callable, Sequence
from typing import Final

import grpc

PREFIX_SIZE_BYTES: Final = 5
IDENTITY: Final = b"identity"
_WINDOW_BITS: Final = {b"gzip": 31, b"deflate": 15}
ENCODINGS: Final = b"identity,gzip,deflate"
"""What callers may compress with, for the header that tells them."""


class CallRefused(Exception):
    """A call that breaks gRPC's own rules, or that there is no room for. No servicer sees it."""

    def __init__(self, code: grpc.StatusCode, text: str, metadata: Sequence[tuple[str, str | bytes]] = ()) -> None:
        super().__init__(text)
        self.code = code
        self.metadata = metadata


def frame(message: bytes) -> bytes:
    """Return a message as it travels."""
    return b"\0" + len(message).to_bytes(4, "big") + message


class MessageReader:
    """The messages of one stream. `admit` hears of the size of each one that is not there yet, and may refuse it."""

    __slots__ = ("_admit", "_encoding", "_have_bytes", "_parts", "_size_bytes_max", "_want_bytes")

    def __init__(self, encoding: bytes, size_bytes_max: int, admit: Callable[[int], None]) -> None:
        self._encoding = encoding
        self._size_bytes_max = size_bytes_max
        self._admit = admit
        self._parts: list[bytes] = []
        self._have_bytes = 0
        self._want_bytes = PREFIX_SIZE_BYTES
        """Of the message that comes, its prefix included; of the prefix alone until it is there."""

    @property
    def is_between(self) -> bool:
        """Whether nothing of a message is there that has not ended."""
        return not self._have_bytes

    def feed(self, data: bytes) -> list[bytes]:
        """Return the messages that end in these bytes. Raises CallRefused, and what `admit` does."""
        if not self._have_bytes and len(data) >= PREFIX_SIZE_BYTES:
            if len(data) == self._whole_bytes(data):
                return [self._message(data)]
        elif self._have_bytes + len(data) < self._want_bytes:
            self._keep(data)
            return []
        return self._split(self._joined(data))

    def _split(self, data: bytes) -> list[bytes]:
        messages, at = [], 0
        while len(data) - at >= PREFIX_SIZE_BYTES:
            end = at + self._whole_bytes(data[at : at + PREFIX_SIZE_BYTES])
            if end > len(data):
                self._want_bytes = end - at
                self._admit(end - at)
                break
            messages.append(self._message(data[at:end]))
            at = end
        if at < len(data):
            self._keep(data[at:])
        return messages

    def _keep(self, data: bytes) -> None:
        self._parts.append(data)
        self._have_bytes += len(data)

    def _joined(self, data: bytes) -> bytes:
        if self._parts:
            self._parts.append(data)
            data = b"".join(self._parts)
            self._parts.clear()
        self._have_bytes, self._want_bytes = 0, PREFIX_SIZE_BYTES
        return data

    def _whole_bytes(self, prefix: bytes) -> int:
        size_bytes = int.from_bytes(prefix[1:PREFIX_SIZE_BYTES], "big")
        if size_bytes > self._size_bytes_max:
            text = f"the message has {size_bytes} bytes, the limit is {self._size_bytes_max}"
            raise CallRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        return PREFIX_SIZE_BYTES + size_bytes

    def _message(self, whole: bytes) -> bytes:
        if whole[0] == 0:
            return whole[PREFIX_SIZE_BYTES:]
        if self._encoding == IDENTITY:
            raise CallRefused(grpc.StatusCode.INTERNAL, "a message is compressed, and grpc-encoding is not set")
        return decompressed(self._encoding, whole[PREFIX_SIZE_BYTES:], self._size_bytes_max)


def check_encoding(encoding: bytes) -> None:
    """Raise CallRefused for an encoding that is not known."""
    if encoding != IDENTITY and encoding not in _WINDOW_BITS:
        text = f"grpc-encoding {encoding[:40].decode('latin-1')!r} is not known here, but {ENCODINGS.decode()} are"
        raise CallRefused(grpc.StatusCode.UNIMPLEMENTED, text)


def decompressed(encoding: bytes, data: bytes, size_bytes_max: int) -> bytes:
    """Return what was compressed. Raises CallRefused for what is damaged or too large."""
    stream = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        message = stream.decompress(data, size_bytes_max + 1)
    except zlib.error as error:
        raise CallRefused(grpc.StatusCode.INTERNAL, f"the message can't be decompressed: {error}") from error
    if len(message) > size_bytes_max:
        text = f"the message has more bytes than the limit, {size_bytes_max}, once it is decompressed"
        raise CallRefused(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
    if not stream.eof:
        raise CallRefused(grpc.StatusCode.INTERNAL, "the compressed message is not whole")
    return message
