# SPDX-License-Identifier: Apache-2.0
"""Page tokens: the start of the next page of a list, as text without meaning for clients; valid across a restart.

A token contains a version, the position and a digest over the position, the kind of list and all of its other
arguments. So a token from another list, from another server version or invented by a client is refused. It is no
secret: a forged token could only give a position to begin at, and positions are checked like any other input.
"""

import base64
import binascii
import hashlib
from typing import TypeVar

import msgspec

from libs.formats.limits import INT64_MAX
from libs.requests.errors import BadPageToken

P = TypeVar("P")

VERSION = 2
DIGEST_SIZE_BYTES = 12
TOKEN_SIZE_MAX = 1_024


def encode_token(kind: str, arguments: tuple[object, ...], position: object) -> str:
    """Return the token for this position. `kind` names the list."""
    body = bytes([VERSION]) + msgspec.msgpack.encode(position)
    return base64.urlsafe_b64encode(body + _digest(kind, arguments, body)).decode().rstrip("=")


def decode_token(kind: str, arguments: tuple[object, ...], token: str, position_type: type[P]) -> P | None:
    """Return the position that `encode_token` was given for the same list, None for no token. Raises BadPageToken."""
    if not token:
        return None
    if len(token) > TOKEN_SIZE_MAX:
        raise BadPageToken("is too long for a page token")
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise BadPageToken("is not a page token") from None
    body, digest = raw[:-DIGEST_SIZE_BYTES], raw[-DIGEST_SIZE_BYTES:]
    if body[:1] != bytes([VERSION]) or digest != _digest(kind, arguments, body):
        raise BadPageToken
    try:
        return msgspec.msgpack.decode(body[1:], type=position_type)
    except ValueError:
        raise BadPageToken from None


def decode_number(kind: str, arguments: tuple[object, ...], token: str) -> int:
    """Return the number in a token of a list that is ordered by numbers, 0 for no token. Raises BadPageToken."""
    number = decode_token(kind, arguments, token, int) or 0
    if not 0 <= number <= INT64_MAX:
        raise BadPageToken
    return number


def _digest(kind: str, arguments: tuple[object, ...], body: bytes) -> bytes:
    text = repr((kind, arguments)).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(body + text, digest_size=DIGEST_SIZE_BYTES).digest()
