# SPDX-License-Identifier: Apache-2.0
"""Handles that take a delayed message back: RocketMQ's own form, a text of base64url. They say all that is needed."""

import base64
import binascii
from dataclasses import dataclass

from services.gateway.errors import PeerRefused, Refused

VERSION, BROKER = "v1", "reput"
HANDLE_SIZE_BYTES_MAX = 4_096
PART_COUNT = 5


@dataclass(frozen=True, slots=True)
class RecallHandle:
    """Of a message that waits for its time."""

    topic: str
    deliver_ms: int
    message_id: str

    def encode(self) -> str:
        """Return the text."""
        parts = (VERSION, self.topic, BROKER, str(self.deliver_ms), self.message_id)
        return base64.urlsafe_b64encode(" ".join(parts).encode()).decode()


def decode(text: str) -> RecallHandle:
    """Return what a text says. Raises Refused."""
    try:
        parts = base64.urlsafe_b64decode(text[:HANDLE_SIZE_BYTES_MAX]).decode().split(" ")
    except (binascii.Error, ValueError):
        parts = []
    if len(parts) != PART_COUNT or parts[0] != VERSION or not parts[3].isdecimal():
        raise Refused("BAD_REQUEST", "the recall handle is none that was given with a delayed message")
    return RecallHandle(topic=parts[1], deliver_ms=int(parts[3]), message_id=parts[4])


def refused(handle: RecallHandle, error: PeerRefused, now_ms: int) -> Exception:
    """Return why a message can't be recalled. It is too late, too, for one whose time was over when it came."""
    if error.reason == "DELAYED_NOT_FOUND" and handle.deliver_ms <= now_ms:
        return Refused("ILLEGAL_DELIVERY_TIME", f"message {handle.message_id} was delivered: its time is over")
    return error
