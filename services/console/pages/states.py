# SPDX-License-Identifier: Apache-2.0
"""GroupState: the state of a message at a group, by positions or exactly as Delivery tells it."""

from collections.abc import Mapping
from datetime import datetime
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace
from reput_client import MessageState
from reput_client.core.sharing.values import MessageStage

from services.console.pages.operate.callers import ConnectionRow

State = Literal[
    "settled", "dead_letter", "in_flight", "waiting", "dying", "held", "open", "not_delivered", "not_begun",
    "read", "not_read",
]  # fmt: skip
STAGES: Mapping[MessageStage, State] = {
    "no_position": "not_begun",
    "not_delivered": "not_delivered",
    "in_flight": "in_flight",
    "waiting": "waiting",
    "dying": "dying",
    "held": "held",
    "settled": "settled",
}


class GroupState(Struct, frozen=True):
    """The state of the message at a group."""

    group: str
    is_shared: bool
    state: State
    behind: int
    """Messages between the group's position and this message."""
    is_first: bool = False
    """It is the first message of its queue that the group has not settled."""
    reasons: tuple[str, ...] = ()
    """Why the queue makes no progress, as far as this message is the cause."""
    attempt: int = 0
    """Deliveries so far, of a message that is in flight, waits or becomes a dead letter."""
    attempts_max: int = 0
    since_ms: int | None = None
    """In flight: when its receiver got it, or last extended its time."""
    until_ms: int | None = None
    """In flight: until when its receiver has it. Waiting: when it may be delivered again."""
    receiver: str = ""
    """In flight: address, client and subject of the receiver's connection; empty if they are not known."""
    connection_number: int = 0
    """In flight: the receiver's connection in Delivery's list, 0 if Delivery does not know it."""
    receiver_gap: str = ""
    """Why the connection could not be looked at."""
    behind_queue_offset: int | None = None
    """Held: the message in flight with the same ordering key; None if it waits for a member whose filter it passes."""
    letter_id: str = ""
    """The id of its dead letter."""


class Blocker(Struct, frozen=True):
    """The message that a reason names, and its state."""

    topic: str
    queue_id: int
    queue_offset: int
    state: GroupState


def exact_state(
    known: GroupState, told: MessageState, receiver: ConnectionRow | None, receiver_gap: str, letter_id: str
) -> GroupState:
    """Return a state as Delivery tells it. `receiver_gap` is why receivers are not known."""
    state: State = "dead_letter" if letter_id and told.stage == "settled" else STAGES[told.stage]
    is_in_flight = state == "in_flight"
    return replace(
        known,
        state=state,
        behind=told.before_count if state == "not_delivered" else known.behind,
        attempt=told.attempt,
        since_ms=_ms(told.since),
        until_ms=_ms(told.until),
        receiver=_receiver(receiver) if is_in_flight and receiver is not None else "",
        connection_number=told.connection_number if is_in_flight else 0,
        receiver_gap=receiver_gap if is_in_flight and told.connection_number else "",
        behind_queue_offset=told.behind_queue_offset,
        letter_id=letter_id,
    )


def _receiver(connection: ConnectionRow) -> str:
    return ", ".join(filter(None, (connection.peer, connection.client, connection.subject)))


def _ms(time: datetime | None) -> int | None:
    return None if time is None else round(time.timestamp() * 1000)
