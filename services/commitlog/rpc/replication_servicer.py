# SPDX-License-Identifier: Apache-2.0
"""ReplicationService: the streams to this log's followers. Converts requests and responses to and from steps."""

import asyncio
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from dataclasses import dataclass

from reput.commitlog.v1 import log_service_pb2 as log_pb
from reput.commitlog.v1 import replication_service_pb2 as pb

from libs.formats.limits import INT32_MAX, MIB
from libs.formats.state.replication import RoleName, RoleSetting
from libs.requests.checks import check_range
from libs.requests.errors import BadArgument
from libs.runtime.rpc.by_name import named
from libs.runtime.trust.audit.change import note
from services.commitlog.config import CommitLogConfig
from services.commitlog.engine.open_log import OpenLog
from services.commitlog.engine.replicate.steps import (
    PROMISED_EPOCH,
    PROTOCOL_VERSION,
    Ack,
    Beat,
    Chunk,
    Handshake,
    Hello,
    State,
)
from services.commitlog.engine.replicate.stream import ReplicaStream
from services.commitlog.engine.roles import Decider
from services.commitlog.engine.write.inflight import InflightBudget
from services.commitlog.errors import StreamIdle
from services.commitlog.rpc.epochs import epochs_of, sent

REPLICA_ID_SIZE_BYTES_MAX = 255
TARGET_SIZE_BYTES_MAX = 255
WINDOW_BYTES_MAX = 256 * MIB
_LEADING: dict[int, RoleName] = {log_pb.ROLE_ASYNC_MASTER: "async_master", log_pb.ROLE_SYNC_MASTER: "sync_master"}


@dataclass(slots=True, eq=False)
class ReplicationServicer:
    """The servicer of reput.commitlog.v1.ReplicationService."""

    _log: Callable[[], OpenLog]
    _service_streams: InflightBudget
    _config: CommitLogConfig
    _decider: Decider
    _setting: Callable[[], RoleSetting]

    async def Replicate(
        self, requests: AsyncIterator[pb.ReplicateRequest], _: object
    ) -> AsyncGenerator[pb.ReplicateResponse | bytes, None]:
        """Send the log to a follower, and receive its acknowledgements."""
        replicas = self._log().replicas
        with self._service_streams.held(1):
            hello = _hello(await self._next(requests))
            stream = replicas.follow(hello)
            hearing = asyncio.create_task(self._hear(stream, requests), name="acknowledgements of a replica")
            try:
                async for step in replicas.steps(stream):
                    yield step.response if isinstance(step, Chunk) else _response(step)
            finally:
                hearing.cancel()

    async def Promote(self, request: pb.PromoteRequest, _: object) -> pb.PromoteResponse:
        """Let the log lead."""
        role = _LEADING.get(request.role)
        if role is None:
            raise BadArgument("must be one that takes appends", field="role", value=request.role)
        former = self._setting().role
        epoch = await self._decider.promote(
            role,
            epoch=check_range(request.epoch, "epoch", most=INT32_MAX),
            end_physical_offset=check_range(request.end_physical_offset, "end_physical_offset"),
            accepts_loss=request.accept_data_loss,
        )
        (begun,) = sent([epoch])
        note(before={"role": former}, after={"role": self._setting().role, "epoch": epoch.number})
        return pb.PromoteResponse(epoch=begun, role=_role(self._setting().role))

    async def Demote(self, request: pb.DemoteRequest, _: object) -> pb.DemoteResponse:
        """Let the log hand over and follow."""
        check_range(len(request.leader_target.encode()), "leader_target", least=1, most=TARGET_SIZE_BYTES_MAX)
        check_range(len(request.replica_id.encode()), "replica_id", least=1, most=REPLICA_ID_SIZE_BYTES_MAX)
        epoch = check_range(request.epoch, "epoch", most=INT32_MAX)
        former, last, end = await self._decider.demote(request.replica_id, request.leader_target, epoch=epoch)
        note(
            before={"role": former.role},
            after={"role": self._setting().role, "epoch": last.number, "leader_target": request.leader_target},
        )
        return pb.DemoteResponse(former_role=_role(former.role), epoch=last.number, end_physical_offset=end)

    async def _hear(self, stream: ReplicaStream, requests: AsyncIterator[pb.ReplicateRequest]) -> None:
        """Receive acknowledgements until the follower ends the stream or sends an invalid request."""
        try:
            while True:
                stream.acknowledge(_ack(await self._next(requests)))
        except Exception as error:  # noqa: BLE001 - becomes the end of the stream
            stream.end(error)

    async def _next(self, requests: AsyncIterator[pb.ReplicateRequest]) -> pb.ReplicateRequest:
        """Return the next request. Raises StreamIdle if none comes for too long, or after the last request."""
        try:
            async with asyncio.timeout(self._config.replica_silence_ms / 1000):
                return await anext(requests)
        except (TimeoutError, StopAsyncIteration):
            raise StreamIdle(timeout_ms=self._config.replica_silence_ms) from None


