# SPDX-License-Identifier: Apache-2.0
"""The caller's address."""

import pytest

from libs.formats.records.host import Host
from services.commitlog.rpc.peer import born_host


@pytest.mark.parametrize(
    ("peer", "host"),
    [
        ("ipv4:10.1.2.3:4567", "10.1.2.3:4567"),
        ("ipv6:[2001:db8::a]:4567", "[2001:db8::a]:4567"),
        ("ipv6:%5B::1%5D:4567", "[::1]:4567"),
        ("unix:", "127.0.0.1:0"),
        ("unix:/run/reput.sock", "127.0.0.1:0"),
        ("", "127.0.0.1:0"),
    ],
)
def test_peer_names(peer: str, host: str) -> None:
    """gRPC's name of a peer becomes the address in records; callers without an address are local."""
    assert born_host(peer) == Host.parse(host).to_bytes()
