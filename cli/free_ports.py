# SPDX-License-Identifier: Apache-2.0
"""Free ports: the ports that `reput up` chooses for services with port 0.

A service binds its port a second or more after the choice. This process holds the port until the service starts, so
that a second `reput up` chooses other ports. Callers: a single thread.
"""

import atexit
import contextlib
import functools
import random
import socket
from collections.abc import Iterator

HOST = "127.0.0.1"
FREE_PORTS = (20_000, 32_000)
"""Below Linux's range of outgoing connections."""

_held: dict[int, socket.socket] = {}


class NoFreePort(Exception):
    """All ports of the range are in use."""

    def __init__(self) -> None:
        super().__init__(f"no port from {FREE_PORTS[0]} to {FREE_PORTS[1] - 1} is free")


def hold() -> int:
    """Return a free port, which is held until `let_go`. Raises NoFreePort."""
    for port in _candidates():
        holder = socket.socket()
        with contextlib.suppress(OSError):
            holder.bind((HOST, port))
            _held[port] = holder
            return port
        holder.close()
    raise NoFreePort


def let_go(port: int) -> None:
    """Let the service of a port bind it. A port that is not held stays as it is."""
    if (holder := _held.pop(port, None)) is not None:
        holder.close()


@atexit.register
def _let_all_go() -> None:
    for port in list(_held):
        let_go(port)


@functools.cache
def _candidates() -> Iterator[int]:
    """Return the ports by chance, each once."""
    return iter(random.sample(range(*FREE_PORTS), k=FREE_PORTS[1] - FREE_PORTS[0]))
