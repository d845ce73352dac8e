# SPDX-License-Identifier: Apache-2.0
"""Attempts: a limit for wrong tokens, by the address of the caller."""

from collections import OrderedDict
from ipaddress import IPv6Address, ip_network

from libs.machine.clock import Clock
from services.console.web.proxies import address_of

AT_ONCE = 10
INTERVAL_S = 6.0
"""An address may send `AT_ONCE` wrong tokens, and then one more each time that this passes."""
ADDRESSES_MAX = 4_096
"""Addresses that are remembered; the address whose last wrong token is the oldest makes room first."""
SITE_BITS = 64
"""A subscriber of IPv6 has at least as many addresses as the other 64 bits: all of them count as a single caller."""


class Attempts:
    """Wrong tokens of the last minute. Callers: the event loop."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._forgiven_s: OrderedDict[str, float] = OrderedDict()
        """When the wrong tokens of an address are forgiven, each after `INTERVAL_S`."""

    @property
    def address_count(self) -> int:
        """The number of addresses that are remembered."""
        return len(self._forgiven_s)

    def wait_s(self, address: str) -> int:
        """Return how many seconds an address must wait before its next token, 0 if it may send a token now."""
        forgiven_s = self._forgiven_s.get(_site(address), 0.0)
        wait_s = forgiven_s - self._clock.monotonic_s() - (AT_ONCE - 1) * INTERVAL_S
        return max(int(-(-wait_s // 1)), 0)

    def failed(self, address: str) -> None:
        """Count a wrong token."""
        site, now_s = _site(address), self._clock.monotonic_s()
        self._forgiven_s[site] = max(self._forgiven_s.get(site, 0.0), now_s) + INTERVAL_S
        self._forgiven_s.move_to_end(site)
        while len(self._forgiven_s) > ADDRESSES_MAX or next(iter(self._forgiven_s.values())) <= now_s:
            self._forgiven_s.popitem(last=False)


def _site(address: str) -> str:
    """Return the name of a caller: its address of IPv4, or its network of IPv6."""
    found = address_of(address)
    if isinstance(found, IPv6Address):
        return str(ip_network((found, SITE_BITS), strict=False))
    return str(found or address)
