# SPDX-License-Identifier: Apache-2.0
"""Delivery: a stored message as a subscriber holds it, and its settlement."""

from collections.abc import Sequence
from typing import Any, Literal, Protocol, TypeAlias

from reput_client import Received, ReputError
from reput_client.aio import AsyncShareConsumer

Verb: TypeAlias = Literal["ack", "nack", "release", "terminate", "bury"]
"""The ways to settle, named as the methods of a share consumer."""
OUTDATED = "HANDLE_OUTDATED"


class Stored(Protocol):
    """The part of `reput_client.Message` that this package reads. `TestReputBroker` has messages of its own."""

    @property
    def topic(self) -> str:
        """The topic that it was appended to."""

    @property
    def body(self) -> bytes:
        """The body that the producer sent."""

    @property
    def properties(self) -> dict[str, str]:
        """All properties."""

    @property
    def tag(self) -> str | None:
        """The tag, None without a tag."""

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys."""

    @property
    def unique_id(self) -> str | None:
        """The unique id, None without a unique id."""

    @property
    def offset_message_id(self) -> str:
        """The id that names the record's place."""


class Delivery:
    """A message of a subscriber. It is settled once: later settlements have no effect.

    A reply has no consumer: its settlement is only noted.
    """

    __slots__ = ("attempt", "consumer", "failure", "is_settled", "message", "received")

    def __init__(self, message: Stored, consumer: AsyncShareConsumer | None = None, held: Received | None = None):
        self.message = message
        self.attempt = held.attempt if held is not None else 1
        self.is_settled = False
        self.failure: ReputError | None = None
        """The error because of which the store may not know the settlement."""
        self.consumer, self.received = consumer, held

    def __repr__(self) -> str:
        return f"Delivery({self.message!r}, attempt={self.attempt})"


def held_by(consumer: AsyncShareConsumer, received: Received) -> Delivery:
    """Return the delivery of a message that a consumer holds."""
    return Delivery(received.message, consumer, received)


async def settle(deliveries: Sequence[Delivery], verb: Verb, **options: Any) -> None:
    """Settle the deliveries that are not settled yet, all of the same consumer. Raises ReputError."""
    some = [one for one in deliveries if not one.is_settled]
    for one in some:
        one.is_settled = True
    held = [one.received for one in some if one.received is not None]
    consumer = next((one.consumer for one in some), None)
    if consumer is None or not held:
        return
    try:
        await getattr(consumer, verb)(*held, **options)
    except ReputError as error:
        if error.reason != OUTDATED:
            for one in some:
                one.failure = error
        raise


async def extend(deliveries: Sequence[Delivery], invisible_s: float) -> None:
    """Set the lease of deliveries that are not settled yet to `invisible_s` seconds from now. Raises ReputError."""
    some = [one for one in deliveries if not one.is_settled]
    held = [one.received for one in some if one.received is not None]
    consumer = next((one.consumer for one in some), None)
    if consumer is not None and held:
        await consumer.extend(*held, invisible_s=invisible_s)
