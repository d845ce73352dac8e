# SPDX-License-Identifier: Apache-2.0
"""What a decoder of this package raises, and nothing else: bytes from outside that do not follow their format.

Every error carries the position of the first byte that is wrong, so that a tool can name it. Decoders never let
struct.error, IndexError, UnicodeDecodeError or RecursionError out, whatever the input.
"""


class FormatError(Exception):
    """Bytes or text that do not follow their format.

    `position` counts bytes (characters for text) from the start of the buffer that the caller gave.
    `reason` is a short sentence for people; `field` names the field at fault, empty if no single field is.
    """

    def __init__(self, *, position: int, reason: str, field: str = "") -> None:
        super().__init__(f"at byte {position}: {reason}")
        self.position = position
        self.reason = reason
        self.field = field


class Truncated(FormatError):
    """The buffer ends before the item does."""


class BadMagic(FormatError):
    """The bytes that tell the kind or the version of an item are unknown."""


class BadLength(FormatError):
    """A length is negative, zero where it may not be, or contradicts the other lengths."""


class BadChecksum(FormatError):
    """The bytes do not have the checksum that is stored with them."""


class BadField(FormatError):
    """A value is outside its range or not of its type."""
