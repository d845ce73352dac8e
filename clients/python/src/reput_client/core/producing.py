# SPDX-License-Identifier: Apache-2.0
"""What both producers share: options, sinks, `send`, and the set-up of the send queue."""

import asyncio
import concurrent.futures
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeAlias, TypeVar

from reput_client.core.encode import Encoder
from reput_client.core.retry import RetryPolicy
from reput_client.core.sending import Entry, Outcome, SendQueue, Settlement, Sink
from reput_client.core.types import Durability, NewMessage, SendResult

Sent = TypeVar("Sent")
AnyFuture: TypeAlias = "asyncio.Future[Any] | concurrent.futures.Future[Any]"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How a producer batches, waits and retries."""

    linger_ms: float = 5.0
    """How long the first message of a batch waits for company."""

    batch_size_bytes: int = 512 << 10
    """A batch is sent when it has this many bytes, whatever its age. At most 8 MiB."""

    window_bytes: int = 8 << 20
    """Bytes of messages whose outcome is not known yet; `send` waits while there are more."""

    durability: Durability = Durability.DEFAULT
    """What the store waits for before it answers."""

    retry: RetryPolicy = field(default_factory=RetryPolicy)
    """When failed attempts are repeated. RetryPolicy(retries=0) never repeats, so no message is stored twice."""

    unique_ids: bool = True
    """Give each message without a unique id one of its own."""

    def __post_init__(self) -> None:
        if self.linger_ms < 0:
            raise ValueError("linger_ms is negative")
        if not 0 < self.batch_size_bytes <= min(self.window_bytes, 8 << 20):
            raise ValueError("batch_size_bytes must be at least 1, at most window_bytes and at most 8 MiB")

    def send_queue(self) -> SendQueue:
        """Return a fresh queue with these options."""
        return SendQueue(
            batch_size_bytes=self.batch_size_bytes,
            window_bytes=self.window_bytes,
            linger_s=self.linger_ms / 1000,
            retry=self.retry,
        )


class Sender(ABC, Generic[Sent]):
    """What sends one message, whole or by its fields; `Sent` is what comes of it."""

    @abstractmethod
    def send_message(self, message: NewMessage) -> Sent:
        """Do as `send` does, for a message that is made already."""

    def send(
        self,
        topic: str,
        body: bytes,
        *,
        tag: str | None = None,
        keys: str | Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        queue_id: int | None = None,
        sharding_key: str | None = None,
        unique_id: str | None = None,
        flag: int = 0,
        born_time_ms: int | None = None,
        delay_level: int = 0,
    ) -> Sent:
        """Send one message. The fields are those of NewMessage. Waits only while the window is full.

        The future fails with a ReputError. Raises ValueError or TypeError for a message that can't be encoded, and
        ReputError after `close`.
        """
        return self.send_message(
            NewMessage(
                topic,
                body,
                tag,
                keys,
                properties or {},
                queue_id,
                sharding_key,
                unique_id,
                flag,
                born_time_ms,
                delay_level=delay_level,
            )
        )


class OneSink:
    """Makes a future the sink of its one message: an object less for each message is a shorter garbage collection."""

    __slots__ = ()

    def settle(self: Any, _: int, outcome: Outcome) -> None:
        """See Sink."""
        if self.done():  # the caller has cancelled it
            return
        if isinstance(outcome, SendResult):
            self.set_result(outcome)
        else:
            self.set_exception(outcome)


class ManySink:
    """The outcomes of many messages: a future of a list in the order of the messages."""

    __slots__ = ("_future", "_outcomes", "_unsettled_count")

    def __init__(self, future: AnyFuture, message_count: int) -> None:
        self._future = future
        self._outcomes: list[Outcome | None] = [None] * message_count
        self._unsettled_count = message_count

    def settle(self, sink_index: int, outcome: Outcome) -> None:
        """See Sink."""
        self._outcomes[sink_index] = outcome
        self._unsettled_count -= 1
        if self._unsettled_count == 0 and not self._future.done():
            self._future.set_result(self._outcomes)


def encode_all(encoder: Encoder, messages: Iterable[NewMessage], sink: Sink) -> list[Entry]:
    """Make the entries of one sink. Raises ValueError or TypeError for the first message that can't be encoded."""
    entries = []
    for sink_index, message in enumerate(messages):
        chunk, unique_id = encoder.encode(message)
        entries.append(Entry(chunk, message.topic, unique_id, sink, sink_index))
    return entries


def settle_all(settlements: Sequence[Settlement]) -> None:
    """Give outcomes to their sinks. Called without a lock: a sink may call back into the producer."""
    for entries, outcomes in settlements:
        for entry, outcome in zip(entries, outcomes, strict=True):
            entry.sink.settle(entry.sink_index, outcome)
