# SPDX-License-Identifier: Apache-2.0
"""The context of a handler, on each front, before and during its answer; and the single name of a service."""

from collections.abc import AsyncIterator

import grpc
import pytest
from reput.commitlog.v1 import append_service_pb2

from libs.runtime.rpc.server import GrpcServer
from libs.runtime.settings import ServerConfig
from libs.runtime.watch.telemetry import Telemetry
from tests.support.patience import LIMIT_S
from tests.unit.libs.runtime import servers

pytestmark = pytest.mark.usefixtures("each_front")

NAME = "elsewhere.v1.OtherService"


class Servicer:
    """A servicer that begins its answer before it reads a request, and answers with its context."""

    async def AppendStream(self, requests: AsyncIterator[object], context: object) -> AsyncIterator[bytes]:  # noqa: N802
        """Answer each request with the seconds that are left."""
        await context.send_initial_metadata(())  # type: ignore[attr-defined]
        async for _ in requests:
            yield str(context.time_remaining()).encode()  # type: ignore[attr-defined]


@pytest.fixture
async def channel() -> AsyncIterator[grpc.aio.Channel]:
    """A channel to a server of the servicer."""
    server = GrpcServer(
        ServerConfig(port=0, front=servers.front),
        errors={},
        telemetry=Telemetry.off(),
        request_size_bytes_max=1 << 20,
    )
    service = append_service_pb2.DESCRIPTOR.services_by_name["AppendService"]
    server.add_service(service, Servicer(), served_as=NAME)
    await server.start()
    server.admit()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{server.port}") as made:
        yield made
    await server.stop(0)


async def test_a_stream_may_begin_with_its_head_alone(channel: grpc.aio.Channel) -> None:
    """A stream may begin with its initial metadata, for callers that send nothing before."""
    call = channel.stream_stream(f"/{NAME}/AppendStream")(timeout=LIMIT_S)
    await call.initial_metadata()
    await call.write(b"")
    assert 0 < float(await call.read()) < LIMIT_S + 1  # it travels in whole units, rounded up
    await call.done_writing()
    assert await call.code() is grpc.StatusCode.OK


async def test_a_call_without_a_deadline_has_no_time_that_is_left(channel: grpc.aio.Channel) -> None:
    """A call without a deadline has None as its remaining time."""
    call = channel.stream_stream(f"/{NAME}/AppendStream")()
    await call.write(b"")
    assert await call.read() == b"None"
    await call.done_writing()


async def test_a_service_has_one_name(channel: grpc.aio.Channel) -> None:
    """By the name of the proto's package the service is not found."""
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await channel.stream_stream("/reput.commitlog.v1.AppendService/AppendStream")(timeout=LIMIT_S).read()
    assert refused.value.code() is grpc.StatusCode.UNIMPLEMENTED
