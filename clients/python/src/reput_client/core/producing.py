# SPDX-License-Identifier: Apache-2.0
"""The parts that both producers share: `send`, the encoding of messages, and sinks of outcomes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

from reput_client.core.encode import Encoder
from reput_client.core.errors import ReputError
from reput_client.core.options import ProducerOptions
from reput_client.core.sending import Entry, Outcome, Settlement
from reput_client.core.telemetry.log import log
from reput_client.core.telemetry.tracing import find_tracing
from reput_client.core.telemetry.unread import AnyFuture, AskedFuture, Round, Unread
from reput_client.core.types import NewMessage, SendResult, TimeLike

Sent = TypeVar("Sent")


class Sender(ABC, Generic[Sent]):
    """The base of producers: sends a message, given whole or by its fields. `Sent` is the type of the result."""

    @abstractmethod
    def send_message(self, message: NewMessage) -> Sent:
        """Send a message like `send`, given as a NewMessage."""

    def send(
        self,
        topic: str,
        body: bytes | bytearray | memoryview,
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
        deliver_at: TimeLike | None = None,
        delay_s: float | None = None,
    ) -> Sent:
        """Send a message. The arguments are the fields of NewMessage. Waits only while the window is full.

        The result of the future is a SendResult. If the message is not stored, the future fails with a ReputError. The
        call itself raises ValueError or TypeError for a message that can't be encoded, and ReputError after `close`.
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
                deliver_at=deliver_at,
                delay_s=delay_s,
            )
        )


class OneSink(AskedFuture):
    """A future that is the sink of its own message: an object less per message shortens garbage collection."""

    def settle(self: Any, _: int, outcome: Outcome) -> None:
        """See Sink."""
        if self.done():  # the caller has cancelled it
            return
        if isinstance(outcome, SendResult):
            self.set_result(outcome)
        else:
            self.set_exception(outcome)

    def note_failure(self, round_: Round, error: ReputError) -> None:
        """See Sink."""
        self.fail_unread(round_, error)


class ManySink:
    """The sink of many messages: fills the list of outcomes of a future, in the order of the messages."""

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

    def note_failure(self, round_: Round, error: ReputError) -> None:
        """See Sink."""
        self._future.fail_unread(round_, error)


class EntryEncoder:
    """Makes entries of messages: encodes them, in a span if the program uses tracing. Safe to call from any thread.

    `target` returns the current target of appends.
    """

    def __init__(self, options: ProducerOptions, target: Callable[[], str]) -> None:
        self._encoder = Encoder(makes_unique_ids=options.unique_ids, compressor=options.compressor())
        self._target, self._tracing = target, find_tracing()

    def one(self, message: NewMessage, future: Any) -> Entry:
        """Make the entry of a message whose future is its sink. Raises as Encoder.encode does."""
        if self._tracing is None:
            chunk, unique_id = self._encoder.encode(message)
        else:
            with self._tracing.sending([message], self._target(), future, is_batch=False) as carried:
                chunk, unique_id = self._encoder.encode(message, carried)
        return Entry(chunk, message.topic, unique_id, future, 0)

    def many(self, messages: Sequence[NewMessage], future: AnyFuture) -> list[Entry]:
        """Make the entries of messages that share a future. Raises as Encoder.encode, for the first bad message."""
        if self._tracing is None:
            encoded = [self._encoder.encode(message) for message in messages]
        else:
            with self._tracing.sending(messages, self._target(), future, is_batch=True) as carried:
                encoded = [self._encoder.encode(message, carried) for message in messages]
        sink = ManySink(future, len(messages))
        return [
            Entry(chunk, message.topic, unique_id, sink, sink_index)
            for sink_index, (message, (chunk, unique_id)) in enumerate(zip(messages, encoded, strict=True))
        ]


def tell_given_up(message_count: int) -> None:
    """Log that a producer was closed with messages without an outcome: the program may not ask their futures."""
    if message_count:
        log.warning("a producer was closed before %d of its messages had an outcome", message_count)


def settle_all(settlements: Sequence[Settlement], unread: Unread | None = None) -> None:
    """Give outcomes to their sinks, and count failures. Called without a lock: a sink may call back into the producer.

    A settlement has only results or only failures.
    """
    for entries, outcomes in settlements:
        if unread is not None and outcomes and isinstance(outcomes[0], ReputError):
            for entry in entries:
                entry.sink.note_failure(unread.round, outcomes[0])
        for entry, outcome in zip(entries, outcomes, strict=True):
            entry.sink.settle(entry.sink_index, outcome)
