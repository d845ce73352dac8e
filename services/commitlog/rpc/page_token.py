# SPDX-License-Identifier: Apache-2.0
"""Page tokens: where a list goes on. Opaque to clients, bound to the list and its arguments, good across a restart.

A token is base64 of a version byte, a CRC-32C over list, arguments and position, and the position. The checksum is no
secret: it keeps a token from being used with other arguments by mistake, and every position is harmless anyway.
"""

import base64
import binascii
import struct

from libs.formats.crc import crc32c
from libs.formats.limits import INT64_MAX
from services.commitlog.errors import BadPageToken

VERSION = 1
HEADER = struct.Struct(">BI")
FIELD = "page_token"
TOKEN_SIZE_MAX = 512
POSITION_DIGIT_COUNT_MAX = len(str(INT64_MAX))


def encode(position: str, *, scope: str) -> str:
    """The token for the page behind `position`. `scope` names the list and its arguments."""
    data = position.encode()
    return base64.urlsafe_b64encode(HEADER.pack(VERSION, _digest(data, scope)) + data).decode().rstrip("=")


def decode(token: str, *, scope: str) -> str:
    """The position of a token; empty for an empty one. Raises BadPageToken."""
    if not token:
        return ""
    if len(token) > TOKEN_SIZE_MAX:
        raise BadPageToken("the token is longer than any of this list's", field=FIELD)
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
        version, digest = HEADER.unpack_from(raw)
        position = raw[HEADER.size :].decode()
    except (binascii.Error, struct.error, ValueError):
        version, digest, position = 0, 0, ""
    if version != VERSION or digest != _digest(position.encode(), scope):
        raise BadPageToken("this list gave no such token for these arguments", field=FIELD)
    return position


def decode_number(token: str, *, scope: str) -> int:
    """The position of a token of a list that is ordered by a number; 0 for an empty one. Raises BadPageToken."""
    position = decode(token, scope=scope) or "0"
    if not (position.isascii() and position.isdecimal() and len(position) <= POSITION_DIGIT_COUNT_MAX):
        raise BadPageToken("this list gave no such token for these arguments", field=FIELD)
    return int(position)


def _digest(data: bytes, scope: str) -> int:
    return crc32c(scope.encode() + b"\0" + data)
