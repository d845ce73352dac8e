# SPDX-License-Identifier: Apache-2.0
"""A connection without a socket: a caller's library on the other side, and bytes handed over by the test."""

import asyncio
import contextlib
import gc
import itertools
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any

import grpc
import ngh2
import pytest
from ngh2 import events

from libs.runtime.http2 import early_ends
from libs.runtime.http2.call import Call
from libs.runtime.http2.connection import Connection
from libs.runtime.http2.endpoint import WORK_A_TURN, WORK_OF_A_CALL
from libs.runtime.http2.framing import framed
from libs.runtime.http2.limits import ConnectionLimits
from libs.runtime.http2.server import Http2Server
from libs.runtime.rpc.fronts.in_loop import IncomingBudget
from tests.support.patience import eventually

pytestmark = pytest.mark.usefixtures("each_session")

BUDGET = 1 << 20
CALLS_A_TURN = WORK_A_TURN // WORK_OF_A_CALL + 1
REQUEST_BYTES_MAX = 900_000


def frame(message: bytes) -> bytes:
    """A message as it travels."""
    return b"".join(framed(message))


class Servicer:
    """Four methods, each of another kind."""

    def __init__(self) -> None:
        self.taken: list[bytes] = []
        self.cancelled_count = 0
        self.may_take = asyncio.Event()
        self.may_take.set()

    async def echo(self, request: bytes, context: Any) -> bytes:
        self.taken.append(request)
        return request[::-1]

    async def wait(self, request: bytes, context: Any) -> bytes:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            self.cancelled_count += 1
            raise
        return b""

    async def fail(self, request: bytes, context: Any) -> bytes:
        if request:
            await context.abort(grpc.StatusCode.NOT_FOUND, "no ü", (("a-bin", b"\0\1"),))
        raise ValueError(request)

    async def each(self, requests: AsyncIterator[bytes], context: Any) -> None:
        async for request in requests:
            await self.may_take.wait()
            self.taken.append(request)
            await context.write(request)

    async def many(self, request: bytes, context: Any) -> None:
        for _ in range(int(request)):
            await context.write(b"x" * 100_000)
            self.taken.append(b"")

    def handler(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            "s",
            {
                "Echo": grpc.unary_unary_rpc_method_handler(self.echo),
                "Wait": grpc.unary_unary_rpc_method_handler(self.wait),
                "Fail": grpc.unary_unary_rpc_method_handler(self.fail),
                "Each": grpc.stream_stream_rpc_method_handler(self.each),
                "Many": grpc.unary_stream_rpc_method_handler(self.many),
            },
        )


