# SPDX-License-Identifier: Apache-2.0
"""The two builds of the session say the same for the same bytes, honest and hostile, in any pieces.

REPUT_HTTP2_CONNECTIONS=100000 tries more connections than the suite does.
"""

import itertools
import os
import random
from collections.abc import Sequence
from typing import Any

import grpc
import ngh2
import pytest

from libs.runtime.http2 import wire as h2
from libs.runtime.http2.framing import CallRefused, framed
from libs.runtime.http2.heads import HEAD, Fields, Head, HttpRefused
from libs.runtime.http2.limits import ConnectionLimits
from libs.runtime.http2.session.opener import SessionLimits
from libs.runtime.http2.session.plain import PlainSession
from libs.runtime.http2.session.whole import WholeCall
from tests.attack.frames import Frames
from tests.support.session_builds import build_of
from tests.unit.libs.runtime.http2.test_hostile import harmed, session

CONNECTION_COUNT = int(os.environ.get("REPUT_HTTP2_CONNECTIONS", "400"))
MESSAGE_BYTES_MAX = 100_000
BEGINNINGS = ("WholeCall", "RequestReceived")
UNARY = ("/s/Echo", "/s/Wait", "/s/Fail", "/s/Many")


def head_of(fields: Fields) -> Head | None:
    """Return the head of a unary call."""
    try:
        head = Head(fields)
        head.check()
    except (HttpRefused, CallRefused):
        return None
    return head if head.method in UNARY else None


def opened(name: str) -> PlainSession:
    limits = ConnectionLimits(call_reset_count_max=50, call_resets_per_s_max=1, connection_call_count_max=100)
    return build_of(name)(SessionLimits(limits, MESSAGE_BYTES_MAX, head_of))


class Side:
    """A session, with all that it has said for each stream."""

    def __init__(self, name: str) -> None:
        self.session = opened(name)
        self.said: dict[int, list[Any]] = {}
        self.written = b""
        self.broken: type | None = None
        self.unacknowledged: dict[int, int] = {}

    def receive(self, data: bytes) -> list[Any]:
        """Pass bytes on. Returns the streams of new calls, with their kind."""
        return self._done(lambda: self.session.receive_data(data))

    def _done(self, act: Any) -> list[Any]:
        if self.broken is not None:
            return []
        try:
            act()
            found = self.session.events()
        except h2.WireError as error:
            self.broken = type(error)
            return []
        return [self._note(event) for event in found]

    def _note(self, event: Any) -> tuple[int, str]:
        kind = type(event).__name__
        said = self.said.setdefault(getattr(event, "stream_id", 0), [])
        match event:
            case WholeCall():
                said.append((kind, event.head.method, event.head.encoding, event.timeout_s, event.message))
                assert event.head.invocation_metadata is not None
            case h2.RequestReceived():
                said.append((kind, event.headers, event.end_stream))
            case h2.DataReceived():
                if said and said[-1][0] == kind:
                    said[-1] = (kind, said[-1][1] + event.data, event.end_stream)
                else:
                    said.append((kind, event.data, event.end_stream))
                self.unacknowledged[event.stream_id] = self.unacknowledged.get(event.stream_id, 0) + len(event.data)
            case h2.StreamReset():
                said.append((kind, event.error_code))
            case h2.TrailersReceived() | h2.ConnectionClosed():
                said.append((kind,))
            case h2.StreamClosed() if any(one[0] in BEGINNINGS for one in said):  # else its head was refused
                said.append((kind, event.error_code))
            case _:
                pass
        return getattr(event, "stream_id", 0), kind

    def act(self, what: str, stream_id: int, message: bytes) -> str:
        """Answer, reset or acknowledge. Returns the name of the error."""
        try:
            match what:
                case "answer":
                    self.session.answer(stream_id, message)
                case "count":
                    self.session.answer(stream_id, message, True)
                case "refuse":
                    self.session.send_response(stream_id, HEAD, end_stream=True)
                case "reset":
                    self.session.reset_stream(stream_id, 0)
                case "stream":
                    self.session.send_response(stream_id, HEAD)
                    self.session.send_message(stream_id, message)
                    self.session.send_message(stream_id, message)
                    self.session.send_trailers(stream_id, ((b"grpc-status", b"3"), (b"x", b"y")))
                case "notice":
                    self.session.send_shutdown_notice()
                case "goodbye":
                    self.session.send_goaway()
                case _:
                    size_bytes = self.unacknowledged.pop(stream_id, 0)
                    self.session.acknowledge_received_data(size_bytes, stream_id)
        except h2.StreamError:
            return "stream"
        except h2.WireError as error:
            return type(error).__name__
        return ""

    def send(self, amount: int) -> None:
        """Take the bytes that are ready."""

        def send() -> None:
            while parts := self.session.parts_to_send(amount):
                self.written += b"".join(bytes(part) for part in parts)

        self._done(send)

    @property
    def outcome(self) -> Any:
        """All that it has said."""
        return self.broken, {number: said for number, said in self.said.items() if said}


