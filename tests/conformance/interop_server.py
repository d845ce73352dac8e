# SPDX-License-Identifier: Apache-2.0
"""gRPC's TestService on our front, which the interoperability clients of gRPC's languages call."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, message_factory
from grpc_tools import protoc

from libs.runtime.rpc.fronts.front import front_of
from libs.runtime.settings import ServerConfig

PROTO = Path(__file__).parent / "testing.proto"
REQUEST_SIZE_BYTES_MAX = 4 << 20
SERVICE = "grpc.testing.TestService"
CODES = {code.value[0]: code for code in grpc.StatusCode}


def messages(folder: Path) -> dict[str, Any]:
    """Classes of the messages in testing.proto, by their full names."""
    described = folder / "testing.pb"
    words = ["protoc", f"-I{PROTO.parent}", f"--descriptor_set_out={described}", PROTO.name]
    assert protoc.main(words) == 0
    return message_factory.GetMessages(descriptor_pb2.FileDescriptorSet.FromString(described.read_bytes()).file)


class TestService:
    """Handlers as both fronts call them."""

    __test__ = False

    def __init__(self, classes: dict[str, Any]) -> None:
        self._of = {name.removeprefix("grpc.testing."): one for name, one in classes.items()}

    async def empty(self, request: bytes, context: Any) -> bytes:
        return request

    async def unary(self, data: bytes, context: Any) -> bytes:
        request = self._of["SimpleRequest"].FromString(data)
        await self._end_as_asked(request, context)
        reply = self._of["SimpleResponse"]()
        reply.payload.body = bytes(request.response_size)
        return bytes(reply.SerializeToString())

    async def input(self, requests: AsyncIterator[bytes], context: Any) -> bytes:
        of, size = self._of["StreamingInputCallRequest"], 0
        async for data in requests:
            size += len(of.FromString(data).payload.body)
        return bytes(self._of["StreamingInputCallResponse"](aggregated_payload_size=size).SerializeToString())

    async def output(self, data: bytes, context: Any) -> None:
        await self._answer(data, context)

    async def duplex(self, requests: AsyncIterator[bytes], context: Any) -> None:
        async for data in requests:
            await self._answer(data, context)

    async def _answer(self, data: bytes, context: Any) -> None:
        request = self._of["StreamingOutputCallRequest"].FromString(data)
        await self._end_as_asked(request, context)
        for wanted in request.response_parameters:
            await asyncio.sleep(wanted.interval_us / 1e6)
            reply = self._of["StreamingOutputCallResponse"]()
            reply.payload.body = bytes(wanted.size)
            await context.write(reply.SerializeToString())

    @staticmethod
    async def _end_as_asked(request: Any, context: Any) -> None:
        if request.HasField("response_status"):
            await context.abort(CODES[request.response_status.code], request.response_status.message)

    def handler(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "EmptyCall": grpc.unary_unary_rpc_method_handler(self.empty),
                "UnaryCall": grpc.unary_unary_rpc_method_handler(self.unary),
                "StreamingInputCall": grpc.stream_unary_rpc_method_handler(self.input),
                "StreamingOutputCall": grpc.unary_stream_rpc_method_handler(self.output),
                "FullDuplexCall": grpc.stream_stream_rpc_method_handler(self.duplex),
            },
        )


@contextlib.asynccontextmanager
async def serving(folder: Path, config: ServerConfig) -> AsyncIterator[int]:
    """The service on the front that the settings ask for. Yields its port."""
    front = front_of(config, request_size_bytes_max=REQUEST_SIZE_BYTES_MAX, call_count_max=1_000)
    assert type(front).__name__.lower() == f"{config.front}front", "ngh2 is missing"
    front.add_generic_rpc_handlers((TestService(messages(folder)).handler(),))
    port = await front.listen()
    await front.start()
    try:
        yield port
    finally:
        await front.stop(0)
