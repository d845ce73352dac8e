# SPDX-License-Identifier: Apache-2.0
"""Redaction: removes secrets from text. Pure: text and known secrets in, text out.

Known secrets are removed wherever they stand. Unknown secrets are found by their surroundings: a bearer token, a
private key, a password of a URL, and the value behind a name that ends like a secret's. A path of a file is no secret.
"""

import re
from collections.abc import Iterable

MASK = "********"
KNOWN_LENGTH_MIN = 6
"""A shorter secret is not searched for: it would mask parts of ordinary words."""

_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----.*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|\Z)", re.DOTALL)
_BEARER = re.compile(r"(?i)\b(bearer|basic)(\s+)[^\s\"',;]+")
_USER = re.compile(r"(?i)\b([a-z][a-z0-9+.-]*://)[^/\s\"'@]+@")
_NAMED = re.compile(
    r"""(?ix)
    ( \b[\w.-]*(?:password|passwd|secret|secret_key|secretkey|access_key|accesskey|token|api_key|apikey|authorization)
      ["']? \s* (?: [=:] | \s+is\s+ ) \s* )
    ( "(?:[^"\\]|\\.)*" | '(?:[^'\\]|\\.)*' | [^\s,;}\])]+ )
    """
)


def redacted(text: str, secrets: Iterable[str] = ()) -> str:
    """Return a text without secrets."""
    for secret in sorted({one for one in secrets if len(one) >= KNOWN_LENGTH_MIN}, key=len, reverse=True):
        text = text.replace(secret, MASK)
    text = _KEY.sub(f"-----BEGIN PRIVATE KEY----- {MASK}", text)
    text = _BEARER.sub(rf"\1\2{MASK}", text)
    text = _USER.sub(rf"\1{MASK}@", text)
    return _NAMED.sub(lambda found: found[1] + _masked(found[2]), text)


def _masked(value: str) -> str:
    quote = value[0] if value[:1] in ("'", '"') else ""
    return f"{quote}{MASK}{quote}" if value.strip("\"'") else value
