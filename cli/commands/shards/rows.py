# SPDX-License-Identifier: Apache-2.0
"""Queues of topics over shards as rows of a table."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cli.output.tables import print_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from libs.formats.config.topic_share import QueueShare, ShareChange, TopicShare

COLUMNS = ("queue_id", "shard", "state", "keys_percent", "first_hash", "last_hash", "parents")
SPARE_COLUMNS = ("first_hash", "last_hash")
CHANGE_COLUMNS = ("topic", *COLUMNS)
HASH_COUNT = 2**32


def queue_rows(shares: Mapping[str, TopicShare]) -> list[dict[str, Any]]:
    """Return a row for each queue, by number. A sealed queue's part of the keys is the part that it had."""
    rows = [_row(shard, queue) for shard, share in shares.items() for queue in share.queues]
    return sorted(rows, key=lambda row: int(row["queue_id"]))


def change_rows(topic: str, change: ShareChange, shares: Mapping[str, TopicShare]) -> list[dict[str, Any]]:
    """Return a row for each queue of a change, as it is after the change: the parents first. `shares` is from then."""
    by_id = {row["queue_id"]: row for row in queue_rows(shares)}
    places = [*change.parents, *(child.place for child in change.children)]
    return [{"topic": topic, **by_id[place.queue_id]} for place in places]


def print_queues(rows: Iterable[dict[str, Any]], columns: Sequence[str], *, as_json: bool) -> None:
    """Print rows of queues. In the text the parents are `2 at a, 3 at b`."""
    if not as_json:
        rows = [row | {"parents": parents_text(row["parents"])} for row in rows]
    print_rows(rows, columns, as_json=as_json, spare=SPARE_COLUMNS)


def parents_text(parents: Iterable[Mapping[str, Any]]) -> str:
    """Return the queues that had the keys before."""
    return ", ".join(f"{place['queue_id']} at {place['shard']}" for place in parents)


def change_text(change: ShareChange) -> str:
    """Return a change as `2 at a -> 12 at b, 13 at c`."""
    parents, children = change.parents, [child.place for child in change.children]
    texts = (parents_text(place._asdict() for place in places) for places in (parents, children))
    return " -> ".join(texts)


def _row(shard: str, queue: QueueShare) -> dict[str, Any]:
    return {
        "queue_id": queue.queue_id,
        "shard": shard,
        "state": "sealed" if queue.is_sealed else "open",
        "keys_percent": round(100 * (queue.last_hash - queue.first_hash + 1) / HASH_COUNT, 2),
        "first_hash": queue.first_hash,
        "last_hash": queue.last_hash,
        "parents": [place._asdict() for place in queue.parents],
    }
