# SPDX-License-Identifier: Apache-2.0
"""MessageStates: the state of single messages at a group.

Callers: the event loop's thread.
"""

from collections.abc import Callable
from enum import StrEnum

from msgspec import Struct

from libs.formats.records.delivery_record import Flight, Place
from services.delivery.engine.journal.group_time import GroupTime
from services.delivery.engine.state.groups import Groups
from services.delivery.engine.state.holders import Holders
from services.delivery.engine.state.queue import QueueState
from services.delivery.errors import GroupNotFound


class Stage(StrEnum):
    """How far a message is at a group; the names are those of the API."""

    NO_POSITION = "NO_POSITION"
    NOT_DELIVERED = "NOT_DELIVERED"
    IN_FLIGHT = "IN_FLIGHT"
    WAITING = "WAITING"
    DYING = "DYING"
    HELD = "HELD"
    SETTLED = "SETTLED"


class MessageState(Struct, frozen=True):
    """The state of a message at a group. Times are milliseconds since the epoch."""

    stage: Stage
    attempt: int = 0
    """Deliveries so far."""
    since_ms: int | None = None
    """When its receiver got it, or last extended its time."""
    until_ms: int | None = None
    """In flight: until when it is the receiver's. Waiting: from when on it may be delivered again."""
    connection_number: int = 0
    """The receiver's connection, 0 if it is not known."""
    before_count: int = 0
    """Not delivered: messages before it that are not delivered either."""
    behind_queue_offset: int | None = None
    """Held: the message in flight with the same ordering key; None if it waits for a member whose filter it passes."""


class MessageStates:
    """Tells the states of messages. `is_buried` returns whether the dead letter of a message is being written."""

    def __init__(
        self, groups: Groups, time: GroupTime, holders: Holders, is_buried: Callable[[QueueState, int], bool]
    ) -> None:
        self._groups, self._time, self._holders, self._is_buried = groups, time, holders, is_buried

    def of(self, group: str, topic: str, queue_id: int, offset: int) -> MessageState:
        """Return the state of a message, which may be one that the queue does not have. Raises GroupNotFound."""
        if not self._groups.is_known(group):
            raise GroupNotFound(group)
        queue = self._groups.find(Place(group, topic, queue_id))
        if queue is None:
            return MessageState(Stage.NO_POSITION)
        if (flight := queue.flight(offset)) is not None:
            return self._delivered(queue, flight)
        if queue.is_settled(offset):
            return MessageState(Stage.SETTLED)
        if queue.is_open(offset):
            return MessageState(Stage.HELD, behind_queue_offset=queue.blocker(offset))
        return MessageState(Stage.NOT_DELIVERED, before_count=queue.undelivered_before(offset))

    def _delivered(self, queue: QueueState, flight: Flight) -> MessageState:
        """Return the state of a message that was delivered and is not settled."""
        until_ms, number = self._time.shown_ms(flight.until_ms), self._holders.of(queue, flight)
        if flight.is_with_receiver(self._time.now_ms()):
            since_ms = self._time.shown_ms(flight.stamp)
            return MessageState(Stage.IN_FLIGHT, flight.attempt, since_ms, until_ms, number)
        attempts_max = self._groups.policy(queue.place.group).attempts_max
        is_dying = flight.attempt >= attempts_max or self._is_buried(queue, flight.offset)
        return MessageState(Stage.DYING if is_dying else Stage.WAITING, flight.attempt, None, until_ms, number)
