# SPDX-License-Identifier: Apache-2.0
"""ReputMessage and ReputBatchMessage: the `message` in the context of a handler."""

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from faststream.message import StreamMessage

from faststream_reput.messages.delivery import Delivery, Verb, extend, settle

Mark = Callable[[], Awaitable[None]]
"""A method of FastStream's message, which notes how it was settled."""


class ReputMessage(StreamMessage[Delivery]):
    """A message of a topic. Only the first settlement of a message has an effect."""

    @property
    def _deliveries(self) -> Sequence[Delivery]:
        return [self.raw_message]

    @property
    def topic(self) -> str:
        """The topic that it was published to."""
        return self.raw_message.message.topic

    @property
    def attempt(self) -> int:
        """The number of deliveries to the group, with this delivery."""
        return self.raw_message.attempt

    @property
    def tag(self) -> str | None:
        """The tag, None without a tag."""
        return self.raw_message.message.tag

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys."""
        return self.raw_message.message.keys

    async def ack(self) -> None:
        """Acknowledge: the message is done."""
        await _settle(self, "ack", super().ack)

    async def nack(self, delay_s: float | None = None) -> None:
        """Give the message back, to come again after `delay_s` seconds. None is the delay of the group's policy."""
        await _settle(self, "nack", super().nack, delay_s=delay_s)

    async def reject(self) -> None:
        """Make the message a dead letter of the group."""
        await _settle(self, "bury", super().reject)

    async def terminate(self) -> None:
        """Give the message up: it does not come again, and does not become a dead letter."""
        await _settle(self, "terminate", super().reject)

    async def extend(self, invisible_s: float) -> None:
        """Extend the lease to `invisible_s` seconds from now. The subscriber also does it by itself."""
        await extend(self._deliveries, invisible_s)


class ReputBatchMessage(StreamMessage[tuple[Delivery, ...]]):
    """Messages of a topic that a handler gets together, and that are settled together."""

    @property
    def attempts(self) -> tuple[int, ...]:
        """The number of deliveries of each message, with this delivery."""
        return tuple(one.attempt for one in self.raw_message)

    async def ack(self) -> None:
        """Acknowledge all messages: they are done."""
        await _settle(self, "ack", super().ack)

    async def nack(self, delay_s: float | None = None) -> None:
        """Give all messages back, to come again after `delay_s` seconds. None is the delay of the group's policy."""
        await _settle(self, "nack", super().nack, delay_s=delay_s)

    async def reject(self) -> None:
        """Make all messages dead letters of the group."""
        await _settle(self, "bury", super().reject)


async def _settle(message: StreamMessage[Any], verb: Verb, mark: Mark, **options: Any) -> None:
    """Settle a message by a verb, unless it is settled, and note it as FastStream does."""
    if message.committed is None:
        raw = message.raw_message
        await settle(raw if isinstance(raw, tuple) else (raw,), verb, **options)
    await mark()
