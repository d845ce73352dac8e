# SPDX-License-Identifier: Apache-2.0
"""The input of decoders: any object with the buffer protocol.

Decoders release their views before they return or raise, so a mapping can be closed at once afterwards.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from libs.formats.errors import Truncated

if TYPE_CHECKING:
    from struct import Struct

    from typing_extensions import Buffer

    ReadableBuffer: TypeAlias = Buffer


def unpack(layout: Struct, buffer: ReadableBuffer, position: int, what: str) -> tuple[Any, ...]:
    """Return the values of a layout at a byte position. Raises Truncated, which names the layout and its size."""
    with memoryview(buffer) as view:
        if not 0 <= position <= len(view) - layout.size:
            raise Truncated(position=position, reason=f"{what} takes {layout.size} bytes")
        return layout.unpack_from(view, position)
