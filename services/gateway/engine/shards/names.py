# SPDX-License-Identifier: Apache-2.0
"""Handles of messages and ids of transactions with the name of their shard in front, as clients get them.

The form is `shard:handle`. Names of shards have no colon.
"""

from collections.abc import Collection


def with_shard(shard: str, text: str) -> str:
    """Return a handle or an id of a shard for clients."""
    return f"{shard}:{text}"


def without_shard(text: str, shards: Collection[str]) -> tuple[str, str]:
    """Return the shard of a handle or an id, and the shard's own text. The shard is "" if it names none of these."""
    shard, colon, rest = text.partition(":")
    return (shard, rest) if colon and shard in shards else ("", text)