def same(chance: random.Random, pieces: Sequence[bytes]) -> None:
    """Give both builds the same bytes and answers, and compare all that they say and send."""
    sides = Side("compiled"), Side("plain")
    calls: list[int] = []
    for piece in pieces:
        found = [side.receive(piece) for side in sides]
        calls += [stream_id for stream_id, kind in found[1] if kind in BEGINNINGS]
        assert sides[0].outcome == sides[1].outcome
        for _ in range(chance.randint(0, 2) if calls else 0):
            what = chance.choice(("answer", "answer", "count", "refuse", "reset", "stream", "acknowledge", "none"))
            if chance.random() < 0.01:
                what = chance.choice(("notice", "goodbye"))
            stream_id = chance.choice(calls)
            message = b"m" * chance.choice((0, 1, 100, 5_000, 8_192, 70_000))
            assert sides[0].act(what, stream_id, message) == sides[1].act(what, stream_id, message), what
        if chance.random() < 0.5:
            amount = chance.choice((1, 1_000, 256 << 10))
            for side in sides:
                side.send(amount)
            assert sides[0].outcome == sides[1].outcome
            if sides[0].broken is None:
                left = [side.session.take_left_count() for side in sides]
                assert left[0] == left[1]
    for side in sides:
        side.send(1 << 20)
    assert sides[0].outcome == sides[1].outcome
    assert frames_of(sides[0].written) == frames_of(sides[1].written)


def frames_of(data: bytes) -> dict[int, Any]:
    """Return what a caller's library reads in the bytes of a server, by stream."""
    caller = ngh2.Connection(ngh2.Role.CLIENT, ngh2.Configuration())
    del caller
    found: dict[int, Any] = {}
    at = 0
    while at + 9 <= len(data):
        size, kind, flags = int.from_bytes(data[at : at + 3], "big"), data[at + 3], data[at + 4]
        stream_id = int.from_bytes(data[at + 5 : at + 9], "big")
        body = data[at + 9 : at + 9 + size]
        said = found.setdefault(stream_id, [])
        if kind == 0 and said and said[-1][0] == 0:
            said[-1] = (0, said[-1][1] | flags, said[-1][2] + body)
        elif kind != 8:  # windows are opened in other steps
            said.append((kind, flags, body))
        at += 9 + size
    return found


def cut(data: bytes, chance: random.Random) -> list[bytes]:
    """Return bytes in random pieces, or whole."""
    if chance.random() < 0.3:
        return [data]
    places = sorted(chance.sample(range(len(data)), min(len(data), chance.choice((1, 5, 40)))))
    return [data[at:to] for at, to in itertools.pairwise([0, *places, len(data)]) if at < to]


def test_harmed_sessions_have_the_same_outcome(chance: random.Random) -> None:
    """Calls of an honest caller, as they are and with bytes changed, lost, repeated or new."""
    for _ in range(CONNECTION_COUNT):
        same(chance, cut(harmed(session(chance), chance), chance))


def test_hostile_frames_have_the_same_outcome(chance: random.Random) -> None:
    """Frames of all kinds, harmed, misplaced and cut off, as the attack sends them."""
    for _ in range(CONNECTION_COUNT):
        pieces = list(Frames(chance, [*UNARY, "/s/Each", "/s/Nothing"]).pieces())
        same(chance, [piece for piece in pieces if piece])


def called(*parts: bytes, more: Fields = ()) -> list[bytes]:
    """Return the bytes of a caller with a call whose request has these DATA frames; the last ends it."""
    caller = ngh2.Connection(ngh2.Role.CLIENT, ngh2.Configuration())
    caller.initiate_connection()
    fields = [(b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"x"), (b":path", b"/s/Echo")]
    said = []
    stream_id = caller.send_request([*fields, (b"content-type", b"application/grpc"), *more])
    said.append(caller.data_to_send())
    for part in parts:
        caller.send_data(stream_id, part)
        said.append(caller.data_to_send())
    caller.end_stream(stream_id)
    said.append(caller.data_to_send())
    return said


FRAME = b"".join(framed(b"abc"))
TIMEOUT = (b"grpc-timeout", b"20m")


