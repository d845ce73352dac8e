# SPDX-License-Identifier: Apache-2.0
"""Turns: the whole calls of a turn of the event loop, of all connections, are handed to their methods together.

A method that can answer at once needs no task for each call then. Invariants: a call that its caller has taken back
before the end of the turn reaches no method. Callers: a single event loop.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import grpc

from libs.runtime.http2.session.whole import WholeCall

Behaviour = Callable[[Any, Any], Any]
"""A coroutine function that answers a call: request and context in, answer out."""

Outcome = bytes | Behaviour
"""The answer of a call, or the behaviour that is to answer it."""

Turn = Callable[[Sequence[bytes], Sequence[str]], Sequence[Outcome]]
"""Takes the requests of a turn with the addresses of their callers, and returns the outcome of each. Does not raise."""

_log = logging.getLogger(__name__)


class TurnHandler(grpc.RpcMethodHandler):  # type: ignore[type-arg]
    """The handler of a unary method that also takes all requests of a turn together, by `turn`."""

    request_streaming = response_streaming = False
    request_deserializer = response_serializer = None
    unary_stream = stream_unary = stream_stream = None

    def __init__(self, unary_unary: Behaviour, turn: Turn | None = None) -> None:
        self.unary_unary = unary_unary
        self.turn = turn


class Connection(Protocol):
    """The connection of a whole call."""

    peer: str

    def waits(self, stream_id: int) -> bool:
        """Return whether a call waits for the end of the turn."""
        ...

    def answer_whole(self, event: WholeCall, message: bytes) -> None:
        """Answer a call."""
        ...

    def run_whole(self, event: WholeCall, handler: "grpc.RpcMethodHandler[Any, Any]") -> None:
        """Let a handler answer a call."""
        ...


class Turns:
    """The whole calls of a turn, by method."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._calls: dict[TurnHandler, list[tuple[Connection, WholeCall]]] = {}

    def add(self, handler: TurnHandler, connection: Connection, event: WholeCall) -> None:
        """Add a call. It gets its outcome at the end of the turn."""
        if not self._calls:
            self._loop.call_soon(self._end)
        calls = self._calls.get(handler)
        if calls is None:
            self._calls[handler] = [(connection, event)]
        else:
            calls.append((connection, event))

    def _end(self) -> None:
        ended, self._calls = self._calls, {}
        for handler, calls in ended.items():
            self._hand_over(handler, [call for call in calls if call[0].waits(call[1].stream_id)])

    def _hand_over(self, handler: TurnHandler, calls: list[tuple[Connection, WholeCall]]) -> None:
        assert handler.turn is not None
        try:
            outcomes = handler.turn([event.message for _, event in calls], [connection.peer for connection, _ in calls])
        except Exception:  # noqa: BLE001 - the boundary: the callers learn that, the log gets all of it
            _log.exception("the handler of a turn failed")
            outcomes = [_fail] * len(calls)
        for (connection, event), outcome in zip(calls, outcomes, strict=True):
            if isinstance(outcome, bytes):
                connection.answer_whole(event, outcome)
            else:
                connection.run_whole(event, TurnHandler(outcome))


async def _fail(_request: bytes, context: Any) -> bytes:
    await context.abort(grpc.StatusCode.UNKNOWN, "the handler failed")
    raise AssertionError
