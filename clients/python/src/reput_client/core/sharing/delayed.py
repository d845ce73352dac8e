# SPDX-License-Identifier: Apache-2.0
"""Messages that wait for their time, as callers see them."""

from dataclasses import dataclass
from typing import Any

from reput_client.core.types import Message


@dataclass(frozen=True, slots=True)
class DelayedMessage:
    """A message that waits for its time."""

    topic: str
    """Where it goes; `message.topic` is where it waits."""
    delivery_time_ms: int
    """When, in milliseconds since the epoch."""
    message_id: str
    """What cancels it."""
    message: Message


def delayed_of(delayed: Any) -> DelayedMessage:
    """Return what an answer says of a message."""
    return DelayedMessage(
        delayed.topic, delayed.delivery_time.ToMilliseconds(), delayed.message_id, Message(delayed.message)
    )
