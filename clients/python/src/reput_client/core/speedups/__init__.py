# SPDX-License-Identifier: Apache-2.0
"""The compiled part of the producer, if this installation has it: `pack` makes the bytes of a plain message.

Without it, and for any other message, Encoder does the same in Python, with the same bytes and errors.
REPUT_NO_EXTENSIONS=1 ignores the compiled part.
"""

import os
from collections.abc import Callable
from importlib import import_module
from typing import TypeAlias

from reput_client.core.types import NewMessage

Pack: TypeAlias = Callable[[NewMessage, str, object, int], bytes | None]


def find_pack() -> Pack | None:
    """Return the compiled `pack`, None for an installation without it."""
    if os.environ.get("REPUT_NO_EXTENSIONS") == "1":
        return None
    try:
        pack: Pack = import_module(f"{__name__}._pack").pack
    except ImportError:
        return None
    return pack


PACK = find_pack()
IS_COMPILED = PACK is not None
"""Whether producers encode with the compiled part."""
