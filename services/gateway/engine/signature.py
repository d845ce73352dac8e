# SPDX-License-Identifier: Apache-2.0
"""Signature: a client's proof in the metadata `authorization` that it knows the secret of its access key.

`MQv2-HMAC-SHA1 Credential=KEY/…, SignedHeaders=x-mq-date-time, Signature=HEX`: the HMAC-SHA1 of the metadata
`x-mq-date-time` with the secret. Clients write the digits in upper or lower case, and the time in different forms. Many
clients write local time and call it UTC, so the age of a signature can't be checked. An eavesdropper can use a
signature again: use TLS.
"""

import hashlib
import hmac
from collections.abc import Iterable
from typing import Self

from msgspec import Struct

from services.gateway.errors import Refused

ALGORITHM = "MQv2-HMAC-SHA1"
SIZE_MAX = 1_024


class Signature(Struct, frozen=True):
    """A parsed signature: the name of the access key, and the digits."""

    key: str
    digits: str

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the signature of a metadata text. Raises Refused."""
        algorithm, _, rest = text.partition(" ")
        if algorithm != ALGORITHM or len(text) > SIZE_MAX:
            text = f"the metadata authorization must begin with {ALGORITHM}: set an access key"
            raise Refused("UNAUTHORIZED", text, reason="UNAUTHENTICATED")
        fields = dict(part.strip().partition("=")[::2] for part in rest.split(","))
        return cls(fields.get("Credential", "").partition("/")[0], fields.get("Signature", "").lower())

    def check(self, secrets: Iterable[bytes], date_time: str) -> None:
        """Return if the signature was made with any of the secrets. Raises Refused."""
        is_right = False
        for secret in secrets:
            made = hmac.new(secret, date_time.encode(), hashlib.sha1).hexdigest()
            is_right |= hmac.compare_digest(made.encode(), self.digits.encode())
        if not is_right:
            text = f"no such access key, or a wrong signature: {self.key[:64]!r}"
            raise Refused("UNAUTHORIZED", text, reason="UNAUTHENTICATED")
