# SPDX-License-Identifier: Apache-2.0
"""Proxies: the reader that a request names, and whether its sender is trusted to name a reader.

Any sender can set a header: only a proxy of `trusted_proxies` is believed, by the address of its
connection.
"""

from ipaddress import IPv4Address, IPv6Address, ip_address

from msgspec import Struct
from starlette.datastructures import Headers
from starlette.types import Scope

from services.console.config import ConsoleConfig, networks_of

NAME_CHARACTERS_MAX = 256
CALLER = "reput.caller"
"""Where a request that passed the gate has its caller."""


class Caller(Struct, frozen=True):
    """The reader behind a request."""

    address: str
    """The address of the reader, or of the machine that calls for the reader."""
    scheme: str
    name: str
    """The reader's name from a login of a trusted proxy; empty without such a login."""


class Proxies:
    """The proxies of the settings."""

    def __init__(self, config: ConsoleConfig) -> None:
        self._networks = networks_of(config.trusted_proxies)
        self._header = config.login_header

    def caller(self, scope: Scope, headers: Headers) -> Caller:
        """Return the caller of a request."""
        peer, scheme = (scope.get("client") or ("", 0))[0], scope["scheme"]
        if not self._is_trusted(peer):
            return Caller(peer, scheme, "")
        forwarded = address_of(headers.get("x-forwarded-for", "").rpartition(",")[2])
        is_secure = headers.get("x-forwarded-proto", "") == "https"
        return Caller(str(forwarded or peer), "https" if is_secure else scheme, self._name(headers))

    def _is_trusted(self, peer: str) -> bool:
        address = address_of(peer)
        return address is not None and any(address in network for network in self._networks)

    def _name(self, headers: Headers) -> str:
        """Return the name in the header of the login. A header that came twice names no reader."""
        given = headers.getlist(self._header) if self._header else []
        name = given[0].strip().encode("latin-1").decode("utf-8", "replace") if len(given) == 1 else ""
        return name if len(name) <= NAME_CHARACTERS_MAX and name.isprintable() else ""


def caller_of(scope: Scope) -> Caller:
    """Return the caller of a request that passed the gate."""
    caller: Caller = scope[CALLER]
    return caller


def address_of(text: str) -> IPv4Address | IPv6Address | None:
    """Return an address, None for a text that is none. IPv4 within IPv6 is IPv4."""
    try:
        address = ip_address(text.strip())
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address
