# SPDX-License-Identifier: Apache-2.0
"""Connections that break HTTP/2 in every way: frames of all kinds, whole, harmed, misplaced and cut off.

Its random numbers alone decide the bytes of a connection. Some break a rule with every other frame, some say nearly all
as a client might, so that they get far enough to find something. Calls carry no valid token, so that methods of
services and operators refuse them. Names: RFC 9113 (frames), RFC 7541 (header blocks).
"""

from __future__ import annotations

import random
import socket
import struct
from collections import Counter
from collections.abc import Iterator, Sequence

from tests.attack.http2 import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PREFACE,
    RESET,
    SETTINGS,
    WINDOW_UPDATE,
    call_headers,
    frame,
    literal,
)

PRIORITY, PUSH_PROMISE, PING, GOAWAY = 2, 5, 6, 7
PADDED, PRIORITIZED = 8, 32
FRAME_COUNT_MAX = 60
EDGES = (0, 1, 2, 5, 8, 255, 16_383, 16_384, 65_535, 2**24 - 1, 2**31 - 1, 2**31, 2**32 - 1)
ODD_FIELDS = (
    ("grpc-timeout", "99999999999H"), ("grpc-timeout", "1n"), ("grpc-timeout", "-1S"), ("grpc-timeout", ""),
    ("grpc-encoding", "gzip"), ("grpc-encoding", "zstd"), ("content-length", "3"), ("x-bin", "%%%"), ("x-bin", "AA"),
    ("UPPER", "case"), (":path", "/twice"), (":odd", "x"), ("", "empty"), ("te", "gzip"), ("connection", "close"),
    ("authorization", "Bearer x"), ("traceparent", "00-x-y-z"), ("x", "\r\n"), ("x", "v" * 120), ("host", "x" * 120),
)  # fmt: skip
ODDNESSES = (0.0, 0.01, 0.05, 0.2, 0.6)
"""The wrong share of a connection's parts."""

CONNECT_S, READ_S = 5.0, 0.02
ANSWER_BYTES_MAX = 1 << 20


