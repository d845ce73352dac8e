# SPDX-License-Identifier: Apache-2.0
"""The two builds of the session say the same for the same bytes.

`tests/exhaustive/http2` compares them for random bytes, in random pieces.
"""

import os
import random

import grpc
import ngh2
import pytest

from libs.runtime.http2.framing import framed
from libs.runtime.http2.heads import Fields
from tests.support.harmed_sessions import harmed, session
from tests.support.session_sides import Side, opened


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


@pytest.mark.parametrize("seed", range(4))
def test_a_harmed_session_has_the_same_outcome(seed: int) -> None:
    """Both builds say the same for the bytes of an honest caller that were harmed."""
    chance = random.Random(seed)
    data = harmed(session(chance), chance)
    sides = Side("compiled"), Side("plain")
    for side in sides:
        side.receive(data)
        side.send(1 << 20)
    assert sides[0].outcome == sides[1].outcome