class Transport(asyncio.Transport):
    """A transport that keeps the written bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []
        self.is_closed = False
        self.is_reading = True

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("10.0.0.1", 99) if name == "peername" else default

    def close(self) -> None:
        self.is_closed = True

    abort = close

    def is_closing(self) -> bool:
        return self.is_closed

    def get_write_buffer_size(self) -> int:
        return 0

    def pause_reading(self) -> None:
        assert self.is_reading
        self.is_reading = False

    def resume_reading(self) -> None:
        assert not self.is_reading
        self.is_reading = True


class Pair:
    """A caller and the connection that serves it."""

    def __init__(self, server: Http2Server) -> None:
        self.transport = Transport()
        self.connection = Connection(server)
        self.connection.connection_made(self.transport)
        self.caller = ngh2.Connection(ngh2.Role.CLIENT, ngh2.Configuration())
        self.caller.initiate_connection()
        self.heads: dict[int, list[dict[bytes, bytes]]] = {}
        self.data: dict[int, bytes] = {}
        self.resets: dict[int, int] = {}

    def begin(self, method: str, *more: tuple[bytes, bytes], verb: bytes = b"POST", is_last: bool = False) -> int:
        fields = [(b":method", verb), (b":scheme", b"http"), (b":authority", b"x"), (b":path", f"/s/{method}".encode())]
        fields += [(b"content-type", b"application/grpc"), *more]
        return self.caller.send_request(fields, end_stream=is_last)

    def call(self, method: str, request: bytes, *more: tuple[bytes, bytes]) -> int:
        stream_id = self.begin(method, *more)
        self.caller.send_data(stream_id, frame(request), end_stream=True)
        self.pass_on()
        return stream_id

    def arrive(self, data: bytes) -> None:
        """Act as a transport with bytes from its socket."""
        while data:
            place = self.connection.get_buffer(-1)
            count = min(len(place), len(data))
            place[:count], data = data[:count], data[count:]
            self.connection.buffer_updated(count)

    def pass_on(self) -> None:
        """Pass bytes in both directions until neither side has any, as far as a turn of the loop allows."""
        while True:
            data = self.caller.data_to_send()
            if data:
                self.arrive(data)
            self.connection.flush()
            written, self.transport.written = self.transport.written, []
            for piece in written:
                self.caller.receive_data(piece)
                self._note(self.caller.events())
            if not data and not written:
                return

    async def end_of(self, stream_id: int) -> dict[bytes, bytes]:
        """Wait for the end of a call, and return its trailers."""

        def has_ended() -> bool:
            self.pass_on()
            return any(b"grpc-status" in head for head in self.heads.get(stream_id, []))

        await eventually(has_ended)
        return self.heads[stream_id][-1]

    def _note(self, found: list[Any]) -> None:
        for event in found:
            match event:
                case events.ResponseReceived() | events.TrailersReceived():
                    self.heads.setdefault(event.stream_id, []).append(dict(event.headers))
                case events.DataReceived():
                    self.data[event.stream_id] = self.data.get(event.stream_id, b"") + event.data
                case events.StreamReset():
                    self.resets[event.stream_id] = event.error_code
                case _:
                    pass


@contextlib.contextmanager
def serving(**limits: int) -> Iterator[tuple[Servicer, Http2Server, Callable[[], Pair]]]:
    """A server without sockets, and a way to connect to it."""
    server = Http2Server(
        ConnectionLimits(**limits),
        request_size_bytes_max=REQUEST_BYTES_MAX,
        incoming=IncomingBudget("full", BUDGET),
        call_count_max=100,
    )
    servicer = Servicer()
    server.add_generic_rpc_handlers([servicer.handler()])
    pairs: list[Pair] = []

    def connect() -> Pair:
        pairs.append(Pair(server))
        return pairs[-1]

    yield servicer, server, connect
    for pair in pairs:
        pair.connection.connection_lost(None)
    server.deadlines.close()
    assert (server.call_count, server.incoming.charged_bytes) == (0, 0)


async def test_a_call() -> None:
    """Head, message and trailers, and nothing is held afterwards."""
    with serving() as (_, server, connect):
        pair = connect()
        stream_id = pair.call("Echo", b"abc")
        assert await pair.end_of(stream_id) == {b"grpc-status": b"0"}
        assert pair.data[stream_id] == frame(b"cba")
        assert pair.heads[stream_id][0][b":status"] == b"200"
        assert server.call_count == 0


@pytest.mark.parametrize("method", ["Echo", "Fail", "Many", "Each", "Nothing", "Wait"])
async def test_a_call_that_has_ended_leaves_no_cycle(method: str) -> None:
    """A call that was served, failed, refused or taken back is freed without the cyclic collector."""
    with serving() as (_, _, connect):
        pair = connect()
        await pair.end_of(pair.call("Echo", b"1"))
        gc.collect()
        gc.disable()
        try:
            for _ in range(3):
                stream_id = pair.call(method, b"1")
                if method == "Wait":
                    await asyncio.sleep(0)
                    pair.caller.reset_stream(stream_id)
                    pair.pass_on()
                else:
                    await pair.end_of(stream_id)
            await eventually(lambda: not pair.connection.calls)
            await asyncio.sleep(0)
            assert [one for one in gc.get_objects() if isinstance(one, Call)] == []
        finally:
            gc.enable()


async def test_calls_that_come_together_leave_together() -> None:
    """The answers of a turn are a single write."""
    with serving() as (_, _, connect):
        pair = connect()
        pair.pass_on()
        ids = []
        for number in range(CALLS_A_TURN // 2):
            ids.append(pair.begin("Echo"))
            pair.caller.send_data(ids[-1], frame(b"%d" % number), end_stream=True)
        pair.arrive(pair.caller.data_to_send())
        pair.transport.written.clear()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(pair.transport.written) == 1
        for stream_id in ids:
            assert (await pair.end_of(stream_id))[b"grpc-status"] == b"0"


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [(b"x", {b"grpc-status": b"5", b"grpc-message": b"no %C3%BC", b"a-bin": b"AAE"}), (b"", {b"grpc-status": b"2"})],
)
async def test_a_failing_handler(request_bytes: bytes, status: dict[bytes, bytes]) -> None:
    """An abort arrives with its text and metadata; of a bug the caller learns no more than that."""
    with serving() as (_, _, connect):
        pair = connect()
        end = await pair.end_of(pair.call("Fail", request_bytes))
        assert status.items() <= end.items()


@pytest.mark.parametrize(
    ("parts", "status"),
    [
        ([], b"12"),
        ([frame(b"a"), frame(b"b")], b"12"),
        ([frame(b"abc")[:-1]], b"13"),
        ([frame(b"x" * (REQUEST_BYTES_MAX + 1))[:10]], b"8"),
        ([b"\1" + frame(b"x")[1:]], b"13"),
    ],
)
async def test_a_request_that_breaks_the_rules(parts: list[bytes], status: bytes) -> None:
    """A request that breaks the rules reaches no handler, and other calls of the connection continue."""
    with serving() as (servicer, _, connect):
        pair = connect()
        stream_id = pair.begin("Echo")
        for part in parts:
            pair.caller.send_data(stream_id, part)
        pair.caller.end_stream(stream_id)
        assert (await pair.end_of(stream_id))[b"grpc-status"] == status
        assert servicer.taken == []
        assert (await pair.end_of(pair.call("Echo", b"x")))[b"grpc-status"] == b"0"


async def test_what_nobody_serves(monkeypatch: pytest.MonkeyPatch) -> None:
    """UNIMPLEMENTED for an unknown method, 405 for GET, and no wait for the rest of the request."""
    monkeypatch.setattr(early_ends, "CUT_S", 0.05)
    with serving() as (_, _, connect):
        pair = connect()
        assert (await pair.end_of(pair.call("Nothing", b"")))[b"grpc-status"] == b"12"
        got = pair.begin("Echo", verb=b"GET", is_last=True)
        unfinished = pair.begin("Nothing")
        pair.pass_on()
        assert pair.heads[got] == [{b":status": b"405"}]
        assert unfinished not in pair.heads, "a caller that has said no word yet would not understand"
        assert (await pair.end_of(unfinished))[b"grpc-status"] == b"12"
        assert pair.heads[unfinished][0][b"grpc-status"] == b"12"
        assert pair.resets == {}, "a caller sees the end of its answer first"
        await eventually(lambda: pair.pass_on() or pair.resets == {unfinished: 0})


async def test_a_stream_both_ways() -> None:
    """Each request is answered when it arrives, and the call ends after the caller's end."""
    with serving() as (servicer, _, connect):
        pair = connect()
        stream_id = pair.begin("Each")
        for count, message in enumerate((b"a", b"bb"), start=1):
            pair.caller.send_data(stream_id, frame(message))
            pair.pass_on()
            await eventually(lambda count=count: len(servicer.taken) == count)
            pair.pass_on()
            assert pair.data[stream_id].endswith(message)
        pair.caller.end_stream(stream_id)
        assert (await pair.end_of(stream_id))[b"grpc-status"] == b"0"
        assert (servicer.taken, pair.data[stream_id]) == ([b"a", b"bb"], frame(b"a") + frame(b"bb"))


