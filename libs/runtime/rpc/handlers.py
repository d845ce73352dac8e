# SPDX-License-Identifier: Apache-2.0
"""From a servicer object to gRPC handlers that move raw bytes.

Every method is registered without (de)serializers, so that a malformed request is our INVALID_ARGUMENT and not gRPC's
INTERNAL, and hot methods can get the unparsed bytes. The wrapper around each method does the work that all services
share: refuse a call while the server is not ready or full, parse, trace, count, turn raised errors into rich statuses,
let cancellation pass.
Servicer methods have the names of the RPCs. Unary answers are returned; streamed answers come from async generators.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from types import MappingProxyType
from typing import Any, Protocol, cast

import grpc
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import Message
from msgspec import Struct, field

from libs.requests.errors import Stopping
from libs.runtime.http2.turns import Outcome, Turn, TurnCall, TurnHandler
from libs.runtime.rpc import planned
from libs.runtime.rpc.bounds import SMALL_ANSWER_BYTES, CallBounds
from libs.runtime.rpc.errors import (
    STATUS_METADATA_KEY,
    ErrorTable,
    HeldAnswer,
    NotReady,
    StreamNotRead,
    code_of,
    status_of,
)
from libs.runtime.rpc.first_step import Rest, first_step
from libs.runtime.rpc.planned import PlannedRefusal
from libs.runtime.rpc.request_check import DEFAULT_LIMITS, Limits, RequestParser
from libs.runtime.rpc.rights_check import RightsCheck
from libs.runtime.trust.audit.change import Change, noting
from libs.runtime.trust.rights.access import Access, RefusedRequest
from libs.runtime.trust.rights.accesses import ACCESSES
from libs.runtime.trust.rights.quota import QuotaExceeded
from libs.runtime.trust.roles import ROLES, Role
from libs.runtime.trust.trail import TOLD, Trail
from libs.runtime.watch.message_spans import Note
from libs.runtime.watch.telemetry import Telemetry, end_span

Context = grpc.aio.ServicerContext[bytes, bytes]
Handler = Callable[[Any, Context], Awaitable[bytes | None]]
Around = Callable[[], contextlib.AbstractContextManager[Callable[[], None]]]
"""Makes the context in which a call is answered. Its value is called before each answer of a stream is sent."""

TakeTurn = Callable[[Sequence[bytes], Sequence[TurnCall]], Iterable[bytes | Rest | None]]
"""Takes the requests of a turn with their calls.

Returns the answer of each, or its rest, or None if the method has to be called for it. Does not raise."""

OWN_PACKAGE = "reput."
"""The package of our services. Other services (health, reflection) have no rule here: the Guard decides on them."""


class Gate(Protocol):
    """The state that permits calls. The server owns it."""

    is_ready: bool
    is_stopping: bool


class Surroundings(Struct, frozen=True, kw_only=True):
    """The objects that all calls of a server share.

    `trusted_bounds` is for methods that clients may not call, so that clients never use up their room.
    """

    errors: ErrorTable
    gate: Gate
    bounds: CallBounds
    trusted_bounds: CallBounds
    telemetry: Telemetry
    trail: Trail = field(default_factory=Trail)
    access: Access | None = None
    """The rights of callers. None: all calls are permitted."""

    def rights_check(self, method: MethodDescriptor, path: str, *, goes_on: bool) -> RightsCheck | None:
        """Return the check of a method's calls. None where no rights are set, and for methods of services."""
        if self.access is None or not self.access.is_set or path not in ACCESSES:
            return None

        def refused(request: Any, context: Any, error: Exception) -> None:
            self.trail.refused(path, request, context, status_of(error, self.errors, is_counted=False))

        return RightsCheck(self.access, ACCESSES[path], method, goes_on=goes_on, refused=refused)


