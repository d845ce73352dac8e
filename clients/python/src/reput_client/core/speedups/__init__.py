# SPDX-License-Identifier: Apache-2.0
"""The compiled part of the producer, if this installation has it: Packer makes the bytes of plain messages.

Without it, and for any other message, Encoder does the same in Python, with the same bytes and errors.
REPUT_NO_EXTENSIONS=1 ignores the compiled part.
"""

import itertools
import os
from collections.abc import Callable
from importlib import import_module
from typing import Protocol, TypeAlias

from reput_client.core.types import NewMessage


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


def find_packer() -> MakePacker | None:
    """Return the compiled Packer, None for an installation without it."""
    if os.environ.get("REPUT_NO_EXTENSIONS") == "1":
        return None
    try:
        found: MakePacker = import_module(f"{__name__}._pack").Packer
    except ImportError:
        return None
    return found


PACKER = find_packer()
IS_COMPILED = PACKER is not None
"""Whether producers encode with the compiled part."""
