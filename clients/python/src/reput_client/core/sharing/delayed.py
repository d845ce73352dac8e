# SPDX-License-Identifier: Apache-2.0
"""DelayedMessage and DelayLevel: messages that wait for their delivery time, as values."""

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


@dataclass(frozen=True, slots=True)
class DelayLevel:
    """How the messages with a delay level come to their topics."""

    level: int
    """The value of the property DELAY."""
    delay_s: float
    waiting_count: int
    """Messages that wait now."""
    lateness_s: float
    """Seconds for which the next message has been due, 0 if it is not due."""
    last_error: str
    """Why the level is blocked. It tries again. Empty if it is not blocked."""


def delay_level_of(level: Any) -> DelayLevel:
    """Return a delay level of the API as a value."""
    return DelayLevel(
        level.level,
        level.delay.ToMilliseconds() / 1000,
        level.waiting_count,
        level.lateness.ToMilliseconds() / 1000,
        level.last_error,
    )
