# SPDX-License-Identifier: Apache-2.0
"""Host: an address and a port as in records. Spec: docs/formats/commit_log.md section 4.

Four or sixteen address bytes, then the port as a signed 32-bit number: 8 or 20 bytes. The record's system flag has the
size. The host itself never has it.
"""

from __future__ import annotations

import ipaddress
import re
import struct
from typing import TYPE_CHECKING

from msgspec import Struct

from libs.formats.errors import BadField, Truncated

if TYPE_CHECKING:
    from libs.formats.buffers import ReadableBuffer

IPV4_SIZE_BYTES, IPV6_SIZE_BYTES = 4, 16
PORT = struct.Struct(">i")
PORT_MAX = 65535
HOST_IPV4_SIZE_BYTES = IPV4_SIZE_BYTES + PORT.size
HOST_IPV6_SIZE_BYTES = IPV6_SIZE_BYTES + PORT.size
assert (HOST_IPV4_SIZE_BYTES, HOST_IPV6_SIZE_BYTES) == (8, 20)

_TEXT = re.compile(r"(?:\[(?P<v6>[0-9A-Fa-f:.]{2,45})\]|(?P<v4>[0-9.]{7,15})):(?P<port>[0-9]{1,5})", re.ASCII)


class Host(Struct, frozen=True):
    """An IPv4 or IPv6 address (4 or 16 bytes) and a port.

    The port from a record may be any 32-bit number, because RocketMQ does not check it. `is_port_valid` checks it.
    """

    address: bytes
    port: int

    def __post_init__(self) -> None:
        assert len(self.address) in (IPV4_SIZE_BYTES, IPV6_SIZE_BYTES)

    @property
    def is_ipv6(self) -> bool:
        """Whether the address has sixteen bytes."""
        return len(self.address) == IPV6_SIZE_BYTES

    @property
    def is_port_valid(self) -> bool:
        """Whether the port is possible for a socket."""
        return 0 <= self.port <= PORT_MAX

    def to_bytes(self) -> bytes:
        """Return the 8 or 20 bytes for a record."""
        return self.address + PORT.pack(self.port)

    @classmethod
    def from_bytes(cls, buffer: ReadableBuffer, position: int = 0, *, is_ipv6: bool = False) -> Host:
        """Return the host at this position. Raises Truncated."""
        size = HOST_IPV6_SIZE_BYTES if is_ipv6 else HOST_IPV4_SIZE_BYTES
        with memoryview(buffer) as view:
            raw = bytes(view[position : position + size])
        if len(raw) < size:
            raise Truncated(position=position, reason=f"a host takes {size} bytes", field="host")
        return cls(raw[: -PORT.size], PORT.unpack(raw[-PORT.size :])[0])

    @classmethod
    def parse(cls, text: str) -> Host:
        """Read `1.2.3.4:5` or `[2001:db8::5]:5`. Raises BadField."""
        refused = BadField(position=0, reason=f"{text[:80]!r} is not address:port", field="host")
        match = _TEXT.fullmatch(text)
        if match is None or int(match["port"]) > PORT_MAX:
            raise refused
        try:
            address = ipaddress.IPv4Address(match["v4"]) if match["v4"] else ipaddress.IPv6Address(match["v6"])
        except ValueError:
            raise refused from None
        return cls(address.packed, int(match["port"]))

    def __str__(self) -> str:
        address = ipaddress.ip_address(self.address)
        return f"[{address}]:{self.port}" if self.is_ipv6 else f"{address}:{self.port}"
