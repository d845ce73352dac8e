# SPDX-License-Identifier: Apache-2.0
"""LeaderLink: each answer of a leader becomes a step of the engine, or an error that the engine knows."""

import asyncio
import zlib
from typing import Any

import grpc
import pytest
from reput.commitlog.v1 import log_service_pb2 as log_pb
from reput.commitlog.v1 import replication_service_pb2 as pb

from libs.formats.epoch import Epoch
from libs.requests.errors import DependencyUnavailable
from libs.runtime.peer.connection import Connection
from services.commitlog.engine.replicate.chunks import chunk_response
from services.commitlog.engine.replicate.steps import Ack, Beat, Chunk, Handshake, Hello, State, Step
from services.commitlog.rpc.replication_link import LeaderLink

HELLO = Hello("b", "1" * 32, "h", (Epoch(1, 0),), 10, 5, 65_536, needs_queue_offsets=True, window_bytes=1 << 20)
CHUNK = {"start_physical_offset": 10, "data": b"abc", "epoch": 2, "epoch_start_physical_offset": 7}


class Call:
    """A leader that gives the answers of a test, and then nothing."""

    def __init__(self, answers: list[Any]) -> None:
        self._answers = answers
        self.requests: list[pb.ReplicateRequest] = []
        self.is_cancelled = False

    def stream_stream(self, *_: object, **__: object) -> Any:
        """Be the channel, too."""
        return lambda **_: self

    unary_unary = stream_stream

    async def write(self, request: pb.ReplicateRequest) -> None:
        """Hear a request."""
        self.requests.append(request)

    async def read(self) -> Any:
        """Give the next answer."""
        if not self._answers:
            await asyncio.sleep(3600)
        answer = self._answers.pop(0)
        return answer.SerializeToString() if isinstance(answer, pb.ReplicateResponse) else answer

    def cancel(self) -> None:
        """End."""
        self.is_cancelled = True


async def steps(call: Call, count: int) -> list[Step]:
    """The first steps that an engine gets."""
    link = LeaderLink(Connection(call, 1.0, lambda: ()), silence_ms=20)  # type: ignore[arg-type]
    found: list[Step] = []
    async with link.open(HELLO) as stream:
        async for step in stream:
            found.append(step)
            await stream.acknowledge(Ack(2, 8, 7))
            if len(found) == count:
                break
    assert call.is_cancelled
    return found


async def test_every_step() -> None:
    """Each kind of message arrives as its step."""
    epochs = [log_pb.Epoch(number=1), log_pb.Epoch(number=2, start_physical_offset=7)]
    handshake = pb.ReplicateHandshake(
        common_end_physical_offset=9, epochs=epochs, epoch=2, history_id="h", start_physical_offset=9,
        min_physical_offset=1, confirmed_physical_offset=8,
    )  # fmt: skip
    chunk = pb.ReplicateChunk(**CHUNK, confirmed_physical_offset=8, checksum=zlib.crc32(b"abc"))
    call = Call([
        pb.ReplicateResponse(handshake=handshake),
        pb.ReplicateResponse(state=pb.ReplicatedState(name="topics", data=b"{}")),
        pb.ReplicateResponse(chunk=chunk),
        pb.ReplicateResponse(
            beat=pb.ReplicateBeat(epoch=2, max_physical_offset=13, confirmed_physical_offset=9, min_physical_offset=1)
        ),
    ])  # fmt: skip
    assert await steps(call, 4) == [
        Handshake("h", (Epoch(1, 0), Epoch(2, 7)), 9, 9, 1, 8),
        State("topics", b"{}"),
        Chunk(10, b"abc", Epoch(2, 7), 8),
        Beat(2, 13, 9, 1),
    ]
    hello, ack = call.requests[0].hello, call.requests[1].ack
    assert (hello.replica_id, hello.history_id, hello.max_physical_offset) == ("b", "h", 10)
    assert (hello.flushed_physical_offset, hello.segment_size_bytes, hello.window_bytes) == (5, 65_536, 1 << 20)
    assert (hello.needs_queue_offsets, hello.protocol_version, list(hello.epochs)) == (True, 1, epochs[:1])
    assert (ack.epoch, ack.received_physical_offset, ack.flushed_physical_offset) == (2, 8, 7)


@pytest.mark.parametrize("start", [0, 10, 2**62])
async def test_a_chunk_is_made_and_read_by_hand(start: int) -> None:
    """A chunk encoded by hand equals the protocol's message, with all fields set or none."""
    chunk = Chunk(start, memoryview(b"abc" * 100), Epoch(2 if start else 0, start), start, start)
    answer = chunk_response(chunk)
    read = pb.ReplicateResponse.FromString(answer).chunk
    assert (read.data, read.checksum) == (chunk.data, zlib.crc32(chunk.data))
    assert read.start_physical_offset == read.epoch_start_physical_offset == start
    assert read.confirmed_physical_offset == read.sync_to_physical_offset == start
    assert await steps(Call([answer]), 1) == [chunk]
    assert await steps(Call([pb.ReplicateResponse(chunk=read)]), 1) == [chunk]


@pytest.mark.parametrize(
    ("answers", "text"),
    [
        ([pb.ReplicateResponse(chunk=pb.ReplicateChunk(**CHUNK, checksum=1))], "the chunk at 10 is not what was sent"),
        ([pb.ReplicateResponse(chunk=pb.ReplicateChunk(start_physical_offset=3))], "the chunk at 3"),
        ([pb.ReplicateResponse()], "a step that this version does not know"),
        ([pb.ReplicateResponse(beat=pb.ReplicateBeat(lease_ms=600_001))], "asks for 600001 ms .* limit is 600000"),
        ([pb.ReplicateResponse(beat=pb.ReplicateBeat(lease_ms=-1))], "asks for -1 ms"),
        ([b"\x12\x7f"], "a step that can't be read"),
        ([b"\x1b"], "a step that can't be read"),
        ([grpc.aio.EOF], "the stream has ended"),
        ([], "silent for 20 ms"),
    ],
)
async def test_what_is_no_step(answers: list[Any], text: str) -> None:
    """An answer that is no step ends the stream, and the link connects again."""
    with pytest.raises(DependencyUnavailable, match=text):
        await steps(Call(answers), 1)
