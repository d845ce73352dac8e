# SPDX-License-Identifier: Apache-2.0
"""The services of a store: their names for users and for gateways, and their usual ports."""

SERVICES = {"commitlog": "CommitLog", "indexer": "Indexer", "janitor": "Janitor", "delivery": "Delivery"}
"""Services and their names for users."""
PORTS = {"commitlog": 7101, "indexer": 7102, "janitor": 7103, "delivery": 7104}
OF_EVERY_STORE = ("commitlog", "indexer", "janitor")
"""Services that every store has."""
STORE_PORT = 8081
"""The usual port of the gateway, whose address is that of the whole store: it serves all APIs."""
BESIDE = {"delivery": ("Delivery", 7104), "gateway": ("the gateway", STORE_PORT)}
"""Services that not every store has: their names for users, and their usual ports."""


def meant_for(service: str) -> tuple[tuple[str, str], ...]:
    """Return the metadata with which a gateway passes on a call of a method that every service has.

    A service ignores them. Empty for the gateway itself.
    """
    return (("reput-service", service),) if service in SERVICES else ()
