# SPDX-License-Identifier: Apache-2.0
"""`reput-probe [TARGET]`: asks a server for its health, once. Exit code 0 if it serves, else 1.

For callers that ask every few seconds, with a new process each time: it imports almost nothing, while `reput health`
imports gRPC. The image contains it as a separate program (deploy/docker/Dockerfile).
TARGET is host:port of a port without TLS, or unix:PATH; without it $HEALTH_TARGET. With TLS give the service a
`unix_socket`: it needs neither certificate nor token. The console has no gRPC: http://host:port asks its /healthz.
For gRPC it implements the part of HTTP/2 that a single call needs. The answer comes from the service's own loop, so a
blocked loop is noticed.
"""

import _socket  # the base of `socket`, whose import takes longer than all the rest
import os
import sys
import time

TIMEOUT_S = 5.0
"""Time limit of the whole probe; orchestrators give it ten seconds."""
ANSWER_SIZE_BYTES_MAX = 1 << 16

DATA, HEADERS, RST_STREAM, SETTINGS, GOAWAY = 0, 1, 3, 4, 7
END_STREAM, END_HEADERS = 1, 4
STREAM = 1
SERVING = b"\x08\x01"
"""A HealthCheckResponse whose status, its field 1, is 1."""


def frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    """Return a frame (RFC 9113, 4.1)."""
    return len(payload).to_bytes(3, "big") + bytes([kind, flags]) + stream.to_bytes(4, "big") + payload


def text(value: bytes) -> bytes:
    """Return a text of a head without compression, of less than 127 bytes (RFC 7541, 5.2)."""
    return bytes([len(value)]) + value


HEAD = (
    b"\x83\x86"  # :method POST, :scheme http
    + (b"\x04" + text(b"/grpc.health.v1.Health/Check"))  # :path
    + (b"\x01" + text(b"localhost"))  # :authority
    + (b"\x0f\x10" + text(b"application/grpc"))  # content-type
    + (b"\x00" + text(b"te") + text(b"trailers"))
)
CALL = (
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
    + frame(SETTINGS, 0, 0, b"")
    + frame(HEADERS, END_HEADERS, STREAM, HEAD)
    + frame(DATA, END_STREAM, STREAM, bytes(5))  # an empty message: the health of the whole server
)


REQUEST = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


def check_page(target: str) -> str:
    """Return "" if the console at host:port serves, else the reason. Raises OSError if there is no answer."""
    connection = connect(target)
    try:
        connection.sendall(REQUEST)
        return "" if connection.recv(1 << 12).startswith(b"HTTP/1.1 200 ") else "not serving"
    finally:
        connection.close()


def check(target: str) -> str:
    """Return "" if the server is SERVING, else the reason. Raises OSError if there is no answer."""
    end_s = time.monotonic() + TIMEOUT_S
    connection = connect(target)
    try:
        connection.sendall(CALL)
        received, message, total_bytes = bytearray(), b"", 0
        while total_bytes < ANSWER_SIZE_BYTES_MAX:
            connection.settimeout(max(end_s - time.monotonic(), 0.001))
            piece = connection.recv(1 << 12)
            if not piece:
                return "the server closed the connection"
            received += piece
            total_bytes += len(piece)
            while len(received) >= 9 and len(received) >= 9 + (size := int.from_bytes(received[:3], "big")):
                kind, flags, payload = received[3], received[4], bytes(received[9 : 9 + size])
                del received[: 9 + size]
                if kind in (RST_STREAM, GOAWAY):
                    return "the server refused the call"
                message += payload if kind == DATA else b""
                if len(message) >= 5 + len(SERVING) or (kind in (DATA, HEADERS) and flags & END_STREAM):
                    return "" if message[5:] == SERVING else "not serving"
        return "the server answers something else"
    finally:
        connection.close()


def connect(target: str) -> _socket.socket:
    """Return a connection to the first address of a name that accepts it. Raises OSError, ValueError for no target."""
    if target.startswith("unix:"):
        return connected(_socket.AF_UNIX, target.removeprefix("unix:").removeprefix("//"))
    host, _, port = target.rpartition(":")
    name = host.strip("[]").encode()  # bytes: a text would import the codec of international names
    addresses = _socket.getaddrinfo(name, int(port), 0, _socket.SOCK_STREAM)
    for family, _, _, _, address in addresses[:-1]:
        try:
            return connected(family, address)
        except OSError:
            pass  # the last address raises the error
    return connected(addresses[-1][0], addresses[-1][4])


def connected(family: int, address: object) -> _socket.socket:
    """Return a connection to an address. Raises OSError."""
    connection = _socket.socket(family, _socket.SOCK_STREAM)
    connection.settimeout(TIMEOUT_S)
    try:
        connection.connect(address)  # type: ignore[arg-type]
    except OSError:
        connection.close()
        raise
    return connection


def main() -> int:
    """Ask the server, and write the reason to standard error if it is not SERVING."""
    target = sys.argv[1] if sys.argv[1:] else os.environ.get("HEALTH_TARGET", "")
    try:
        page = target.removeprefix("http://")
        reason = check(target) if page == target else check_page(page)
    except ValueError:
        reason = "no target: give host:port, unix:PATH or http://host:port"
    except OSError as error:
        reason = f"no answer: {error.strerror or error}"
    if reason:
        sys.stderr.write(f"{target}: {reason}\n")
    return 1 if reason else 0


if __name__ == "__main__":
    sys.exit(main())