class Frames:
    """The bytes that a connection sends."""

    def __init__(self, chance: random.Random, paths: Sequence[str]) -> None:
        self._chance = chance
        self._paths = paths
        self._oddness = chance.choice(ODDNESSES)
        self._next = 1
        self._open: list[int] = []
        """Streams whose requests have not ended."""

    def pieces(self) -> Iterator[bytes]:
        """Yield it as it is sent, a piece at a time."""
        chance = self._chance
        yield chance.choice((b"", PREFACE[:9], b"GET / HTTP/1.1\r\n\r\n")) if self._is_odd(0.1) else PREFACE
        if not self._is_odd(0.1):
            yield frame(SETTINGS, 0, 0, self._setting() if self._is_odd() else b"")
        for _ in range(chance.randrange(1, FRAME_COUNT_MAX)):
            yield from self._sent(self._frame())

    def _sent(self, whole: bytes) -> Iterator[bytes]:
        """Yield a frame as it is, harmed, in two pieces, or not to its end."""
        at = self._chance.randrange(len(whole))
        if self._is_odd(0.3):
            yield whole[:at] + bytes([whole[at] ^ 1 << self._chance.randrange(8)]) + whole[at + 1 :]
        elif self._is_odd(0.1):
            yield whole[:at]
        elif self._chance.random() < 0.1:
            yield whole[:at]
            yield whole[at:]
        else:
            yield whole

    def _is_odd(self, share: float = 1.0) -> bool:
        return self._chance.random() < self._oddness * share

    def _frame(self) -> bytes:
        chance = self._chance
        if not self._is_odd():
            makers = (self._data, self._reset, self._call, self._ping) if self._open else (self._call,)
            return chance.choices(makers, (20, 1, 10, 1)[: len(makers)])[0]()
        odd = (
            self._block, self._reset, self._window, self._settings, self._ping, self._goodbye, self._priority,
            self._continuation, self._odd,
        )  # fmt: skip
        return chance.choice(odd)()

    def _data(self) -> bytes:
        stream, flags = self._stream(), self._flags(END_STREAM)
        self._note(stream, flags)
        return frame(DATA, flags, stream, self._message())

    def _note(self, stream: int, flags: int) -> None:
        """Remember whether the request of a stream continues."""
        self._open = [one for one in self._open if one != stream]
        if not flags & END_STREAM:
            self._open.append(stream)

    def _call(self) -> bytes:
        """Begin a call, of a new stream in most cases."""
        chance = self._chance
        stream, self._next = self._next, self._next + 2
        if self._is_odd(0.3):
            stream = self._stream()
        block = call_headers(chance.choice(self._paths))
        if self._is_odd():
            block += b"".join(literal(*chance.choice(ODD_FIELDS)) for _ in range(chance.randrange(1, 4)))
        flags = self._flags(END_HEADERS)
        self._note(stream, flags)
        return frame(HEADERS, flags, stream, block)

    def _block(self) -> bytes:
        """A header block of random bytes: indexes, sizes of tables, numbers without end."""
        return frame(HEADERS, self._flags(END_HEADERS | END_STREAM), self._stream(), self._bytes(200))

    def _message(self) -> bytes:
        """A message of gRPC, or bytes that are no message."""
        chance = self._chance
        body = self._bytes(300)
        size = self._edge() if self._is_odd() else len(body)
        return struct.pack(">BI", chance.choice((1, 2, 255)) if self._is_odd() else 0, size) + body

    def _reset(self) -> bytes:
        stream = self._stream()
        self._note(stream, END_STREAM)
        return frame(RESET, 0, stream, struct.pack(">I", self._edge()))

    def _window(self) -> bytes:
        return frame(WINDOW_UPDATE, 0, self._stream(), struct.pack(">I", self._edge()))

    def _settings(self) -> bytes:
        return frame(SETTINGS, self._chance.choice((0, 0, 1)), 0, self._setting() * self._chance.randrange(3))

    def _setting(self) -> bytes:
        return struct.pack(">HI", self._chance.randrange(9), self._edge())

    def _ping(self) -> bytes:
        return frame(PING, 0, 0, self._chance.randbytes(self._chance.choice((0, 7, 9)) if self._is_odd() else 8))

    def _goodbye(self) -> bytes:
        return frame(GOAWAY, 0, 0, struct.pack(">II", self._edge() & (2**31 - 1), self._edge()) + self._bytes(20))

    def _priority(self) -> bytes:
        return frame(PRIORITY, 0, self._stream(), struct.pack(">IB", self._stream(), 7))

    def _continuation(self) -> bytes:
        return frame(CONTINUATION, self._flags(END_HEADERS), self._stream(), self._bytes(60))

    def _odd(self) -> bytes:
        """A frame that no client sends, or of a kind that there is not."""
        kind = self._chance.choice((PUSH_PROMISE, 10, 99, 255))
        return frame(kind, self._chance.randrange(256), self._stream(), self._bytes(100))

    def _flags(self, usual: int) -> int:
        chance = self._chance
        if not self._is_odd():
            return usual if chance.random() < 0.6 else usual ^ END_STREAM
        return chance.choice((0, PADDED, PRIORITIZED, PADDED | PRIORITIZED | usual, 255))

    def _stream(self) -> int:
        """Return a stream: in most cases a begun stream, else an impossible stream."""
        chance = self._chance
        if self._open and not self._is_odd():
            return chance.choice(self._open)
        return chance.choice((0, 1, 2, self._next, self._next + 1, self._next + 100, 2**31 - 1))

    def _edge(self) -> int:
        return self._chance.choice(EDGES)

    def _bytes(self, most: int) -> bytes:
        return self._chance.randbytes(self._chance.randrange(most))


def say(target: str, pieces: Iterator[bytes], *, is_rude: bool) -> Counter[str]:
    """Send all pieces on a new connection, then read the answer for a moment. Returns counts of the outcome, by name.

    A rude connection closes without a word.
    """
    host, port = target.rsplit(":", 1)
    try:
        connection = socket.create_connection((host, int(port)), CONNECT_S)
    except OSError:
        return Counter(unreached=1)
    counts = Counter(connections=1)
    with connection:
        connection.settimeout(READ_S)
        if is_rude:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        try:
            for piece in pieces:
                connection.sendall(piece)
                counts["pieces"] += 1
            while counts["bytes"] < ANSWER_BYTES_MAX and (answer := connection.recv(1 << 16)):
                counts["bytes"] += len(answer)
        except TimeoutError:
            counts["left"] += 1
        except OSError:
            counts["reset"] += 1
        else:
            counts["closed"] += 1
    return counts


def attack(target: str, paths: Sequence[str], seed: int, number: int) -> Counter[str]:
    """Run the connection of this number. Returns its outcome."""
    chance = random.Random(f"{seed}/{number}")
    return say(target, Frames(chance, paths).pieces(), is_rude=chance.random() < 0.3)