async def test_requests_that_nobody_takes_stay_with_the_caller() -> None:
    """The bytes held are bounded, other calls continue, and a call beyond the budget is refused."""
    with serving() as (servicer, server, connect):
        pair = connect()
        servicer.may_take.clear()
        stream_id = pair.begin("Each")
        count = 200
        for _ in range(count):
            pair.caller.send_data(stream_id, frame(b"x" * 100_000))
        for _ in range(20):
            with contextlib.suppress(Exception):
                pair.pass_on()
            await asyncio.sleep(0)
        assert server.incoming.charged_bytes <= BUDGET
        assert (await pair.end_of(stream_id))[b"grpc-status"] == b"8", "beyond the budget it is refused"
        assert (await pair.end_of(pair.call("Echo", b"x")))[b"grpc-status"] == b"0"


async def test_a_connection_lives_on_after_many_calls_that_were_cut() -> None:
    """The bytes of calls that were cut are returned to the connection's window, so that the connection continues."""
    with serving() as (servicer, _, connect):
        pair = connect()
        servicer.may_take.clear()
        for _ in range(2 * ConnectionLimits().connection_window_size_bytes // 200_000):
            stream_id = pair.begin("Each")
            for _ in range(2):
                pair.caller.send_data(stream_id, frame(b"x" * 399_000))
            pair.pass_on()
            await asyncio.sleep(0)
            pair.caller.reset_stream(stream_id)
            pair.pass_on()
        assert (await pair.end_of(pair.call("Echo", b"x" * 500_000)))[b"grpc-status"] == b"0"


async def test_many_calls_at_once_take_many_turns() -> None:
    """Many calls are handled over several turns of the event loop, with a limited number in each turn.

    The connection reads nothing more meanwhile, and all calls are answered.
    """
    with serving() as (servicer, server, connect):
        pair = connect()
        pair.pass_on()
        for _ in range(90):
            pair.caller.send_data(stream_id := pair.begin("Echo"), frame(b"x"), end_stream=True)
        pair.arrive(pair.caller.data_to_send())
        seen, taken_count = [(server.call_count, pair.transport.is_reading)], 0
        while len(servicer.taken) < 90:
            await asyncio.sleep(0)
            seen.append((server.call_count, pair.transport.is_reading))
            assert len(servicer.taken) - taken_count <= CALLS_A_TURN
            taken_count = len(servicer.taken)
        assert (CALLS_A_TURN, False) in seen
        assert max(after[0] - before[0] for before, after in itertools.pairwise(seen)) <= CALLS_A_TURN
        assert (await pair.end_of(stream_id))[b"grpc-status"] == b"0"
        await eventually(lambda: pair.transport.is_reading)


async def test_a_caller_that_does_not_read() -> None:
    """The handler of a caller that does not read waits, and continues when the caller reads again."""
    with serving() as (servicer, _, connect):
        pair = connect()
        pair.pass_on()
        pair.connection.pause_writing()
        stream_id = pair.begin("Many")
        pair.caller.send_data(stream_id, frame(b"20"), end_stream=True)
        pair.arrive(pair.caller.data_to_send())
        for _ in range(20):
            await asyncio.sleep(0)
        assert (len(servicer.taken), pair.transport.written) == (0, [])
        pair.connection.resume_writing()
        assert (await pair.end_of(stream_id))[b"grpc-status"] == b"0"
        assert len(pair.data[stream_id]) == 20 * 100_005


async def test_deadlines_and_cancellation() -> None:
    """The handler ends at its deadline, and the caller gets the status; a call that was taken back gets no answer."""
    with serving() as (servicer, _, connect):
        pair = connect()
        late = pair.call("Wait", b"", (b"grpc-timeout", b"30m"))
        assert (await pair.end_of(late))[b"grpc-status"] == b"4"
        half = pair.begin("Echo", (b"grpc-timeout", b"30m"))
        assert (await pair.end_of(half))[b"grpc-status"] == b"4"
        taken_back = pair.call("Wait", b"")
        await asyncio.sleep(0)
        pair.caller.reset_stream(taken_back)
        pair.pass_on()
        await eventually(lambda: servicer.cancelled_count == 2)
        assert taken_back not in pair.heads


async def test_a_request_that_never_ends() -> None:
    """An incomplete request ends at the server's limit; a stream or a complete call does not."""
    with serving(call_request_timeout_ms=100) as (_, server, connect):
        pair = connect()
        half, hurried = pair.begin("Echo"), pair.begin("Echo", (b"grpc-timeout", b"1H"))
        for stream_id in (half, hurried):
            pair.caller.send_data(stream_id, frame(b"x" * 50_000)[:20_000])
        whole, stream = pair.call("Wait", b"", (b"grpc-timeout", b"1H")), pair.begin("Each")
        for stream_id in (half, hurried):
            assert (await pair.end_of(stream_id))[b"grpc-status"] == b"4"
        await eventually(lambda: pair.pass_on() or server.call_count == 2)
        await asyncio.sleep(0.2)
        assert {call.stream_id for call in pair.connection.calls} == {whole, stream}
        assert server.connections.counts.late_requests == 2


async def test_a_call_is_taken_back_while_its_handler_answers() -> None:
    """The connection continues if the library knows that a call is taken back before its handler does."""
    with serving() as (servicer, _, connect):
        pair = connect()
        servicer.may_take.clear()
        pair.caller.send_data(taken_back := pair.begin("Each"), frame(b"x"))
        pair.pass_on()
        await asyncio.sleep(0)
        others = [pair.begin("Echo") for _ in range(2 * CALLS_A_TURN)]
        for stream_id in others:
            pair.caller.send_data(stream_id, frame(b"x"), end_stream=True)
        said = pair.caller.data_to_send()
        pair.caller.reset_stream(taken_back)
        pair.arrive(said + pair.caller.data_to_send())
        servicer.may_take.set()
        for stream_id in others:
            assert (await pair.end_of(stream_id))[b"grpc-status"] == b"0"
        assert not pair.transport.is_closed


async def test_a_deadline_that_passes_before_the_handler_has_begun() -> None:
    """The caller gets DEADLINE_EXCEEDED, although the handler has not begun."""
    with serving() as (servicer, _, connect):
        pair = connect()
        stream_id = pair.call("Wait", b"")
        (call,) = pair.connection.calls
        call.expire()
        assert (await pair.end_of(stream_id))[b"grpc-status"] == b"4"
        assert servicer.cancelled_count == 0


async def test_a_caller_that_is_gone() -> None:
    """When the connection is lost its handlers end, and the waiting bytes are freed."""
    with serving() as (servicer, server, connect):
        pair = connect()
        pair.call("Wait", b"")
        pair.call("Many", b"100")
        half = pair.begin("Echo")
        pair.caller.send_data(half, frame(b"x" * 50_000)[:1_000])
        pair.pass_on()
        await asyncio.sleep(0)
        assert server.call_count == 3
        pair.connection.connection_lost(None)
        await eventually(lambda: servicer.cancelled_count == 1)
        assert (server.call_count, server.incoming.charged_bytes) == (0, 0)


@pytest.mark.parametrize(
    "data", [b"GET / HTTP/1.1\r\n\r\n", b"\0" * 100, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\1\0\0\0\0\0\0\0"]
)
async def test_what_is_no_http2(data: bytes) -> None:
    """Bytes that are not HTTP/2 close the connection, without an exception."""
    with serving() as (_, _, connect):
        pair = connect()
        pair.arrive(data)
        pair.connection.flush()
        assert pair.transport.is_closed
        pair.arrive(data)
