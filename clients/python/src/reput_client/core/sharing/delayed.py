# SPDX-License-Identifier: Apache-2.0
"""DelayedMessage: a message that waits for its delivery time, as a value."""

from dataclasses import dataclass
from typing import Any

from reput_client.core.types import Message


@dataclass(frozen=True, slots=True)
class DelayedMessage:
    """A message that waits for its delivery time."""

    topic: str
    """The topic of its delivery; `message.topic` is the topic where it waits."""
    delivery_time_ms: int
    """The time of its delivery, in milliseconds since the epoch."""
    message_id: str
    """The id to cancel it with."""
    message: Message


def delayed_of(delayed: Any) -> DelayedMessage:
    """Return a delayed message of the API as a value."""
    return DelayedMessage(
        delayed.topic, delayed.delivery_time.ToMilliseconds(), delayed.message_id, Message(delayed.message)
    )
