# SPDX-License-Identifier: Apache-2.0
"""The identity of a caller that a door passes on: its address and the names of its certificate, bound to a token.

A door adds three fields to the head of each call that it passes on. A service believes them only together with the
token of a door; a call that shows them without it is refused. The caller's own token goes on as the caller sent it.
"""

import binascii
import json
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from libs.runtime.http2.heads import DOOR_PREFIX, Fields, Origin
from libs.runtime.trust.callers import Callers
from libs.runtime.trust.roles import Role

TOKEN_FIELD: Final = b"reput-door"
"""The token of the door: the proof of its right to pass identities on."""
PEER_FIELD: Final = b"reput-door-peer"
"""The address of the caller, in gRPC's notation."""
CERTIFICATE_FIELD: Final = b"reput-door-certificate-bin"
"""The names of the caller's certificate, as a JSON object of lists."""

DOOR_KEY: Final = DOOR_PREFIX.decode()
"""The keys of a door's metadata begin so."""
PEER_SIZE_BYTES_MAX: Final = 100
"""Largest address. gRPC's notation of an IPv6 address with its zone and port is shorter."""

CERTIFICATE_SIZE_BYTES_MAX: Final = 2_048
"""Bytes of the names of a certificate. Names beyond it are left out, and so give no right."""


class Connection(Protocol):
    """The connection of the caller at the door."""

    peer: str

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """Return the names of the caller's certificate, as gRPC has them."""
        ...


def fields_by(token: Callable[[], str]) -> Callable[[Connection], Fields]:
    """Return the function that makes the fields of a caller. `token` returns the door's token, as it is now."""

    def fields(connection: Connection) -> Fields:
        found = [(TOKEN_FIELD, token().encode()), (PEER_FIELD, connection.peer.encode())]
        names = connection.auth_context()
        if names:
            found.append((CERTIFICATE_FIELD, b64encode(_certificate_text(names)).rstrip(b"=")))
        return found

    return fields


def _certificate_text(names: Mapping[str, Sequence[bytes]]) -> bytes:
    kept: dict[str, list[str]] = {}
    text = b"{}"
    for kind, values in names.items():
        for value in values:
            kept.setdefault(kind, []).append(value.decode("utf-8", "replace"))
            longer = json.dumps(kept).encode()
            if len(longer) > CERTIFICATE_SIZE_BYTES_MAX:
                return text
            text = longer
    return text


def origin_of(head: Any, callers: Callers) -> Origin | None:
    """Return where a call comes from that has fields of a door, and note it in its head. None for a forged call.

    The token is judged for each call, because a file of tokens may have changed. gRPC's own server has no such heads,
    so it refuses calls through a door.
    """
    shown = [value for name, value in getattr(head, "fields", ()) if name == TOKEN_FIELD]
    if len(shown) != 1 or Role.DOOR not in callers.roles_of(shown[0]):
        if hasattr(head, "origin"):
            head.origin = None
        return None
    if head.origin is None:
        head.origin = _parsed(head.fields)
    origin: Origin | None = head.origin
    return origin


def _parsed(fields: Fields) -> Origin | None:
    """Return the origin that the fields of a door tell. None if they are not in order."""
    peers = [value for name, value in fields if name == PEER_FIELD]
    certificates = [value for name, value in fields if name == CERTIFICATE_FIELD]
    if len(peers) != 1 or len(peers[0]) > PEER_SIZE_BYTES_MAX or len(certificates) > 1:
        return None
    certificate = certificates[0] if certificates else b""
    try:
        names = json.loads(b64decode(certificate + b"=" * (-len(certificate) % 4), validate=True) or b"{}")
        found = {str(kind): [str(value).encode() for value in values] for kind, values in names.items()}
    except (ValueError, AttributeError, TypeError, RecursionError, binascii.Error):
        return None
    return Origin(peers[0].decode("latin-1"), found, peers[0] + b"\n" + certificate)
