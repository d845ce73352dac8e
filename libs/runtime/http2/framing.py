# SPDX-License-Identifier: Apache-2.0
"""gRPC's messages in the bytes of a stream: a prefix of five bytes, a flag and a size, and then the message.

Source: PROTOCOL-HTTP2.md of gRPC, "Length-Prefixed-Message". No I/O.
Invariants: no memory is reserved for a message before its size was admitted; a compressed message never becomes larger
than the limit; the parts of a message are joined once.
"""

import zlib
from collections.abc import Callable, Sequence
from typing import Final

import grpc

PREFIX_SIZE_BYTES: Final = 5
COPIED_BYTES_MAX: Final = 16 << 10
"""Up to this size, a copy costs less than another piece."""

IDENTITY: Final = b"identity"
_WINDOW_BITS: Final = {b"gzip": 31, b"deflate": 15}
ENCODINGS: Final = b"identity,gzip,deflate"
"""The accepted compressions, for the header that announces them."""


class CallRefused(Exception):
    """A call that violates gRPC's own rules, or exceeds the room for calls. No servicer sees it."""

    def __init__(self, code: grpc.StatusCode, text: str, metadata: Sequence[tuple[str, str | bytes]] = ()) -> None:
        super().__init__(text)
        self.code = code
        self.metadata = metadata


class MessageTooLarge(CallRefused):
    """A message of a request has more bytes than any method takes."""

    def __init__(self, size_bytes: int, size_bytes_max: int) -> None:
        text = f"the message has {size_bytes} bytes, the limit is {size_bytes_max}"
        super().__init__(grpc.StatusCode.RESOURCE_EXHAUSTED, text)
        self.size_bytes, self.size_bytes_max = size_bytes, size_bytes_max


class TooManyCalls(CallRefused):
    """There is no room for another call."""

    def __init__(self, limit: int) -> None:
        super().__init__(grpc.StatusCode.RESOURCE_EXHAUSTED, f"too many calls are under way, the limit is {limit}")
        self.limit = limit


def framed(message: bytes) -> tuple[bytes, ...]:
    """Return a message with its prefix, in pieces: a large message is not copied."""
    prefix = b"\0" + len(message).to_bytes(PREFIX_SIZE_BYTES - 1, "big")
    return (prefix + message,) if len(message) <= COPIED_BYTES_MAX else (prefix, message)


class MessageReader:
    """The reader of the messages of a stream."""

    __slots__ = ("_encoding", "_is_compressed", "_missing_bytes", "_parts", "_prefix", "_size_bytes_max")

    def __init__(self, encoding: bytes, size_bytes_max: int) -> None:
        self._encoding = encoding
        self._size_bytes_max = size_bytes_max
        self._prefix = b""
        """The first bytes of a prefix that is incomplete."""
        self._parts: list[bytes] = []
        self._missing_bytes = 0
        """Bytes that still miss of the message whose prefix has arrived. `_parts` are its arrived bytes."""
        self._is_compressed = False

    @property
    def is_between(self) -> bool:
        """Whether no message is incomplete."""
        return not self._missing_bytes and not self._prefix

    def feed(self, data: bytes, admit: Callable[[int], None]) -> list[bytes]:
        """Return the messages that end in these bytes. Raises CallRefused, and the exceptions of `admit`.

        `admit` gets the size of each message that has not arrived completely, and may refuse it.
        """
        missing_bytes = self._missing_bytes
        if not missing_bytes:
            return self._split(data, [], admit)
        if len(data) < missing_bytes:
            self._parts.append(data)
            self._missing_bytes = missing_bytes - len(data)
            return []
        self._parts.append(data if len(data) == missing_bytes else data[:missing_bytes])
        message = self._plain(b"".join(self._parts))
        self._parts.clear()
        self._missing_bytes = 0
        return [message] if len(data) == missing_bytes else self._split(data[missing_bytes:], [message], admit)

    def _split(self, data: bytes, messages: list[bytes], admit: Callable[[int], None]) -> list[bytes]:
        """Append the messages in bytes that begin with a prefix, and keep the rest of the bytes."""
        if self._prefix:
            data, self._prefix = self._prefix + data, b""
        at, end = 0, len(data)
        while end - at >= PREFIX_SIZE_BYTES:
            size_bytes = self._begin(data, at)
            at += PREFIX_SIZE_BYTES
            if end - at < size_bytes:
                admit(PREFIX_SIZE_BYTES + size_bytes)
                if at < end:
                    self._parts.append(data[at:])
                self._missing_bytes = size_bytes - (end - at)
                return messages
            messages.append(self._plain(data[at : at + size_bytes]))
            at += size_bytes
        self._prefix = data[at:]
        return messages

    def _begin(self, data: bytes, at: int) -> int:
        """Read a prefix, and return the size of its message."""
        size_bytes = int.from_bytes(data[at + 1 : at + PREFIX_SIZE_BYTES], "big")
        if size_bytes > self._size_bytes_max:
            raise MessageTooLarge(size_bytes, self._size_bytes_max)
        self._is_compressed = data[at] != 0
        if self._is_compressed and self._encoding == IDENTITY:
            raise CallRefused(grpc.StatusCode.INTERNAL, "a message is compressed, and grpc-encoding is not set")
        return size_bytes

    def _plain(self, message: bytes) -> bytes:
        return decompressed(self._encoding, message, self._size_bytes_max) if self._is_compressed else message


def check_encoding(encoding: bytes) -> None:
    """Raise CallRefused for an unknown encoding."""
    if encoding != IDENTITY and encoding not in _WINDOW_BITS:
        text = f"grpc-encoding {encoding[:40].decode('latin-1')!r} is not known here, but {ENCODINGS.decode()} are"
        raise CallRefused(grpc.StatusCode.UNIMPLEMENTED, text)


def decompressed(encoding: bytes, data: bytes, size_bytes_max: int) -> bytes:
    """Return the decompressed message. Raises CallRefused if the message is damaged or too large."""
    stream = zlib.decompressobj(_WINDOW_BITS[encoding])
    try:
        message = stream.decompress(data, size_bytes_max + 1)
    except zlib.error as error:
        raise CallRefused(grpc.StatusCode.INTERNAL, f"the message can't be decompressed: {error}") from error
    if len(message) > size_bytes_max:
        raise MessageTooLarge(len(message), size_bytes_max)
    if not stream.eof:
        raise CallRefused(grpc.StatusCode.INTERNAL, "the compressed message is not whole")
    return message