def _hello(request: pb.ReplicateRequest) -> Hello:
    """Return the first request as a step. Raises BadArgument for values that no log can have."""
    if request.WhichOneof("step") != "hello":
        raise BadArgument("the first request must be a hello", field="step")
    hello = request.hello
    version, field = hello.protocol_version, "hello.protocol_version"
    check_range(version, field, least=PROTOCOL_VERSION, most=PROTOCOL_VERSION)
    check_range(len(hello.replica_id.encode()), "hello.replica_id", least=1, most=REPLICA_ID_SIZE_BYTES_MAX)
    return Hello(
        replica_id=hello.replica_id,
        store_id=_store_id(hello.store_id),
        history_id=hello.history_id,
        epochs=tuple(epochs_of(hello.epochs, "hello.epochs")),
        max_physical_offset=check_range(hello.max_physical_offset, "hello.max_physical_offset"),
        flushed_physical_offset=check_range(
            hello.flushed_physical_offset, "hello.flushed_physical_offset", most=hello.max_physical_offset
        ),
        segment_size_bytes=hello.segment_size_bytes,
        needs_queue_offsets=hello.needs_queue_offsets,
        window_bytes=check_range(hello.window_bytes, "hello.window_bytes", least=MIB, most=WINDOW_BYTES_MAX),
        promised_epoch=check_range(hello.promised_epoch, PROMISED_EPOCH, most=INT32_MAX),
        is_witness=hello.is_witness,
        topic_journal_version=check_range(hello.topic_journal_version, "hello.topic_journal_version", most=INT32_MAX),
    )


def _role(name: RoleName) -> log_pb.Role.ValueType:
    return log_pb.Role.Value(f"ROLE_{name.upper()}")


def _store_id(value: str) -> str:
    """Return the name of a data directory. Raises BadArgument."""
    if not re.fullmatch("[0-9a-f]{32}", value):
        raise BadArgument("the name of a data directory has 32 hexadecimal digits", field="hello.store_id", value=value)
    return value


def _ack(request: pb.ReplicateRequest) -> Ack:
    """Return a later request as a step. Raises BadArgument."""
    if request.WhichOneof("step") != "ack":
        raise BadArgument("must be an acknowledgement after the first one", field="step")
    ack = request.ack
    received, flushed = ack.received_physical_offset, ack.flushed_physical_offset
    return Ack(ack.epoch, received, flushed, ack.step_count, ack.is_leaving)


def _response(step: Beat | State | Handshake) -> pb.ReplicateResponse:
    match step:
        case Beat():
            return pb.ReplicateResponse(beat=named(pb.ReplicateBeat, step))
        case State(name, content):
            return pb.ReplicateResponse(state=pb.ReplicatedState(name=name, data=content))
        case Handshake():
            epochs, epoch = sent(step.epochs), step.epochs[-1].number
            return pb.ReplicateResponse(handshake=named(pb.ReplicateHandshake, step, epochs=epochs, epoch=epoch))
