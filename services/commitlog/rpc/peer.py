# SPDX-License-Identifier: Apache-2.0
"""The caller's address in the form of records, for messages without a born host."""

import functools
from urllib.parse import unquote

from libs.formats.errors import FormatError
from libs.formats.records.host import Host

UNKNOWN_HOST = Host.parse("127.0.0.1:0")
"""The host of a caller on a Unix socket, which has no address."""


@functools.lru_cache(maxsize=4096)
def born_host(peer: str) -> bytes:
    """Return 8 or 20 bytes for gRPC's name of a peer, such as `ipv4:10.0.0.1:5050` or `ipv6:%5B::1%5D:5050`."""
    _, _, address = unquote(peer).partition(":")
    try:
        return Host.parse(address).to_bytes()
    except FormatError:
        return UNKNOWN_HOST.to_bytes()
