# SPDX-License-Identifier: Apache-2.0
"""Bare HTTP/2 for clients that behave like no gRPC library: take nothing, stop half-way, never end a header.

Enough of RFC 9113 to begin calls; nothing is read unless a test asks for it. Header fields are literals without
indexing (RFC 7541, 6.2.2) with values below 127 bytes.
"""

from __future__ import annotations

import socket
import struct
import time

DATA, HEADERS, RESET, SETTINGS, WINDOW_UPDATE, CONTINUATION = 0, 1, 3, 4, 8, 9
END_STREAM, END_HEADERS = 1, 4
INITIAL_WINDOW_SIZE = 4
FRAME_SIZE_BYTES_MAX = 16_384
CANCEL = 8
TIMEOUT_S = 10.0
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"


def frame(kind: int, flags: int, stream: int, payload: bytes = b"") -> bytes:
    """A frame."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def literal(name: str, value: str) -> bytes:
    """A header field."""
    return b"\0" + bytes([len(name)]) + name.encode() + bytes([len(value)]) + value.encode()


def call_headers(method: str, **more: str) -> bytes:
    """The header block of a gRPC call."""
    fields = {":method": "POST", ":scheme": "http", ":path": method, ":authority": "x", "te": "trailers"}
    return b"".join(literal(*field) for field in {**fields, "content-type": "application/grpc", **more}.items())


class Connection:
    """A connection whose streams get `window_bytes` of answers and no more, until the client reads."""

    def __init__(self, target: str, *, window_bytes: int = 65_535, **headers: str) -> None:
        host, port = target.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), TIMEOUT_S)
        self.socket.sendall(
            PREFACE
            + frame(SETTINGS, 0, 0, struct.pack(">HI", INITIAL_WINDOW_SIZE, window_bytes))
            + frame(SETTINGS, 1, 0)
        )
        self._next = 1
        self._headers = headers
        self._arrived = b""
        self._first_window = 65_535
        self._windows = {0: 65_535}
        """The bytes that the server lets us send, by stream; 0 is the whole connection."""

    def begin(self, method: str) -> int:
        """Send the headers of a call; its stream."""
        stream, self._next = self._next, self._next + 2
        self.socket.sendall(frame(HEADERS, END_HEADERS, stream, call_headers(method, **self._headers)))
        return stream

    def call(self, method: str, request: bytes) -> int:
        """Send a whole call with a request. Returns its stream."""
        stream = self.begin(method)
        body = struct.pack(">BI", 0, len(request)) + request
        starts = range(0, len(body), FRAME_SIZE_BYTES_MAX)
        for start in starts:
            flags = END_STREAM if start == starts[-1] else 0
            self.socket.sendall(frame(DATA, flags, stream, body[start : start + FRAME_SIZE_BYTES_MAX]))
        return stream

    def send(self, stream: int, size_bytes: int, end_s: float) -> int:
        """Send so many zeros of a request as the server's windows allow, until this time; how many went."""
        sent = 0
        self._windows.setdefault(stream, self._first_window)
        while sent < size_bytes and time.monotonic() < end_s:
            room = min(self._windows[0], self._windows[stream], FRAME_SIZE_BYTES_MAX, size_bytes - sent)
            if room <= 0:
                self._read_windows(max(0.01, end_s - time.monotonic()))
                continue
            self.socket.sendall(frame(DATA, 0, stream, bytes(room)))
            self._windows[0] -= room
            self._windows[stream] -= room
            sent += room
        return sent

    def _read_windows(self, timeout_s: float) -> None:
        """Read a piece of the server's bytes and record its window updates."""
        self.socket.settimeout(timeout_s)
        piece = self.socket.recv(1 << 16)
        if not piece:
            raise ConnectionError("the server closed the connection")
        self._arrived += piece
        while len(self._arrived) >= 9 + (size := int.from_bytes(self._arrived[:3], "big")):
            kind, flags, stream = self._arrived[3], self._arrived[4], int.from_bytes(self._arrived[5:9], "big")
            payload, self._arrived = self._arrived[9 : 9 + size], self._arrived[9 + size :]
            if kind == WINDOW_UPDATE:
                self._windows[stream] = self._windows.get(stream, self._first_window) + int.from_bytes(payload, "big")
            elif kind == SETTINGS and not flags:
                self._set_first_window(payload)

    def _set_first_window(self, payload: bytes) -> None:
        for key, value in struct.iter_unpack(">HI", payload):
            if key == INITIAL_WINDOW_SIZE:
                for stream in self._windows.keys() - {0}:
                    self._windows[stream] += value - self._first_window
                self._first_window = value

    def close(self) -> None:
        """End it."""
        self.socket.close()
