# SPDX-License-Identifier: Apache-2.0
"""Groups that are known: Delivery has the groups that share messages, the Indexer the offsets of all others.

A group that shares has its positions at the Indexer, too, some seconds old: Delivery's positions are used.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from cli.connection.addresses import is_listening, is_shared, targets_of, wait_listening
from libs.formats.state.system_topics import OWN_GROUPS, is_system_group
from libs.service_names import PORTS

if TYPE_CHECKING:
    from collections.abc import Iterator

    import typer
    from reput_client import Client, ConsumerOffset, ShareGroup

DEAD_LETTER_PREFIX = "%DLQ%"
CALLS_AT_ONCE = 16


def has_delivery(context: typer.Context, client: Client) -> bool:
    """Return whether this store has a Delivery to ask. Raises CommandFailed if a named Delivery is not there.

    The default address is that of a store on this machine, so it is used only together with the Indexer's default. A
    gateway without a Delivery behind it says so.
    """
    targets = targets_of(context.find_root().obj)
    is_default = {service: targets[service] == [f"127.0.0.1:{PORTS[service]}"] for service in ("indexer", "delivery")}
    if is_default["delivery"]:
        return is_default["indexer"] and any(map(is_listening, targets["delivery"]))
    wait_listening("delivery", targets, 0)
    return not is_shared("delivery", targets) or _is_behind(client)


def _is_behind(client: Client) -> bool:
    from reput_client import ServerError

    try:
        client.delayed.levels()
    except ServerError as error:
        if error.reason != "SERVICE_NOT_FOUND":
            raise
        return False
    return True


def find_sharing(context: typer.Context, client: Client, group: str) -> ShareGroup | None:
    """Return a group that shares messages, None if this one does not. Raises ReputError."""
    return _find(client, group) if group not in OWN_GROUPS and has_delivery(context, client) else None


def _find(client: Client, group: str) -> ShareGroup | None:
    from reput_client import NotFoundError

    try:
        return client.share_groups.get(group)
    except NotFoundError:
        return None


def sharing_groups(context: typer.Context, client: Client, only: str | None) -> dict[str, ShareGroup]:
    """Return the groups that share messages by name, with their queues: `only` that group, or all."""
    if only is not None:
        found = find_sharing(context, client, only)
        return {} if found is None else {only: found}
    if not has_delivery(context, client):
        return {}
    with ThreadPoolExecutor(CALLS_AT_ONCE) as pool:  # a call for each group, whose lags are asked of the index
        asked = pool.map(lambda group: _find(client, group.name), client.share_groups.list())
        return {group.name: group for group in asked if group is not None}


def offsets_of(
    client: Client, only: str | None, sharing: dict[str, ShareGroup]
) -> Iterator[tuple[str, ConsumerOffset]]:
    """Yield the Indexer's offsets, without queues that a group shares, dead letters, and the store's own groups."""
    shared = {(name, queue.topic) for name, group in sharing.items() for queue in group.queues}
    shared |= {(name, DEAD_LETTER_PREFIX + name) for name in sharing}
    for group in client.groups.list():
        if only == group.name or (only is None and not is_system_group(group.name)):
            yield from ((group.name, one) for one in group.offsets if (group.name, one.topic) not in shared)
