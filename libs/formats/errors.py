# SPDX-License-Identifier: Apache-2.0
"""All errors of this package's decoders: bytes that do not follow their format, or bytes of a later version.

Every error has the position of the first wrong byte, so that a tool can name it. Decoders never raise struct.error,
IndexError, UnicodeDecodeError or RecursionError, for any input.
"""


class FormatError(Exception):
    """Bytes or text that do not follow their format.

    `position` counts bytes (characters for text) from the start of the caller's buffer.
    `reason` is a short sentence for people. `field` names the field at fault, and is empty without a single such field.
    """

    def __init__(self, *, position: int, reason: str, field: str = "") -> None:
        super().__init__(f"at byte {position}: {reason}")
        self.position = position
        self.reason = reason
        self.field = field


class Truncated(FormatError):
    """The buffer ends before the item does."""


class BadMagic(FormatError):
    """The bytes for the kind or the version of an item are unknown."""


class BadLength(FormatError):
    """A length is negative, zero where it may not be, or contradicts the other lengths."""


class BadChecksum(FormatError):
    """The bytes do not have the checksum that is stored with them."""


class BadField(FormatError):
    """A value is outside its range or not of its type."""


class NewerVersion(Exception):
    """Bytes of a version that is newer than this program.

    The bytes are sound, so this is no FormatError: code that handles damage, by rebuilding a file or by skipping a
    record, must not handle these bytes. A service that reads them refuses to start, or to serve data that depends on
    them. `position` is the version's position, and `field` is its name.
    """

    def __init__(self, subject: str, *, version: int, newest: int, position: int = 0, field: str = "version") -> None:
        self.reason = f"version {version}, and this program reads versions up to {newest}"
        super().__init__(f"{subject} is of {self.reason}: run the program that wrote it, or a later one")
        self.position, self.field = position, field
        self.version, self.newest = version, newest