def service_handler(
    service: ServiceDescriptor,
    servicer: object,
    surroundings: Surroundings,
    *,
    raw: Collection[str] = (),
    early: Collection[str] = (),
    around: Mapping[str, Around] = MappingProxyType({}),
    limits: Limits = MappingProxyType({}),
    at_once: Collection[str] = (),
    turns: Mapping[str, TakeTurn] = MappingProxyType({}),
    goes_on: Collection[str] = (),
    served_as: str = "",
) -> grpc.GenericRpcHandler:
    """Return the handler of a proto service.

    Methods in `raw` get each request as bytes, of any size. Methods in `early` are called also before the service is
    ready. `around` maps a method to the context in which its calls are answered. `limits` are the limits of methods
    that are not in `raw`. `at_once` are unary methods that mostly answer without a wait: a front that knows turns runs
    their calls up to the first wait, and only a call that waits gets a task. They use nothing of their context but
    `peer` and `invocation_metadata`. `turns` maps raw unary methods to functions that take all requests of a turn of
    the event loop together. `goes_on` are methods with streams of requests in `raw` that answer a RefusedRequest by
    themselves. `served_as` is the service's name for callers, if it differs from the proto's name.

    The response of every method may be a message or its serialized bytes. A method that the servicer lacks is not
    served: callers get UNIMPLEMENTED.
    """
    offered = {name for name in dir(servicer) if name[0].isupper()} | {*raw, *early, *around}
    unknown = offered - {method.name for method in service.methods}
    served_as = served_as or service.full_name
    assert not unknown, f"{service.full_name} has no method {unknown}"
    is_foreign = not served_as.startswith(OWN_PACKAGE)
    without_rule = {name for name in offered if not is_foreign and f"/{served_as}/{name}" not in ROLES}
    assert not without_rule, f"{served_as}: the protos have no rule for {without_rule}"
    paths = {f"/{served_as}/{name}" for name in offered} if not is_foreign else set()
    without_access = {path for path in paths - ACCESSES.keys() if ROLES[path] is not Role.SERVICE}
    assert not without_access, f"the table of accesses lacks {without_access}"
    handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
    for method in service.methods:
        behaviour = getattr(servicer, method.name, None)
        if behaviour is None:
            continue
        is_of_clients = ROLES.get(f"/{served_as}/{method.name}", Role.CLIENT) is Role.CLIENT
        limit = limits.get(method.name, DEFAULT_LIMITS)
        call = _Call(
            method=method,
            name=f"{served_as}/{method.name}",
            behaviour=behaviour,
            parse=bytes if method.name in raw else RequestParser(method.input_type, limit).parse,
            is_early=method.name in early,
            around=around.get(method.name, _alone),
            bounds=surroundings.bounds if is_of_clients else surroundings.trusted_bounds,
            surroundings=surroundings,
            goes_on=method.name in goes_on,
            rights=surroundings.rights_check(method, f"/{served_as}/{method.name}", goes_on=method.name in goes_on),
            note=surroundings.telemetry.message_note(f"{served_as}/{method.name}"),
        )
        handle = call.handler()
        if method.name in turns:
            assert method.name in raw
            assert method.name not in around
            take = turns[method.name] if call.rights is None else call.rights.taking(turns[method.name])
            handlers[method.name] = TurnHandler(handle, call.turn(take, handle))
        elif method.name in at_once:
            handlers[method.name] = TurnHandler(handle, call.turn(call.take_each, handle), is_quick=False)
        else:
            handlers[method.name] = _MAKERS[method.client_streaming, method.server_streaming](handle)
    return grpc.method_handlers_generic_handler(served_as, handlers)


_MAKERS: dict[tuple[bool, bool], Callable[[Any], grpc.RpcMethodHandler[Any, Any]]] = {
    (False, False): grpc.unary_unary_rpc_method_handler,
    (False, True): grpc.unary_stream_rpc_method_handler,
    (True, False): grpc.stream_unary_rpc_method_handler,
    (True, True): grpc.stream_stream_rpc_method_handler,
}


