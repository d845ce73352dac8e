# SPDX-License-Identifier: Apache-2.0
"""The compiled parts, if this installation has them: Packer makes the bytes of messages, RECORDS reads records.

Without them, and for messages that are not plain, Encoder does the same in Python, with the same bytes and errors, and
answers have messages in place of records (core/records.py). REPUT_NO_EXTENSIONS=1 ignores the compiled parts.
"""

import itertools
import os
from collections.abc import Callable
from importlib import import_module
from typing import Any, Protocol, TypeAlias

from reput_client.core.types import Message, NewMessage


class Packer(Protocol):
    """Packs the messages of a producer."""

    def pack(self, message: NewMessage, /) -> tuple[bytes, str] | None:
        """Return the chunk and the unique id of a plain message as Encoder.encode does, None for any other message."""
        ...


class Ids(Protocol):
    """What a Packer takes of UniqueIds: it makes ids of the same prefix and count."""

    prefix: str
    count: "itertools.count[int]"

    def month_of(self, now_ns: int) -> tuple[int, int]:
        """Return the start and the end of the month that has a time."""
        ...


MakePacker: TypeAlias = Callable[[Ids | None, bool, int], Packer]
"""Makes a packer of ids, None for no ids, with or without born times, for chunks up to a size in bytes."""


class Records(Protocol):
    """The module that reads the records of answers."""

    def split(self, answer: bytes, number: int, /) -> tuple[bytes, int, int]:
        """Return an answer without the field of this number, and the bounds of the field, (0, 0) without the field."""
        ...

    def messages_of(self, answer: bytes, start: int, end: int, count: int, kind: type[Message], /) -> list[Message]:
        """Return the messages of records. Raises ValueError unless the bytes are `count` sound records."""
        ...


def find_packer() -> MakePacker | None:
    """Return the compiled Packer, None for an installation without it."""
    module = _find("_pack")
    found: MakePacker | None = module and module.Packer
    return found


def find_records() -> Records | None:
    """Return the compiled reader of records, None for an installation without it."""
    found: Records | None = _find("_records")
    return found


def _find(name: str) -> Any:
    if os.environ.get("REPUT_NO_EXTENSIONS") == "1":
        return None
    try:
        return import_module(f"{__name__}.{name}")
    except ImportError:
        return None


PACKER = find_packer()
RECORDS = find_records()
IS_COMPILED = PACKER is not None and RECORDS is not None
"""Whether producers encode and readers decode with the compiled parts."""
