# SPDX-License-Identifier: Apache-2.0
"""Methods that take all requests of a turn of the loop together."""

import asyncio
import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grpc
import pytest

from libs.runtime.http2.server import Http2Server
from libs.runtime.http2.turns import Outcome, TurnCall, TurnHandler
from tests.support.patience import eventually
from tests.unit.libs.runtime.http2.test_connection import Pair, frame, serving

pytestmark = pytest.mark.usefixtures("each_session")


class Method:
    """Answers requests of a turn, each as its first byte says."""

    def __init__(self) -> None:
        self.turns: list[list[bytes]] = []
        self.peers: list[str] = []
        self.alone: list[bytes] = []

    def take(self, requests: Sequence[bytes], calls: Sequence[TurnCall]) -> list[Outcome]:
        self.turns.append(list(requests))
        self.peers += [call.peer() for call in calls]
        if b"raise" in requests:
            raise ValueError
        return [self.run if request[:1] == b"a" else request[::-1] for request in requests]

    async def run(self, request: bytes, context: Any) -> bytes:
        self.alone.append(request)
        if request == b"abort":
            await context.abort(grpc.StatusCode.NOT_FOUND, "none")
        await asyncio.sleep(0)
        return request

    def handler(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler("t", {"Turn": TurnHandler(self.run, self.take)})


@contextlib.contextmanager
def turning(**limits: int) -> Iterator[tuple[Method, Http2Server, Callable[[], Pair]]]:
    with serving(**limits) as (_, server, connect):
        method = Method()
        server.add_generic_rpc_handlers([method.handler()])

        def ready() -> Pair:
            pair = connect()
            pair.pass_on()
            return pair

        yield method, server, ready


def begin(pair: Pair, message: bytes, path: bytes = b"/t/Turn") -> int:
    """Begin a call, without passing it on."""
    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"x"), (b":path", path)]
    stream_id = pair.caller.send_request([*fields, (b"content-type", b"application/grpc")])
    pair.caller.send_data(stream_id, frame(message), end_stream=True)
    return stream_id


async def test_calls_of_a_turn_are_taken_together() -> None:
    """Calls of two connections are one turn, and the answers of a connection are a single write."""
    with turning() as (method, server, connect):
        pairs = [connect(), connect()]
        streams = [(pair, begin(pair, b"%d" % number)) for pair in pairs for number in range(10, 15)]
        for pair in pairs:
            pair.arrive(pair.caller.data_to_send())
        assert server.call_count == 10
        await asyncio.sleep(0)
        assert method.turns == [[b"%d" % number for number in range(10, 15)] * 2]
        assert method.peers == ["ipv4:10.0.0.1:99"] * 10
        await asyncio.sleep(0)
        assert [len(pair.transport.written) for pair in pairs] == [1, 1]
        for pair, stream_id in streams:
            assert await pair.end_of(stream_id) == {b"grpc-status": b"0"}
        assert pairs[1].data[streams[-1][1]] == frame(b"41")
        assert (server.call_count, method.alone, pairs[0].connection.is_idle) == (0, [], True)


async def test_methods_are_called_in_successive_turns() -> None:
    """The tasks of a method's calls have begun before the next method is called."""
    events: list[str] = []

    class Noting(Method):
        def take(self, requests: Sequence[bytes], calls: Sequence[TurnCall]) -> list[Outcome]:
            events.append("turn")
            return super().take(requests, calls)

        async def run(self, request: bytes, context: Any) -> bytes:
            events.append("task")
            return await super().run(request, context)

    with turning() as (_, server, connect):
        method = Noting()
        table = {name: TurnHandler(method.run, method.take) for name in ("Turn", "Other")}
        server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler("u", table)])
        pair = connect()
        streams = [begin(pair, b"alone", path=b"/u/" + name) for name in (b"Turn", b"Other", b"Turn")]
        pair.pass_on()
        assert [(await pair.end_of(stream_id))[b"grpc-status"] for stream_id in streams] == [b"0"] * 3
        assert events == ["turn", "task", "task", "turn", "task"]


