# SPDX-License-Identifier: Apache-2.0
"""Services that packages bring along (health, reflection), with our answer to a malformed request.

Their generated handlers let gRPC parse: what it can't parse is UNKNOWN to the caller and a traceback in the log, and
needs no token. Here it is MALFORMED_REQUEST, as with our own services. All else is theirs.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from libs.runtime.grpc_errors import (
    BASE_TABLE,
    STATUS_METADATA_KEY,
    MalformedRequest,
    RequestTooLarge,
    code_of,
    status_of,
)
from libs.runtime.request_check import DEFAULT_LIMITS, RequestParser

REFUSALS = (MalformedRequest, RequestTooLarge)

Context = grpc.aio.ServicerContext[bytes, bytes]

_MAKERS: dict[tuple[bool, bool], Callable[..., grpc.RpcMethodHandler[Any, Any]]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


def foreign_handler(service: ServiceDescriptor, servicer: object) -> grpc.GenericRpcHandler:
    """Make the handler of a service whose servicer a package brings."""
    handlers = {}
    for method in service.methods:
        wrap = _reading_all if method.client_streaming else _reading_one
        serialize = GetMessageClass(method.output_type).SerializeToString
        make = _MAKERS[method.client_streaming, method.server_streaming]
        handlers[method.name] = make(wrap(method, getattr(servicer, method.name)), response_serializer=serialize)
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


async def refuse(context: Context, error: Exception) -> None:
    """End a call that is none of ours with an error that every server has."""
    status = status_of(error, BASE_TABLE)
    await context.abort(code_of(status), status.message, ((STATUS_METADATA_KEY, status.SerializeToString()),))


def _reading_one(method: MethodDescriptor, behaviour: Any) -> Any:
    parse = RequestParser(method.input_type, DEFAULT_LIMITS).parse

    async def handle(request: bytes, context: Context) -> Any:
        try:
            message = parse(request)
        except REFUSALS as error:
            await refuse(context, error)
        return await behaviour(message, context)

    return handle


def _reading_all(method: MethodDescriptor, behaviour: Any) -> Any:
    parse = RequestParser(method.input_type, DEFAULT_LIMITS).parse

    async def parsed(requests: AsyncIterator[bytes]) -> AsyncGenerator[Message, None]:
        async for request in requests:
            yield parse(request)

    async def handle(requests: AsyncIterator[bytes], context: Context) -> AsyncGenerator[Any, None]:
        try:
            async for answer in behaviour(parsed(requests), context):
                yield answer
        except REFUSALS as error:
            await refuse(context, error)

    return handle
