# SPDX-License-Identifier: Apache-2.0
"""Recall handles, which cancel delayed messages, in RocketMQ's form: a text of base64url with all data for a recall."""

import base64
import binascii

from msgspec import Struct

from libs.requests.errors import PeerError
from services.gateway.errors import Refused

VERSION = "v1"
HANDLE_SIZE_BYTES_MAX = 4_096
PART_COUNT = 5


class RecallHandle(Struct, frozen=True):
    """The recall handle of a message that waits for its delivery time."""

    topic: str
    broker: str
    deliver_ms: int
    message_id: str

    def encode(self) -> str:
        """Return the handle as text."""
        parts = (VERSION, self.topic, self.broker, str(self.deliver_ms), self.message_id)
        return base64.urlsafe_b64encode(" ".join(parts).encode()).decode()


def decode(text: str) -> RecallHandle:
    """Return the handle of a text. Raises Refused."""
    try:
        parts = base64.urlsafe_b64decode(text[:HANDLE_SIZE_BYTES_MAX]).decode().split(" ")
    except (binascii.Error, ValueError):
        parts = []
    if len(parts) != PART_COUNT or parts[0] != VERSION or not parts[3].isdecimal():
        raise Refused("BAD_REQUEST", "the recall handle is none that was given with a delayed message")
    return RecallHandle(topic=parts[1], broker=parts[2], deliver_ms=int(parts[3]), message_id=parts[4])


def refused(handle: RecallHandle, error: PeerError, now_ms: int) -> Exception:
    """Return why a message can't be recalled. A message sent with a past delivery time is too late, too."""
    if error.reason == "DELAYED_NOT_FOUND" and handle.deliver_ms <= now_ms:
        return Refused("ILLEGAL_DELIVERY_TIME", f"message {handle.message_id} was delivered: its time is over")
    return error
