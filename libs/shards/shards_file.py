# SPDX-License-Identifier: Apache-2.0
"""The file that names the shards of a store and the addresses of their services. Spec: docs/scale.md. No I/O."""

from collections.abc import Mapping
from typing import Final

import msgspec

from libs.formats.config.topic_share import is_shard_name
from libs.formats.errors import BadField

SHARD_COUNT_MAX: Final = 256
_SERVICES: Final = ("commitlog", "indexer", "delivery", "janitor")
"""The last is optional."""


class Shard(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The addresses of a shard's services: host:port, or several with a comma between, where any may lead."""

    commitlog: str
    indexer: str
    delivery: str
    janitor: str = ""
    takes_topics: bool = True
    """Whether new topics get queues at the shard. A shard that is to be removed takes none."""


class _File(msgspec.Struct, forbid_unknown_fields=True):
    shards: dict[str, Shard]


def loads(text: str) -> Mapping[str, Shard]:
    """Return the shards by name, in the order of the file. Raises BadField."""
    import tomllib  # a gateway without shards starts without it

    try:
        file = msgspec.convert(tomllib.loads(text), _File)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise BadField(position=0, reason=str(error), field="shards") from error
    if not 1 <= len(file.shards) <= SHARD_COUNT_MAX:
        reason = f"{len(file.shards)} shards, and there must be 1 to {SHARD_COUNT_MAX}"
        raise BadField(position=0, reason=reason, field="shards")
    for name, shard in file.shards.items():
        if not is_shard_name(name):
            reason = f"the name {name[:80]!r} must be 1 to 100 letters, digits, `_` and `-`"
            raise BadField(position=0, reason=reason, field="shards")
        for service in _SERVICES:
            value: str = getattr(shard, service)
            if (value or service != "janitor") and not all(target.strip() for target in value.split(",")):
                reason = f"{value!r} must be host:port, or several with a comma between"
                raise BadField(position=0, reason=reason, field=f"shards.{name}.{service}")
    if not any(shard.takes_topics for shard in file.shards.values()):
        raise BadField(position=0, reason="no shard takes topics (takes_topics)", field="shards")
    return file.shards


def dumps(shards: Mapping[str, Shard]) -> str:
    """Return the text of a file with these shards."""
    lines = ["# The shards of a store. docs/scale.md"]
    for name, shard in shards.items():
        lines += ["", f"[shards.{name}]"]
        lines += [f'{service} = "{target}"' for service in _SERVICES if (target := getattr(shard, service))]
        lines += [] if shard.takes_topics else ["takes_topics = false"]
    return "\n".join(lines) + "\n"