async def test_a_call_may_need_its_handler() -> None:
    """A call whose outcome is a behaviour gets a task and a context, the others of its turn do not."""
    with turning() as (method, server, connect):
        pair = connect()
        streams = [begin(pair, message) for message in (b"xy", b"alone", b"abort")]
        pair.pass_on()
        ends = [await pair.end_of(stream_id) for stream_id in streams]
        assert [end[b"grpc-status"] for end in ends] == [b"0", b"0", b"5"]
        assert [pair.data.get(stream_id) for stream_id in streams] == [frame(b"yx"), frame(b"alone"), None]
        assert method.alone == [b"alone", b"abort"]
        await eventually(lambda: pair.pass_on() or server.call_count == 0)


async def test_a_request_in_pieces_is_for_the_handler() -> None:
    """A call that does not arrive whole is answered by the method's handler for single calls."""
    with turning() as (method, _, connect):
        pair = connect()
        stream_id = begin(pair, b"x" * 100_000)
        data = pair.caller.data_to_send()
        pair.arrive(data[:5_000])
        pair.arrive(data[5_000:])
        assert (await pair.end_of(stream_id))[b"grpc-status"] == b"0"
        assert (method.turns, [len(request) for request in method.alone]) == ([], [100_000])


@pytest.mark.parametrize("is_together", [True, False])
async def test_a_call_that_is_taken_back_reaches_no_method(is_together: bool) -> None:
    """The reset arrives with the call or after it, before the end of the turn."""
    with turning() as (method, server, connect):
        pair = connect()
        stream_id, other = begin(pair, b"gone"), begin(pair, b"stays")
        said = pair.caller.data_to_send()
        pair.caller.reset_stream(stream_id)
        reset = pair.caller.data_to_send()
        for data in (said + reset,) if is_together else (said, reset):
            pair.arrive(data)
        assert (await pair.end_of(other))[b"grpc-status"] == b"0"
        assert (method.turns, server.call_count) == ([[b"stays"]], 0)


async def test_a_connection_that_is_lost_before_the_end_of_the_turn() -> None:
    """No method sees its calls, and none of them stays counted."""
    with turning() as (method, server, connect):
        pair, other = connect(), connect()
        begin(pair, b"gone")
        pair.arrive(pair.caller.data_to_send())
        assert (server.call_count, pair.connection.is_idle) == (1, False)
        pair.connection.connection_lost(None)
        assert (await other.end_of(begin(other, b"stays")))[b"grpc-status"] == b"0"
        assert (method.turns, server.call_count) == ([[b"stays"]], 0)


async def test_a_method_that_raises(caplog: pytest.LogCaptureFixture) -> None:
    """All calls of the turn end with UNKNOWN, and the connection continues."""
    with turning() as (_, server, connect):
        pair = connect()
        streams = [begin(pair, message) for message in (b"x", b"raise")]
        pair.pass_on()
        assert [(await pair.end_of(stream_id))[b"grpc-status"] for stream_id in streams] == [b"2", b"2"]
        assert (await pair.end_of(begin(pair, b"y")))[b"grpc-status"] == b"0"
        assert "a turn failed" in caplog.text
        await eventually(lambda: pair.pass_on() or server.call_count == 0)


async def test_answers_that_are_not_read_are_counted() -> None:
    """Calls stay counted until their answers have left, and calls beyond the maximum are refused."""
    with turning() as (method, server, connect):
        pair = connect()
        pair.connection.pause_writing()
        streams = [begin(pair, b"%d" % number) for number in range(120)]
        pair.arrive(pair.caller.data_to_send())
        for _ in range(10):
            await asyncio.sleep(0)
        assert (server.call_count, sum(map(len, method.turns)), pair.connection.is_idle) == (100, 100, False)
        pair.connection.resume_writing()
        ends = [(await pair.end_of(stream_id))[b"grpc-status"] for stream_id in streams]
        assert ends == [b"0"] * 100 + [b"8"] * 20
        await eventually(lambda: pair.pass_on() or (server.call_count, pair.connection.is_idle) == (0, True))


async def test_a_lost_connection_with_unread_answers() -> None:
    """Calls whose answers can't leave any more are not counted after the connection is lost."""
    with turning() as (_, server, connect):
        pair = connect()
        pair.connection.pause_writing()
        for _ in range(5):
            begin(pair, b"x")
        pair.arrive(pair.caller.data_to_send())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert server.call_count == 5
        pair.connection.connection_lost(None)
        assert server.call_count == 0
