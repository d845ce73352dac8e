# SPDX-License-Identifier: Apache-2.0
"""Copies an object's attributes to the fields of a message with the same names, without a line for each field."""

import enum
from collections.abc import Collection
from typing import Any, TypeVar

from google.protobuf.message import Message

M = TypeVar("M", bound=Message)


_KNOWN: dict[tuple[type, type], dict[str, str]] = {}
"""Maps a type of message and a type of object to the common fields, with their names in the object."""


def named(kind: type[M], source: object, *, later: Collection[str] = (), **others: Any) -> M:
    """Return a message with the attributes of the source that have the names of its fields, and with the `others`.

    `queue_count` of a message is `queues_total` of statistics. A field without a value is a programmer's mistake,
    except the fields in `later`, which the caller fills itself.
    """
    pair = kind, type(source)
    if (known := _KNOWN.get(pair)) is None:
        known = _KNOWN[pair] = _names(kind, source)
        missing = set(kind.DESCRIPTOR.fields_by_name) - {*known, *others, *later}
        assert not missing, f"{type(source).__name__} has nothing for {sorted(missing)} of {kind.DESCRIPTOR.name}"
    found = {field: getattr(source, name) for field, name in known.items() if field not in others}
    plain = {field: value.value if isinstance(value, enum.Enum) else value for field, value in found.items()}
    return kind(**plain, **others)


def _names(kind: type[Message], source: object) -> dict[str, str]:
    fields = [field.name for field in kind.DESCRIPTOR.fields]
    names = {field: field if hasattr(source, field) else field.removesuffix("_count") + "s_total" for field in fields}
    return {field: name for field, name in names.items() if hasattr(source, name)}
