# SPDX-License-Identifier: Apache-2.0
"""What an object and a message have under the same names: who adds a fact to both adds no line between them."""

import enum
from typing import Any, TypeVar

from google.protobuf.message import Message

M = TypeVar("M", bound=Message)


def named(kind: type[M], source: object, **others: Any) -> M:
    """Return a message with what the source has under the names of its fields, and the others as they are given.

    `queue_count` of a message is `queues_total` of statistics.
    """
    names = {field.name: field.name for field in kind.DESCRIPTOR.fields if field.name not in others}
    names |= {name: name.removesuffix("_count") + "s_total" for name in names if not hasattr(source, name)}
    found = {name: getattr(source, known) for name, known in names.items() if hasattr(source, known)}
    plain = {name: value.value if isinstance(value, enum.Enum) else value for name, value in found.items()}
    return kind(**plain, **others)
