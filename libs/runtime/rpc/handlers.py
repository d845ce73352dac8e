# SPDX-License-Identifier: Apache-2.0
"""From a servicer object to gRPC handlers that move raw bytes.

Every method is registered without (de)serializers, so that a malformed request is our INVALID_ARGUMENT and not gRPC's
INTERNAL, and hot methods can have the bytes as they came. The wrapper around each method does, once for all services:
refuse while not ready or too many, parse, trace, count, turn raised errors into rich statuses, let cancellation pass.
Servicer methods have the names of the RPCs. Unary answers are returned; streamed answers come from async generators.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Collection, Mapping
from types import MappingProxyType
from typing import Any, Protocol, cast

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message

from libs.requests.errors import Stopping
from libs.runtime.rpc.bounds import SMALL_ANSWER_BYTES, CallBounds
from libs.runtime.rpc.errors import STATUS_METADATA_KEY, ErrorTable, NotReady, StreamNotRead, code_of, status_of
from libs.runtime.rpc.request_check import DEFAULT_LIMITS, Limits, RequestParser
from libs.runtime.telemetry import Telemetry
from libs.runtime.trust.roles import ROLES, Role

Context = grpc.aio.ServicerContext[bytes, bytes]
Handler = Callable[[Any, Context], Awaitable[bytes | None]]
Around = Callable[[], contextlib.AbstractContextManager[Callable[[], None]]]
"""Makes the block that a call is answered in. What the block gives is called before an answer of a stream leaves."""

OWN_PACKAGE = "reput."
"""Services elsewhere (health, reflection) have no rule: who may call them is the Guard's to know."""


class Gate(Protocol):
    """Whether calls may come in. The server owns it."""

    is_ready: bool
    is_stopping: bool


def service_handler(
    service: ServiceDescriptor,
    servicer: object,
    *,
    raw: Collection[str] = (),
    early: Collection[str] = (),
    around: Mapping[str, Around] = MappingProxyType({}),
    limits: Limits = MappingProxyType({}),
    errors: ErrorTable,
    gate: Gate,
    bounds: CallBounds,
    trusted_bounds: CallBounds,
    telemetry: Telemetry,
) -> grpc.GenericRpcHandler:
    """Make the handler of one proto service. Methods named in `raw` get each request as bytes, whatever its size.

    Those named in `early` are called also before the service is ready. `around` makes the blocks that calls of the
    methods that it names are answered in. `limits` are those of methods not named in `raw`. Methods that clients may
    not call are within `trusted_bounds`, so that clients never use up their room.

    A response may be a message or its serialized bytes, whatever the method. A method that the servicer lacks is not
    served: callers get UNIMPLEMENTED.
    """
    offered = {name for name in dir(servicer) if name[0].isupper()} | {*raw, *early, *around}
    unknown = offered - {method.name for method in service.methods}
    assert not unknown, f"{service.full_name} has no method {unknown}"
    is_foreign = not service.full_name.startswith(OWN_PACKAGE)
    without_rule = {name for name in offered if not is_foreign and f"/{service.full_name}/{name}" not in ROLES}
    assert not without_rule, f"{service.full_name}: libs/runtime/trust/roles.py has no rule for {without_rule}"
    handlers = {}
    for method in service.methods:
        behaviour = getattr(servicer, method.name, None)
        if behaviour is None:
            continue
        call = _Call(
            method,
            behaviour,
            parse=_identity if method.name in raw else _parser(method, limits),
            is_early=method.name in early,
            around=around.get(method.name, _alone),
            errors=errors,
            gate=gate,
            bounds=bounds if ROLES.get(f"/{service.full_name}/{method.name}", _CLIENT) is _CLIENT else trusted_bounds,
            telemetry=telemetry,
        )
        handlers[method.name] = _MAKERS[method.client_streaming, method.server_streaming](call.handler())
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


_CLIENT = Role.CLIENT

