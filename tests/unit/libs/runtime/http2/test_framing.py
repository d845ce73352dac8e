# SPDX-License-Identifier: Apache-2.0
"""gRPC's messages in the bytes of a stream, with any boundaries of the pieces."""

import random
import zlib

import grpc
import pytest

from libs.runtime.http2.framing import IDENTITY, CallRefused, MessageReader, check_encoding, framed

LIMIT = 1_000
GOLDEN = bytes.fromhex("00 00000003 616263") + bytes.fromhex("00 00000000") + bytes.fromhex("00 00000001 64")
"""Three messages: abc, an empty message, d."""


class Reader(MessageReader):
    """A reader that keeps the sizes that it asked for."""

    def __init__(self, encoding: bytes = IDENTITY) -> None:
        super().__init__(encoding, LIMIT)
        self.admitted: list[int] = []

    def take(self, data: bytes) -> list[bytes]:
        """The messages that end in these bytes."""
        return self.feed(data, self.admitted.append)


def packed(data: bytes, *, flag: int = 1) -> bytes:
    return bytes([flag]) + len(data).to_bytes(4, "big") + data


def frame(message: bytes) -> bytes:
    return b"".join(framed(message))


def test_the_bytes_of_messages() -> None:
    """A flag, four bytes of size in network order, the message; a large message is the same object."""
    large = bytes(1 << 20)
    assert framed(large) == (b"\0\0\x10\0\0", large)
    assert framed(large)[1] is large
    assert b"".join(frame(message) for message in (b"abc", b"", b"d")) == GOLDEN
    assert Reader().take(GOLDEN) == [b"abc", b"", b"d"]


def test_messages_cut_anywhere(chance: random.Random) -> None:
    """The same messages come out of any pieces, each as soon as its last byte is there."""
    for _ in range(200):
        messages = [chance.randbytes(chance.choice([0, 1, 4, 5, 6, 300])) for _ in range(chance.randint(1, 6))]
        stream = b"".join(map(frame, messages))
        found, split, at = [], Reader(), 0
        while at < len(stream):
            size = chance.choice([1, 2, 4, 5, 6, 50, 1_000])
            found += split.take(stream[at : at + size])
            at += size
            whole = sum(1 for count in range(len(messages)) if len(b"".join(map(frame, messages[: count + 1]))) <= at)
            assert len(found) == whole
        assert found == messages
        assert split.is_between


def test_a_size_is_admitted_before_its_bytes_come() -> None:
    """The size of a message, prefix included, is admitted once if bytes are missing.

    The size of a message that is complete at once is not admitted.
    """
    split = Reader()
    split.take(frame(b"x" * 10))
    assert split.admitted == []
    for byte in frame(b"y" * 20)[:-1]:
        assert split.take(bytes([byte])) == []
    assert split.admitted == [25]
    assert not split.is_between
    assert split.take(b"y" + frame(b"z")) == [b"y" * 20, b"z"]


@pytest.mark.parametrize("piece_bytes", [5, 6, 2_000])
def test_a_message_above_the_limit(piece_bytes: int) -> None:
    """A message above the limit is refused as soon as its prefix has arrived."""
    data = frame(b"x" * (LIMIT + 1))
    with pytest.raises(CallRefused, match="has 1001 bytes, the limit is 1000") as caught:
        Reader().take(data[:piece_bytes])
    assert caught.value.code is grpc.StatusCode.RESOURCE_EXHAUSTED


@pytest.mark.parametrize(("encoding", "bits"), [(b"gzip", 31), (b"deflate", 15)])
def test_compressed_messages(encoding: bytes, bits: int) -> None:
    """Compressed and plain messages may follow each other in a stream with an encoding."""
    stream = zlib.compressobj(wbits=bits)
    data = stream.compress(b"abc" * 100) + stream.flush()
    assert Reader(encoding).take(packed(data) + frame(b"plain")) == [b"abc" * 100, b"plain"]


@pytest.mark.parametrize(
    ("data", "encoding", "text"),
    [
        (packed(b"x"), IDENTITY, "grpc-encoding is not set"),
        (packed(b"xx", flag=2), b"gzip", "can't be decompressed"),
        (packed(b"xx"), b"gzip", "can't be decompressed"),
        (packed(zlib.compress(b"x" * 50)[:-2]), b"deflate", "not whole"),
        (packed(zlib.compress(b"\0" * 5_000_000)[:900]), b"deflate", "has 1001 bytes, the limit is 1000"),
    ],
)
def test_compressed_messages_that_are_refused(data: bytes, encoding: bytes, text: str) -> None:
    """Damaged messages, and messages that would become too large."""
    with pytest.raises(CallRefused, match=text):
        Reader(encoding).take(data)


def test_an_encoding_that_is_not_known() -> None:
    """The error lists the known encodings."""
    check_encoding(b"gzip")
    with pytest.raises(CallRefused, match="'zstd' is not known here, but identity,gzip,deflate are") as caught:
        check_encoding(b"zstd")
    assert caught.value.code is grpc.StatusCode.UNIMPLEMENTED