@pytest.mark.parametrize("name", ["compiled", "plain"])
@pytest.mark.parametrize(
    ("parts", "more", "whole"),
    [
        pytest.param([FRAME], (), b"abc", id="one frame"),
        pytest.param([FRAME[:3], FRAME[3:6], FRAME[6:]], (), b"abc", id="frames within prefix and message"),
        pytest.param([b"\0\0\0\0\0"], (), b"", id="empty message"),
        pytest.param([FRAME], (TIMEOUT,), b"abc", id="with a time-out"),
        pytest.param([FRAME], (TIMEOUT, TIMEOUT), None, id="with two time-outs"),
        pytest.param([FRAME], ((b"grpc-timeout", b"1x"),), None, id="with a wrong time-out"),
        pytest.param([FRAME], ((b"grpc-encoding", b"zstd"),), None, id="with an unknown encoding"),
        pytest.param([FRAME + FRAME], (), None, id="two messages"),
        pytest.param([FRAME + b"\0"], (), None, id="more than a message"),
        pytest.param([FRAME[:-1]], (), None, id="less than a message"),
        pytest.param([FRAME[:4]], (), None, id="less than a prefix"),
        pytest.param([], (), None, id="no message"),
        pytest.param([b"\1" + FRAME[1:]], ((b"grpc-encoding", b"gzip"),), None, id="compressed"),
        pytest.param([b"\0\xff\xff\xff\xff" + b"x" * 100], (), None, id="a size of 4 GiB"),
    ],
)
def test_which_calls_are_whole(name: str, parts: list[bytes], more: Fields, whole: bytes | None) -> None:
    """A call with a single message and a head in order is whole if it arrives together; every other has events."""
    pieces = called(*parts, more=more)
    side = Side(name)
    side.receive(b"".join(pieces))
    (found,) = (said for stream_id, said in side.said.items() if stream_id == 1)
    if whole is not None:
        timeout_s = pytest.approx(0.02) if more else None
        assert found == [("WholeCall", "/s/Echo", b"identity", timeout_s, whole)]
    else:
        assert found[0] == ("RequestReceived", tuple(found[0][1]), found[0][2])
        assert [value for field, value in found[0][1] if field == b"grpc-timeout"] == [
            value for field, value in more if field == b"grpc-timeout"
        ]
        assert b"".join(one[1] for one in found if one[0] == "DataReceived") == b"".join(parts)
    apart = Side(name)
    for piece in pieces:
        apart.receive(piece)
    assert [one[0] for one in apart.said[1]][:1] == ["RequestReceived"], "it does not arrive together"


@pytest.mark.parametrize("name", ["compiled", "plain"])
def test_announced_sizes_reserve_no_memory(name: str) -> None:
    """Calls that announce more than arrives together are not whole, and their messages are not allocated."""
    pieces = [piece for _ in range(1) for piece in called(b"\0" + (90_000).to_bytes(4, "big") + b"x" * 10)]
    side = Side(name)
    side.receive(b"".join(pieces))
    assert [one[0] for one in side.said[1]] == ["RequestReceived", "DataReceived"]


@pytest.mark.parametrize("name", ["compiled", "plain"])
def test_large_answers_leave_in_pieces_by_reference(name: str) -> None:
    """A large answer arrives as it was sent; a window that is full stops it, and bytes leave when it opens."""
    caller = ngh2.Connection(ngh2.Role.CLIENT, ngh2.Configuration(auto_window_update=False))
    caller.initiate_connection({ngh2.Setting.INITIAL_WINDOW_SIZE: 100_000})
    caller.set_local_window_size(100_000)
    fields = ((b":method", b"POST"), (b":scheme", b"http"), (b":authority", b"x"), (b":path", b"/s/Echo"))
    stream_id = caller.send_request((*fields, (b"content-type", b"application/grpc")))
    caller.send_data(stream_id, FRAME, end_stream=True)
    wire, message, got = opened(name), os.urandom(1 << 20), b""
    wire.receive_data(caller.data_to_send())
    wire.answer(stream_id, message, True)
    for _ in range(100):
        while parts := wire.parts_to_send(50_000):
            for part in parts:
                caller.receive_data(part)
        for event in caller.events():
            if isinstance(event, ngh2.DataReceived):
                got += event.data
                if event.data and len(got) < len(message):
                    caller.acknowledge_received_data(len(event.data), stream_id)
            elif isinstance(event, ngh2.TrailersReceived):
                assert dict(event.headers) == {b"grpc-status": b"0"}
        wire.receive_data(caller.data_to_send())
    assert got == b"".join(framed(message))
    assert (wire.queued_body_size(stream_id), wire.take_left_count()) == (0, 1)
    assert grpc.StatusCode.OK.value[0] == 0