_MAKERS: dict[tuple[bool, bool], Callable[[Any], grpc.RpcMethodHandler[Any, Any]]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


class _Call:
    """One method with all that surrounds it."""

    def __init__(
        self,
        method: MethodDescriptor,
        behaviour: Callable[..., Any],
        *,
        parse: Callable[[bytes], Any],
        is_early: bool,
        around: Around,
        errors: ErrorTable,
        gate: Gate,
        bounds: CallBounds,
        telemetry: Telemetry,
    ) -> None:
        self._method = method
        self._behaviour = behaviour
        self._parse = parse
        self._is_early = is_early
        self._around = around
        self._errors = errors
        self._gate = gate
        self._bounds = bounds
        self._telemetry = telemetry
        self._name = f"{method.containing_service.full_name}/{method.name}"

    def handler(self) -> Handler:
        """Return the coroutine function that gRPC calls for each RPC."""
        answer: Handler = self._answer_stream if self._method.server_streaming else self._answer_unary
        is_client_streaming = self._method.client_streaming

        async def handle(request: Any, context: Context) -> bytes | None:
            started_s = time.monotonic()
            code, argument = grpc.StatusCode.CANCELLED, None
            with self._telemetry.server_span(self._name, context) as span:
                try:
                    with self._bounds.calls:
                        self._check_gate()
                        argument = self._parse_all(request) if is_client_streaming else self._parse(request)
                        reply = await answer(argument, context)
                except Exception as error:  # noqa: BLE001 - the boundary where errors become statuses
                    status = status_of(error, self._errors)
                    code = code_of(status)
                else:
                    code = grpc.StatusCode.OK
                    return reply
                finally:
                    span.end_with(code)
                    self._telemetry.count_rpc(self._name, code.name, time.monotonic() - started_s)
            # gRPC keeps the exception of an abort, and with it this frame, until the cyclic collector comes by.
            request = argument = None
            metadata = (*context.trailing_metadata(), (STATUS_METADATA_KEY, status.SerializeToString()))
            return await context.abort(code, status.message, metadata)

        return handle

    def _check_gate(self) -> None:
        if self._gate.is_stopping:
            raise Stopping
        if not self._gate.is_ready and not self._is_early:
            raise NotReady

    async def _parse_all(self, requests: AsyncIterator[bytes]) -> AsyncGenerator[Any, None]:
        async for request in requests:
            yield self._parse(request)

    async def _answer_unary(self, argument: Any, context: Context) -> bytes:
        with self._around():
            reply = _serialized(await self._behaviour(argument, context))
        if len(reply) > SMALL_ANSWER_BYTES:
            self._bounds.answers.charge(len(reply))
            self._give_back_at_end(context, len(reply))
        return reply

    async def _answer_stream(self, argument: Any, context: Context) -> None:
        with self._around() as check:
            async with contextlib.aclosing(self._behaviour(argument, context)) as replies:
                async for reply in replies:
                    check()
                    await self._write(_serialized(reply), context)

    async def _write(self, reply: bytes, context: Context) -> None:
        """Send an answer of a stream, and wait until gRPC does not hold it any more."""
        size_bytes = len(reply) if len(reply) > SMALL_ANSWER_BYTES else 0
        if size_bytes:
            self._bounds.answers.charge(size_bytes)
        try:
            async with asyncio.timeout(self._bounds.unread_timeout_s):
                await context.write(reply)
        except BaseException as error:
            if size_bytes:  # gRPC holds it until the call is over
                self._give_back_at_end(context, size_bytes)
            if isinstance(error, TimeoutError):
                raise StreamNotRead(self._bounds.unread_timeout_s) from error
            if isinstance(error, grpc.aio.InternalError):
                # The caller went away while this was being sent; gRPC's own cancellation comes a moment later.
                raise asyncio.CancelledError from error
            raise
        if size_bytes:
            self._bounds.answers.give_back(size_bytes)

    def _give_back_at_end(self, context: Context, size_bytes: int) -> None:
        callback = cast("Any", lambda _: self._bounds.answers.give_back(size_bytes))
        context.add_done_callback(callback)


_ALONE = contextlib.nullcontext(lambda: None)


def _alone() -> contextlib.AbstractContextManager[Callable[[], None]]:
    return _ALONE


def _identity(data: bytes) -> bytes:
    return data


def _parser(method: MethodDescriptor, limits: Limits) -> Callable[[bytes], Message]:
    return RequestParser(method.input_type, limits.get(method.name, DEFAULT_LIMITS)).parse


def _serialized(reply: bytes | Message) -> bytes:
    return reply if isinstance(reply, bytes) else reply.SerializeToString()
