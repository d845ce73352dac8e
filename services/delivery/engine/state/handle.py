# SPDX-License-Identifier: Apache-2.0
"""Handle: names a single delivery of a message. It contains all that is needed, so no table of handles is kept.

Its text is base64url over a JSON list. It is no secret: it is valid only while the delivery is the message's last.
"""

import base64
import binascii
from typing import Self

import msgspec

from libs.formats.records.delivery_record import Name, Offset, Place, QueueId
from services.delivery.errors import BadHandle

HANDLE_SIZE_BYTES_MAX = 1_024


class Handle(msgspec.Struct, frozen=True, array_like=True):
    """The name of a delivery: group, queue, queue offset, and the stamp of the delivery."""

    group: Name
    topic: Name
    queue_id: QueueId
    offset: Offset
    stamp: Offset

    @property
    def place(self) -> Place:
        """The group and queue."""
        return Place(self.group, self.topic, self.queue_id)

    def encode(self) -> str:
        """Return the handle as a text."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode().rstrip("=")

    @classmethod
    def decode(cls, text: str) -> Self:
        """Return the handle that a text contains. Raises BadHandle."""
        if not text or len(text) > HANDLE_SIZE_BYTES_MAX:
            raise BadHandle("is empty" if not text else f"is longer than {HANDLE_SIZE_BYTES_MAX} bytes")
        try:
            data = base64.b64decode(text.encode("ascii") + b"=" * (-len(text) % 4), altchars=b"-_", validate=True)
            return msgspec.json.decode(data, type=cls)
        except (msgspec.DecodeError, UnicodeError, binascii.Error, RecursionError):
            raise BadHandle("is none that was given") from None
