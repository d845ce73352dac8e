# SPDX-License-Identifier: Apache-2.0
"""The other side of a connection: its address, and the names of its certificate. No I/O."""

import asyncio
import socket
from collections.abc import Mapping, Sequence
from typing import Any


def names_of_certificate(certificate: Mapping[str, Any] | None) -> Mapping[str, Sequence[bytes]]:
    """Return the names of a certificate as gRPC's properties of a connection: alternative names, and common names."""
    if not certificate:
        return {}
    alternative = [value for _, value in certificate.get("subjectAltName", ()) if isinstance(value, str)]
    common = [value for part in certificate.get("subject", ()) for kind, value in part if kind == "commonName"]
    return {
        "x509_subject_alternative_name": [value.encode() for value in alternative],
        "x509_common_name": [value.encode() for value in common],
    }


def peer_of(transport: asyncio.BaseTransport) -> str:
    """Return the address of the other side, in gRPC's notation."""
    connection = transport.get_extra_info("socket")
    name = transport.get_extra_info("peername")
    if connection is not None and connection.family == socket.AF_UNIX:
        return "unix:"
    if not isinstance(name, tuple):
        return "unknown:"
    host, port = name[0], name[1]
    return f"ipv6:[{host}]:{port}" if ":" in host else f"ipv4:{host}:{port}"