class _Call(Struct, frozen=True, kw_only=True):
    """A method, with the objects that its calls need."""

    method: MethodDescriptor
    name: str
    """The name of the method in calls and metrics."""
    behaviour: Callable[..., Any]
    parse: Callable[[bytes], Any]
    is_early: bool
    around: Around
    bounds: CallBounds
    surroundings: Surroundings
    goes_on: bool = False
    """Whether the method answers a RefusedRequest by itself."""
    rights: RightsCheck | None = None
    note: Note | None = None
    """Makes the spans of messages. None while nothing is traced."""

    def turn(self, take: TakeTurn, alone: Handler) -> Turn:
        """Return the function that a front calls for all requests of a turn. `alone` answers a single call."""
        name, bounds, gate = self.name, self.bounds, self.surroundings.gate
        telemetry = self.surroundings.telemetry
        assert f"/{name}" not in TOLD
        assert not self.method.client_streaming
        assert not self.method.server_streaming

        def answer(requests: Sequence[bytes], calls: Sequence[TurnCall]) -> Sequence[Outcome]:
            if (
                telemetry.is_tracing
                or gate.is_stopping
                or not gate.is_ready
                or not bounds.calls.has_room(len(requests))
                or planned.is_planned(name)
            ):
                return [alone] * len(requests)
            started_s = time.monotonic()
            outcomes: list[Outcome] = []
            for one in take(requests, calls):
                if one is None:
                    outcomes.append(alone)
                elif isinstance(one, bytes) and len(one) <= SMALL_ANSWER_BYTES:
                    telemetry.count_rpc(name, "OK", time.monotonic() - started_s)
                    outcomes.append(one)
                else:
                    outcomes.append(self.handler(_given(one) if isinstance(one, bytes) else one))
            return outcomes

        return answer

    def take_each(self, requests: Sequence[bytes], calls: Sequence[TurnCall]) -> Iterator[bytes | Rest]:
        """Run each call of a turn up to its first wait."""
        for request, call in zip(requests, calls, strict=True):
            yield first_step(self._answer_request(request, call))

    def handler(self, rest: Rest | None = None) -> Handler:
        """Return the coroutine function that gRPC calls for each RPC. With `rest`, its request was taken already."""
        name = self.name
        answer: Handler = self._answer_stream if self.method.server_streaming else self._answer_unary
        telemetry, errors = self.surroundings.telemetry, self.surroundings.errors
        trail, is_told = self.surroundings.trail, f"/{name}" in TOLD

        async def handle(request: Any, context: Context) -> bytes | None:
            started_s = time.monotonic()
            code, argument, status = grpc.StatusCode.CANCELLED, None, None
            over, refusal = "", None
            with telemetry.server_span(name, context) as span, noting() if is_told else _NO_CHANGE as change:
                try:
                    if rest is not None:
                        reply: bytes | None = await self._answer_rest(rest, context)
                    else:
                        with self.bounds.calls:
                            self._check_gate()
                            argument = self._taken(request, context)
                            reply = await answer(argument, context)
                except HeldAnswer as answered:
                    code, over, refusal = grpc.StatusCode.OK, answered.subject, answered.reply
                except Exception as error:  # noqa: BLE001 - the boundary where errors become statuses
                    status = status_of(error, errors)
                    code = code_of(status)
                    over = error.subject if isinstance(error, QuotaExceeded) else ""
                else:
                    code = grpc.StatusCode.OK
                    self._note(request, reply, started_s)
                    return reply
                finally:
                    end_span(span, code)
                    telemetry.count_rpc(name, code.name, time.monotonic() - started_s)
                    if is_told or code in _REFUSALS:
                        trail.ended(f"/{name}", argument, context, change=change, code=code.name, status=status)
            # gRPC keeps the exception of an abort, and with it this frame, until the cyclic collector runs.
            request = argument = None
            if over and self.surroundings.access is not None:
                await self.surroundings.access.hold(over, context)
            if refusal is not None:
                return await self._answer_refusal(refusal, context)
            assert status is not None
            metadata = (*context.trailing_metadata(), (STATUS_METADATA_KEY, status.SerializeToString()))
            return await context.abort(code, status.message, metadata)

        return handle

    async def _answer_refusal(self, reply: bytes, context: Context) -> bytes | None:
        if not self.method.server_streaming:
            return reply
        await self._write(reply, context)
        return None

    def _note(self, request: Any, reply: bytes | None, started_s: float) -> None:
        """Make the spans of the messages of a single call."""
        if self.note is not None and reply is not None:
            start_ns = time.time_ns() - int((time.monotonic() - started_s) * 1e9)
            self.note(request, start_ns)
            self.note(reply, start_ns)

    def _check_gate(self) -> None:
        if self.surroundings.gate.is_stopping:
            raise Stopping
        if not self.surroundings.gate.is_ready and not self.is_early:
            raise NotReady("the server is recovering its store")

    def _taken(self, request: Any, context: Any) -> Any:
        """Return the argument of a servicer's method: the request, or the iterator of a stream of requests."""
        if self.method.client_streaming:
            requests = self._parse_all(request, context)
            return requests if self.rights is None else self.rights.checking(requests, context)
        planned.check(self.name, context)
        if self.rights is None:
            return self.parse(request)
        subject = self.rights.admit(len(request), context)
        argument = self.parse(request)
        self.rights.check(argument, subject)
        return argument

    async def _parse_all(self, requests: AsyncIterator[bytes], context: Any) -> AsyncGenerator[Any, None]:
        async for request in requests:
            try:
                planned.check(self.name, context)
            except PlannedRefusal as error:
                if not self.goes_on:
                    raise
                refused = RefusedRequest(request)
                refused.error = error
                yield refused
                continue
            if self.note is not None:
                self.note(request, time.time_ns())
            yield self.parse(request)

    async def _answer_unary(self, argument: Any, context: Any) -> bytes:
        return self._counted(await self._reply(argument, context), context)

    async def _answer_request(self, request: bytes, context: Any) -> bytes:
        return await self._reply(self._taken(request, context), context)

    async def _reply(self, argument: Any, context: Any) -> bytes:
        with self.around():
            reply = await self.behaviour(argument, context)
        return _serialized(reply if self.rights is None else self.rights.shown(reply, context))

    async def _answer_rest(self, rest: Rest, context: Context) -> bytes:
        """Answer a call whose request was taken: no limit and no gate refuses it any more."""
        self.bounds.calls.count += 1
        try:
            return self._counted(await rest(), context)
        finally:
            self.bounds.calls.count -= 1

    def _counted(self, reply: bytes, context: Context) -> bytes:
        """Count a large answer until its reader has received it."""
        if len(reply) > SMALL_ANSWER_BYTES:
            self.bounds.answers.charge(len(reply))
            self._give_back_at_end(context, len(reply))
        return reply

    async def _answer_stream(self, argument: Any, context: Context) -> None:
        rights = None if self.rights is None else self.rights.lasting(argument, context)
        with self.around() as check:
            async with contextlib.aclosing(self.behaviour(argument, context)) as replies:
                async for reply in replies:
                    check()
                    if rights is not None:
                        rights.check_again()
                    await self._write(data := _serialized(reply), context)
                    if self.note is not None:
                        self.note(data, time.time_ns())

    async def _write(self, reply: bytes, context: Context) -> None:
        """Send an answer of a stream, and wait until gRPC has released it."""
        size_bytes = len(reply) if len(reply) > SMALL_ANSWER_BYTES else 0
        if size_bytes:
            self.bounds.answers.charge(size_bytes)
        try:
            async with asyncio.timeout(self.bounds.unread_timeout_s):
                await context.write(reply)
        except BaseException as error:
            if size_bytes:  # gRPC holds it until the call is over
                self._give_back_at_end(context, size_bytes)
            if isinstance(error, TimeoutError):
                raise StreamNotRead(self.bounds.unread_timeout_s) from error
            if isinstance(error, grpc.aio.InternalError):
                # The caller left while the answer was being sent; gRPC's own cancellation follows a moment later.
                raise asyncio.CancelledError from error
            raise
        if size_bytes:
            self.bounds.answers.give_back(size_bytes)

    def _give_back_at_end(self, context: Context, size_bytes: int) -> None:
        callback = cast("Any", lambda _: self.bounds.answers.give_back(size_bytes))
        context.add_done_callback(callback)


_ALONE = contextlib.nullcontext(lambda: None)
_NO_CHANGE = contextlib.nullcontext(Change())
_REFUSALS = (
    grpc.StatusCode.UNAUTHENTICATED,
    grpc.StatusCode.PERMISSION_DENIED,
    grpc.StatusCode.RESOURCE_EXHAUSTED,
)


def _alone() -> contextlib.AbstractContextManager[Callable[[], None]]:
    return _ALONE


def _given(reply: bytes) -> Rest:
    async def rest() -> bytes:
        return reply

    return rest


def _serialized(reply: bytes | Message) -> bytes:
    return reply if isinstance(reply, bytes) else reply.SerializeToString()
