# SPDX-License-Identifier: Apache-2.0
"""The parts that both producers share: `send`, the encoding of messages, and sinks of outcomes."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeAlias, TypeVar

from reput_client.core.encode import Encoder
from reput_client.core.errors import ReputError
from reput_client.core.options import ProducerOptions
from reput_client.core.sending import Outcome, Settlement, Sink, Stored
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
    """A future that is the sink of its own message: an object less per message shortens garbage collection.

    Its result is made of the columns of the batch when the program reads it for the first time.
    """

    stored: Stored | SendResult | None
    _row: Any
    """The result of the base class: the row of the message."""

    def note_failure(self, round_: Round, error: ReputError) -> None:
        """See Sink."""
        self.fail_unread(round_, error)

    def look(self: Any) -> Any:
        """See AskedFuture."""
        return super().look() if self.stored is None else self.read()

    def read(self: Any) -> SendResult:
        """Return the result of a message that is stored."""
        stored = self.stored
        if isinstance(stored, Stored):
            stored = self.stored = stored.at(self._row())
        return stored  # type: ignore[no-any-return]


class ManySink:
    """The sink of many messages: fills the list of outcomes of a future, in the order of the messages."""

    __slots__ = ("_future", "_outcomes", "_unsettled_count")

    def __init__(self, future: AnyFuture, message_count: int) -> None:
        self._future = future
        self._outcomes: list[Outcome | None] = [None] * message_count
        self._unsettled_count = message_count

    def settle(self, index: int, outcome: Outcome) -> None:
        """Accept the outcome of a message. Called a single time per message."""
        self._outcomes[index] = outcome
        self._unsettled_count -= 1
        if self._unsettled_count == 0 and not self._future.done():
            self._future.set_result(self._outcomes)

    def note_failure(self, round_: Round, error: ReputError) -> None:
        """See Sink."""
        self._future.fail_unread(round_, error)


class Place:
    """The sink of a message among many messages of a future. The methods are those of Sink."""

    __slots__ = ("_index", "_many", "stored")

    def __init__(self, many: ManySink, index: int) -> None:
        self._many, self._index = many, index
        self.stored: Stored | SendResult | None = None

    def done(self) -> bool:
        """Return False: a message of many can't be cancelled."""
        return False

    def set_result(self, row: int, /) -> None:
        """See Sink."""
        assert isinstance(self.stored, Stored)
        self._many.settle(self._index, self.stored.at(row))

    def set_exception(self, error: ReputError, /) -> None:
        """See Sink."""
        self._many.settle(self._index, error)

    def note_failure(self, round_: Round, error: ReputError) -> None:
        """See Sink."""
        self._many.note_failure(round_, error)


class SpanEncoder:
    """Encodes messages, in a span if the program uses tracing. Safe to call from any thread.

    `target` returns the current target of appends.
    """

    def __init__(self, options: ProducerOptions, target: Callable[[], str]) -> None:
        self._encoder = Encoder(makes_unique_ids=options.unique_ids, compressor=options.compressor())
        self._target, self._tracing = target, find_tracing()

    def one(self, message: NewMessage, future: Any) -> tuple[bytes, str]:
        """Return the chunk and the unique id of a message, whose outcome `future` gets. Raises as Encoder.encode."""
        if self._tracing is None:
            return self._encoder.encode(message)
        with self._tracing.sending([message], self._target(), future, is_batch=False) as carried:
            return self._encoder.encode(message, carried)

    def many(self, messages: Sequence[NewMessage], future: AnyFuture) -> list[tuple[bytes, str, Place]]:
        """Return chunk, unique id and sink of messages that share a future. Raises as `one`, for the first bad one."""
        if self._tracing is None:
            encoded = [self._encoder.encode(message) for message in messages]
        else:
            with self._tracing.sending(messages, self._target(), future, is_batch=True) as carried:
                encoded = [self._encoder.encode(message, carried) for message in messages]
        sink = ManySink(future, len(messages))
        return [(chunk, unique_id, Place(sink, index)) for index, (chunk, unique_id) in enumerate(encoded)]


def tell_given_up(message_count: int) -> None:
    """Log that a producer was closed with messages without an outcome: the program may not ask their futures."""
    if message_count:
        log.warning("a producer was closed before %d of its messages had an outcome", message_count)


def settle_all(settlements: Sequence[Settlement], unread: Unread | None = None) -> None:
    """Give outcomes to their sinks, and count failures.

    Called without a lock: a sink may call back into the producer.
    """
    for sinks, outcome in settlements:
        if isinstance(outcome, Stored):
            store(sinks, outcome)
        else:
            fail(sinks, outcome, unread)


Settle: TypeAlias = Callable[[Sequence[Settlement], Unread | None], None]
"""Gives outcomes to sinks, as settle_all does."""


def store(sinks: Sequence[Sink], stored: Stored) -> None:
    """Tell sinks that their messages are stored, in the order of the rows."""
    for row, sink in enumerate(sinks):
        if not sink.done():  # otherwise the program has cancelled it
            sink.stored = stored
            sink.set_result(row)


def fail(sinks: Sequence[Sink], error: ReputError, unread: Unread | None) -> None:
    """Tell sinks that their messages have failed, and count this."""
    if unread is not None:
        for sink in sinks:
            sink.note_failure(unread.round, error)
    for sink in sinks:
        if not sink.done():
            sink.set_exception(error)
