# SPDX-License-Identifier: Apache-2.0
"""LeaderLink: the leader's ReplicationService as the engine's stream of steps.

A single step is in memory at a time, in addition to the channel's read-ahead: the next step is read after the engine
has processed the step before it. The leader sends a step at least each half second, so silence means that it is gone.
"""

import asyncio
import contextlib
from collections import defaultdict
from collections.abc import AsyncIterator
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from reput.commitlog.v1 import replication_service_pb2 as pb

from libs.formats import fields
from libs.formats.crc import crc32
from libs.formats.epoch import Epoch
from libs.formats.errors import FormatError
from libs.formats.protobuf_wire import LENGTH_DELIMITED, signed
from libs.formats.protobuf_wire import fields as fields_of
from libs.requests.errors import DependencyUnavailable, PeerError
from libs.runtime.peer.calls import PeerErrors, peer_errors
from libs.runtime.peer.connection import Connection
from libs.runtime.rpc.by_name import named
from services.commitlog.config import LEASE_DURATION_MS_MAX
from services.commitlog.engine.replicate.steps import (
    PROMISED_EPOCH,
    PROTOCOL_VERSION,
    Ack,
    Beat,
    Chunk,
    Handshake,
    Hello,
    State,
    Step,
)
from services.commitlog.errors import HistoryDiffers, NotLeader, StaleEpoch
from services.commitlog.rpc.epochs import sent

SERVICE = "leader"
PATH = "/reput.commitlog.v1.ReplicationService/Replicate"


class LeaderLink:
    """The client of a leader. It opens streams over a channel."""

    def __init__(self, leader: Connection, *, silence_ms: int) -> None:
        self._leader = leader
        self._silence_ms = silence_ms
        self._replicate: Any = leader.channel.stream_stream(PATH, pb.ReplicateRequest.SerializeToString)
        """The call. Its answers stay bytes."""

    @contextlib.asynccontextmanager
    async def open(self, hello: Hello) -> AsyncIterator["_Stream"]:
        """Open a stream and send the hello. See `LeaderAt`.

        Raises DependencyUnavailable, HistoryDiffers, NotLeader and StaleEpoch.
        """
        stream = _Stream(self._replicate(metadata=self._leader.metadata()), self._silence_ms, hello)
        try:
            first = named(pb.ReplicaHello, hello, epochs=sent(hello.epochs), protocol_version=PROTOCOL_VERSION)
            await stream.write(pb.ReplicateRequest(hello=first))
            yield stream
        finally:
            stream.call.cancel()


class _Stream:
    """A stream from the leader. See `Replication`."""

    def __init__(self, call: Any, silence_ms: int, hello: Hello) -> None:
        self.call = call
        self._silence_ms = silence_ms
        self._errors = _errors(hello)

    async def write(self, request: pb.ReplicateRequest) -> None:
        with peer_errors(SERVICE, self._errors):
            try:
                await self.call.write(request)
            except asyncio.InvalidStateError as error:
                raise DependencyUnavailable(SERVICE, "the stream has ended") from error

    async def acknowledge(self, ack: Ack) -> None:
        await self.write(pb.ReplicateRequest(ack=named(pb.ReplicaAck, ack)))

    async def __aiter__(self) -> AsyncIterator[Step]:
        with peer_errors(SERVICE, self._errors):
            while True:
                try:
                    async with asyncio.timeout(self._silence_ms / 1000):
                        response = await self.call.read()
                except TimeoutError:
                    raise DependencyUnavailable(SERVICE, f"silent for {self._silence_ms} ms") from None
                if response is grpc.aio.EOF:
                    raise DependencyUnavailable(SERVICE, "the stream has ended")
                yield _step(response)


def _step(answer: bytes) -> Step:
    """Return an answer as a step. Raises DependencyUnavailable for an invalid or corrupted answer."""
    try:
        number, wire_type, content = next(fields_of(answer), (0, 0, 0))
        if number == fields.REPLICATE_RESPONSE_CHUNK and wire_type == LENGTH_DELIMITED:
            assert isinstance(content, memoryview)
            return _chunk(content)
        response = pb.ReplicateResponse.FromString(answer)
    except (FormatError, DecodeError) as error:
        raise DependencyUnavailable(SERVICE, f"a step that can't be read: {error}") from error
    kind = response.WhichOneof("step")
    if kind == "beat":
        beat = response.beat
        if not 0 <= beat.lease_ms <= LEASE_DURATION_MS_MAX:
            text = f"a beat asks for {beat.lease_ms} ms without an election, the limit is {LEASE_DURATION_MS_MAX}"
            raise DependencyUnavailable(SERVICE, text)
        return Beat(
            beat.epoch,
            beat.max_physical_offset,
            beat.confirmed_physical_offset,
            beat.min_physical_offset,
            sync_to_physical_offset=beat.sync_to_physical_offset,
            is_in_sync=beat.is_in_sync,
            replicated_physical_offset=beat.replicated_physical_offset,
            lease_ms=beat.lease_ms,
        )
    if kind == "state":
        return State(response.state.name, response.state.data)
    if kind == "handshake":
        handshake = response.handshake
        return Handshake(
            history_id=handshake.history_id,
            epochs=tuple(Epoch(one.number, one.start_physical_offset) for one in handshake.epochs),
            common_end_physical_offset=handshake.common_end_physical_offset,
            start_physical_offset=handshake.start_physical_offset,
            min_physical_offset=handshake.min_physical_offset,
            confirmed_physical_offset=handshake.confirmed_physical_offset,
            is_synchronous=handshake.is_synchronous,
        )
    raise DependencyUnavailable(SERVICE, "a step that this version does not know")


def _chunk(content: memoryview) -> Chunk:
    """Return a serialized ReplicateChunk as a step. The step's data is a view. Raises as `_step`, and FormatError."""
    values: defaultdict[int, int] = defaultdict(int)
    data = memoryview(b"")
    for number, _, value in fields_of(content):
        if isinstance(value, int):
            values[number] = signed(value)
        elif number == fields.REPLICATE_CHUNK_DATA:
            data = value
    start = values[fields.REPLICATE_CHUNK_START_PHYSICAL_OFFSET]
    if not data or crc32(data) != values[fields.REPLICATE_CHUNK_CHECKSUM]:
        raise DependencyUnavailable(SERVICE, f"the chunk at {start} is not what was sent")
    return Chunk(
        start_physical_offset=start,
        data=data,
        epoch=Epoch(values[fields.REPLICATE_CHUNK_EPOCH], values[fields.REPLICATE_CHUNK_EPOCH_START_PHYSICAL_OFFSET]),
        confirmed_physical_offset=values[fields.REPLICATE_CHUNK_CONFIRMED_PHYSICAL_OFFSET],
        sync_to_physical_offset=values[fields.REPLICATE_CHUNK_SYNC_TO_PHYSICAL_OFFSET],
    )


def _errors(hello: Hello) -> PeerErrors:
    """Return the leader's reasons for a refusal. Every other failure is DependencyUnavailable."""

    def stale_epoch(error: PeerError) -> Exception:
        if error.metadata["field"] != PROMISED_EPOCH:
            return DependencyUnavailable.of(error)
        return StaleEpoch(epoch=int(error.metadata["epoch"]), field=PROMISED_EPOCH)

    return {
        "HISTORY_DIFFERS": lambda error: HistoryDiffers(mine=hello.history_id, theirs=error.metadata["mine"]),
        "NOT_LEADER": lambda error: NotLeader(error.metadata["leader"]),
        "STALE_EPOCH": stale_epoch,
    }
