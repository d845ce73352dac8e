# SPDX-License-Identifier: Apache-2.0
"""Turns: the whole calls of a turn of the event loop, of all connections, are handed to their methods together.

A method that can answer at once needs no task for each call then. Invariants: a call that its caller has taken back
before the end of the turn reaches no method. Callers: a single event loop.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import grpc

from libs.runtime.http2.heads import Head, Metadata
from libs.runtime.http2.session.whole import WholeCall

Behaviour = Callable[[Any, Any], Any]
"""A coroutine function that answers a call: request and context in, answer out."""

Outcome = bytes | Behaviour
"""The answer of a call, or the behaviour that is to answer it."""

Turn = Callable[[Sequence[bytes], Sequence["TurnCall"]], Sequence[Outcome]]
"""Takes the requests of a turn with their calls, and returns the outcome of each. Does not raise."""

_log = logging.getLogger(__name__)


class TurnHandler(grpc.RpcMethodHandler):  # type: ignore[type-arg]
    """The handler of a unary method that also takes all requests of a turn together, by `turn`."""

    request_streaming = response_streaming = False
    request_deserializer = response_serializer = None
    unary_stream = stream_unary = stream_stream = None

    def __init__(self, unary_unary: Behaviour, turn: Turn | None = None, *, is_quick: bool = True) -> None:
        self.unary_unary = unary_unary
        self.turn = turn
        self.is_quick = is_quick
        """Whether the calls of a turn cost less together than alone."""


class Connection(Protocol):
    """The connection of a whole call."""

    peer: str
    when_lost: dict[object, Callable[[], None]]

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """Return the names of the caller's certificate, as gRPC has them."""
        ...

    def caller_of(self, head: Head) -> Any:
        """Return the caller of a call on it: itself, or a caller behind a door."""
        ...

    def waits(self, stream_id: int) -> bool:
        """Return whether a call waits for the end of the turn."""
        ...

    def answer_whole(self, event: WholeCall, message: bytes) -> None:
        """Answer a call."""
        ...

    def run_whole(self, event: WholeCall, handler: "grpc.RpcMethodHandler[Any, Any]") -> None:
        """Let a handler answer a call."""
        ...


class TurnCall:
    """A whole call that waits for the end of the turn. For its method it is the context, with names of grpc.aio."""

    __slots__ = ("event", "transport")

    def __init__(self, transport: Connection, event: WholeCall) -> None:
        self.transport = transport
        self.event = event

    @property
    def connection(self) -> Any:
        """The caller's connection, or the caller behind a door."""
        return self.transport.caller_of(self.event.head)

    def peer(self) -> str:
        """Return the caller's address in gRPC's notation."""
        origin = self.event.head.origin
        return self.transport.peer if origin is None else origin.peer

    def auth_context(self) -> Mapping[str, Sequence[bytes]]:
        """Return the names of the caller's certificate by gRPC's properties. Empty without a certificate."""
        origin = self.event.head.origin
        return self.transport.auth_context() if origin is None else origin.names

    def invocation_metadata(self) -> Metadata:
        """Return the metadata that the caller sent."""
        return self.event.head.invocation_metadata


class Turns:
    """The whole calls of a turn, by method. The methods are called in successive turns of the event loop.

    So the tasks of a method's calls, which count as running calls, have begun before the next method is called.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: dict[TurnHandler, list[TurnCall]] = {}

    def add(self, handler: TurnHandler, connection: Connection, event: WholeCall) -> None:
        """Add a call. It gets its outcome at the end of the turn."""
        if not self._calls:
            self._loop.call_soon(self._end)
        calls = self._calls.get(handler)
        if calls is None:
            self._calls[handler] = [TurnCall(connection, event)]
        else:
            calls.append(TurnCall(connection, event))

    def _end(self) -> None:
        handler = next(iter(self._calls))
        calls = self._calls.pop(handler)
        try:
            self._hand_over(handler, [call for call in calls if call.transport.waits(call.event.stream_id)])
        finally:
            if self._calls:
                self._loop.call_soon(self._end)

    def _hand_over(self, handler: TurnHandler, calls: list[TurnCall]) -> None:
        assert handler.turn is not None
        try:
            outcomes = handler.turn([call.event.message for call in calls], calls)
        except Exception:  # noqa: BLE001 - the boundary: the callers learn that, the log gets all of it
            _log.exception("the handler of a turn failed")
            outcomes = [_fail] * len(calls)
        for call, outcome in zip(calls, outcomes, strict=True):
            if isinstance(outcome, bytes):
                call.transport.answer_whole(call.event, outcome)
            else:
                call.transport.run_whole(call.event, TurnHandler(outcome))


async def _fail(_request: bytes, context: Any) -> bytes:
    await context.abort(grpc.StatusCode.UNKNOWN, "the handler failed")
    raise AssertionError
