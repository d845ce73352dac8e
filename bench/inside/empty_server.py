# SPDX-License-Identifier: Apache-2.0
"""`python -m bench.inside.empty_server FRONT`: Append, and streams both ways, without a log. Prints its address.

The same front on the same event loop as the services have. Its handler answers constant bytes: the rest of a call is
gRPC and the client.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from typing import Any, Literal

import grpc
import uvloop
from reput.commitlog.v1 import append_service_pb2
from reput.common.v1 import message_pb2

from libs.formats.limits import APPEND_REQUEST_SIZE_BYTES_MAX
from libs.runtime.rpc.fronts.front import front_of
from libs.runtime.settings import ServerConfig
from libs.runtime.watch import malloc

SERVICE = "reput.commitlog.v1.AppendService"
READING_SERVICE = "reput.commitlog.v1.LogService"
BATCH = bytes(256 << 10)
"""The answer of a stream of batches."""


def answer() -> bytes:
    """Return about the CommitLog's answer to a single message."""
    result = append_service_pb2.AppendResult(
        start_physical_offset=1 << 30,
        end_physical_offset=(1 << 30) + 1_200,
        store_time_ms=1_700_000_000_000,
        durability=message_pb2.DURABILITY_MEMORY,
        physical_offsets=[1 << 30],
        queue_offsets=[1_000_000],
        queue_ids=[0],
    )
    return append_service_pb2.AppendResponse(result=result).SerializeToString()


def streaming(answers: Any) -> Any:
    """Return the handler of a stream: fronts take coroutines that write."""

    async def handle(requests: Any, context: Any) -> None:
        async for one in answers(requests, context):
            await context.write(one)

    return handle


async def serve(front_name: Literal["http2", "grpcio"]) -> None:
    """Answer until the process is ended."""
    constant = answer()

    async def handle(_request: bytes, _context: object) -> bytes:
        return constant

    async def take(requests: AsyncIterator[bytes], _context: object) -> AsyncIterator[bytes]:
        async for _ in requests:
            yield constant

    async def give(request: bytes, _context: object) -> AsyncIterator[bytes]:
        for _ in range(int(request)):
            yield BATCH

    config = ServerConfig(port=0, front=front_name)
    front = front_of(
        config, request_size_bytes_max=APPEND_REQUEST_SIZE_BYTES_MAX, call_count_max=config.concurrent_rpc_max
    )
    handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "Append": grpc.unary_unary_rpc_method_handler(handle),
        "AppendStream": grpc.stream_stream_rpc_method_handler(streaming(take)),
    }
    reading: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
        "StreamRecords": grpc.unary_stream_rpc_method_handler(streaming(give))
    }
    front.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(SERVICE, handlers),))
    front.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(READING_SERVICE, reading),))
    port = await front.listen()
    await front.start()
    print(f"127.0.0.1:{port}", flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    malloc.tune()
    uvloop.run(serve("grpcio" if sys.argv[1:] == ["grpcio"] else "http2"))
