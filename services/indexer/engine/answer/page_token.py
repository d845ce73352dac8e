# SPDX-License-Identifier: Apache-2.0
"""Page tokens: where the next page of a query begins, as text that means nothing to clients.

A token holds a version, the position and a digest over the position, the kind of query and all of its other arguments,
so a token from another query, another server version or a client's imagination is refused. It is no secret: all that a
forged one could say is where to begin, and positions are checked like any other input.
"""

import base64
import binascii
import hashlib

from services.indexer.errors import BadPageToken

VERSION = 1
DIGEST_SIZE_BYTES = 12
TOKEN_SIZE_MAX = 1_024


def encode_token(kind: str, arguments: tuple[object, ...], position: bytes) -> str:
    """Make the token for this position; `kind` names the query."""
    body = bytes([VERSION]) + position
    return base64.urlsafe_b64encode(body + _digest(kind, arguments, body)).decode().rstrip("=")


def decode_token(kind: str, arguments: tuple[object, ...], token: str) -> bytes:
    """Return the position that `encode_token` was given for the same query; raises BadPageToken."""
    if len(token) > TOKEN_SIZE_MAX:
        raise BadPageToken("is too long for a page token")
    try:
        raw = base64.b64decode(token + "=" * (-len(token) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise BadPageToken("is not a page token") from None
    body, digest = raw[:-DIGEST_SIZE_BYTES], raw[-DIGEST_SIZE_BYTES:]
    if body[:1] != bytes([VERSION]) or digest != _digest(kind, arguments, body):
        raise BadPageToken("is not one that this query returned for these arguments")
    return body[1:]


def _digest(kind: str, arguments: tuple[object, ...], body: bytes) -> bytes:
    text = repr((kind, arguments)).encode("utf-8", "surrogatepass")
    return hashlib.blake2b(body + text, digest_size=DIGEST_SIZE_BYTES).digest()
