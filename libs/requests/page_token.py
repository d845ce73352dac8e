# SPDX-License-Identifier: Apache-2.0
"""Page tokens: where the next page of a list begins, as text that means nothing to clients; good across a restart.

A token holds a version, the position and a digest over the position, the kind of list and all of its other arguments,
so a token from another list, another server version or a client's imagination is refused. It is no secret: all that a
forged one could say is where to begin, and positions are checked like any other input.
"""

import base64
import binascii
import hashlib

from libs.requests.errors import BadPageToken

VERSION = 1
DIGEST_SIZE_BYTES = 12
TOKEN_SIZE_MAX = 1_024
NUMBER_DIGIT_COUNT_MAX = 19


def encode_token(kind: str, arguments: tuple[object, ...], position: bytes) -> str:
    """Make the token for this position; `kind` names the list."""
    body = bytes([VERSION]) + position
    return base64.urlsafe_b64encode(body + _digest(kind, arguments, body)).decode().rstrip("=")


def decode_token(kind: str, arguments: tuple[object, ...], token: str) -> bytes:
    """Return the position that `encode_token` was given for the same list; raises BadPageToken."""
    if len(token) > TOKEN_SIZE_MAX:
        raise BadPageToken("is too long for a page token")
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise BadPageToken("is not a page token") from None
    body, digest = raw[:-DIGEST_SIZE_BYTES], raw[-DIGEST_SIZE_BYTES:]
    if body[:1] != bytes([VERSION]) or digest != _digest(kind, arguments, body):
        raise BadPageToken
    return body[1:]


def encode_number(kind: str, arguments: tuple[object, ...], number: int) -> str:
    """The token of a list that is ordered by a number."""
    return encode_token(kind, arguments, b"%d" % number)


def decode_number(kind: str, arguments: tuple[object, ...], token: str) -> int:
    """The number of such a token, 0 for an empty one; raises BadPageToken."""
    position = decode_token(kind, arguments, token) if token else b"0"
    if not position.isdigit() or len(position) > NUMBER_DIGIT_COUNT_MAX:
        raise BadPageToken
    return int(position)


def _digest(kind: str, arguments: tuple[object, ...], body: bytes) -> bytes:
    text = repr((kind, arguments)).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(body + text, digest_size=DIGEST_SIZE_BYTES).digest()
