# SPDX-License-Identifier: Apache-2.0
"""The names of shards, and errors that name a shard."""

from collections.abc import Iterable

from reput_client.core.errors import ReputError


def shard_names(shards: str | Iterable[str]) -> tuple[str, ...]:
    """Return the names of shards, given as a sequence, or as a text with commas between them.

    Raises TypeError for a name that is not a str, and ValueError without a name, for an empty and for a repeated name.
    """
    names = tuple(map(str.strip, shards.split(","))) if isinstance(shards, str) else tuple(shards)
    if not names:
        raise ValueError("shards is empty: expected the names of the gateway's shards, as in 'a,b,c'")
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"shards has {name!r}: expected a str")
        if not name:
            raise ValueError(f"shards is {shards!r}: a name is empty")
        if names.count(name) > 1:
            raise ValueError(f"shards is {shards!r}: {name} is there twice")
    return names


def at_shard(shard: str, error: ReputError) -> ReputError:
    """Return the error of a call to a shard with the shard's name in its text, and as `shard` in its metadata."""
    return type(error)(
        f"shard {shard}: {error.text}",
        code=error.code,
        reason=error.reason,
        metadata={**error.metadata, "shard": shard},
        fields=error.fields,
        retry_after=error.retry_after,
    )
