# SPDX-License-Identifier: Apache-2.0
"""Door: the native APIs of the store's services on the gateway's port. Their calls go on to the services as bytes.

The package of a method names its service. Methods that all services have go to the service that the metadata
`reput-service` name, and to the gateway itself without it. Roles, rights and quotas are the services' matter: they
judge the caller, whose address and certificate travel with the call (libs.runtime.trust.passed_on).
Callers: the event loop's thread.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import grpc
from google.rpc.error_details_pb2 import ErrorInfo
from google.rpc.status_pb2 import Status
from msgspec import Struct

from libs.requests.errors import BadArgument, DependencyUnavailable
from libs.runtime.http2.calling.outcome import Outcome
from libs.runtime.http2.heads import metadata_of
from libs.runtime.http2.relay.fields import SERVICE_FIELD
from libs.runtime.http2.relay.upstream import RelayHandler, Upstream
from libs.runtime.rpc.errors import BASE_TABLE, STATUS_METADATA_KEY, ErrorRow, ErrorTable, code_of, status_of
from libs.runtime.rpc.fronts.in_loop import IncomingBudget

if TYPE_CHECKING:
    from libs.runtime.http2.heads import Fields
    from libs.runtime.settings import ServerConfig

SHARED_PACKAGES: Final = frozenset({"reput.common.v1", "grpc.health.v1"})
"""Packages whose methods every service has."""

NAME_SHOWN: Final = 100
VALUES_SHOWN: Final = 3
"""Characters of a wrong value, and number of values, that a refusal repeats."""

_CODES: Final = {str(code.value[0]).encode(): code.name for code in grpc.StatusCode}


class ServiceAbsent(Exception):
    """The gateway has no such service behind it."""

    def __init__(self, service: str, text: str) -> None:
        super().__init__(text)
        self.service = service


_TABLE: Final[ErrorTable] = {ServiceAbsent: ErrorRow(grpc.StatusCode.UNIMPLEMENTED, "SERVICE_NOT_FOUND", ("service",))}


class DoorCalls(Struct, frozen=True, kw_only=True):
    """The calls of a service that the door has passed on and that have ended with a code."""

    calls_total: int
    """Calls that were passed on to a service, by their code, also those that did not reach it."""


class DoorStatistics(Struct, frozen=True, kw_only=True):
    """The traffic of a service through the door."""

    open_calls: int
    """Calls and streams that are passed on now."""
    request_bytes_total: int
    """Bytes of requests that callers sent to a service, counted when a call ends."""
    answer_bytes_total: int
    """Bytes of answers that a service sent to callers, counted when a call ends."""
    unreached_calls_total: int
    """Calls that ended because no member of a service could be reached."""
    full_calls_total: int
    """Calls that the door refused or ended with WINDOW_FULL: too many calls, or too many held bytes."""


class DoorHeld(Struct, frozen=True, kw_only=True):
    """The bytes that the door holds now, for all callers and services."""

    held_request_bytes: int
    """Bytes of requests that the services have not taken."""
    held_answer_bytes: int
    """Bytes of answers that the callers have not taken."""
    held_request_limit_bytes: int
    """The limit of the held bytes of requests."""
    held_answer_limit_bytes: int
    """The limit of the held bytes of answers."""


class Door(grpc.GenericRpcHandler):
    """The door to the services of a store, by the names of their packages. A service without channels is not there."""

    def __init__(self, config: ServerConfig, channels: Mapping[str, Sequence[Any]], own_fields: Any) -> None:
        requests = IncomingBudget("callers' requests wait for the services", config.request_inflight_bytes_max)
        answers = IncomingBudget("callers leave too many bytes of answers untaken", config.answer_inflight_bytes_max)
        self._limits = config.request_inflight_bytes_max, config.answer_inflight_bytes_max
        self._budgets = requests, answers
        self.upstreams = {
            name: Upstream(f"the service {name}", channels[name], reason_of=reason_of, unreached=_Unreached(name))
            for name in channels
            if channels[name]
        }
        self._names = ", ".join(channels)
        self._handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            f"reput.{name}.v1": RelayHandler(self.upstreams[name], requests, answers, own_fields)
            if name in self.upstreams
            else _absent(name)
            for name in channels
        }

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Return the handler of a call that goes on. None for a call to the gateway itself."""
        method = handler_call_details.method
        package = method[1 : method.rfind("/")].rpartition(".")[0]
        found = self._handlers.get(package)
        if found is None and package in SHARED_PACKAGES:
            return self._named(handler_call_details)
        return found

    def _named(self, details: Any) -> grpc.RpcMethodHandler[Any, Any] | None:
        """Return the handler of the service that the metadata of a call name. None without a name."""
        values = [value.decode("latin-1") for name, value in details.fields if name == SERVICE_FIELD]
        if not values:
            return None
        found = self._handlers.get(f"reput.{values[0]}.v1") if len(values) == 1 else None
        return found or _refusing(_bad_name(values, self._names), BASE_TABLE)

    def calls(self) -> Mapping[tuple[str, ...], DoorCalls]:
        """Return the calls that have ended, by service and code. From any thread."""
        return {
            (name, _CODES.get(code, "UNKNOWN")): DoorCalls(calls_total=count)
            for name, upstream in self.upstreams.items()
            for code, count in list(upstream.ended.items())
            if code in _CODES
        }

    def statistics(self) -> Mapping[tuple[str, ...], DoorStatistics]:
        """Return the traffic, by service. From any thread."""
        return {
            (name,): DoorStatistics(
                open_calls=upstream.open_count,
                request_bytes_total=upstream.request_bytes,
                answer_bytes_total=upstream.answer_bytes,
                unreached_calls_total=upstream.unreached_count,
                full_calls_total=upstream.full_count,
            )
            for name, upstream in self.upstreams.items()
        }

    def held(self) -> DoorHeld:
        """Return the bytes that are held. From any thread."""
        requests, answers = self._budgets
        return DoorHeld(
            held_request_bytes=requests.charged_bytes,
            held_answer_bytes=answers.charged_bytes,
            held_request_limit_bytes=self._limits[0],
            held_answer_limit_bytes=self._limits[1],
        )


class _Unreached(Struct, frozen=True):
    """The end of a call that reached no member of a service."""

    service: str

    def __call__(self, text: str) -> Outcome:
        status = status_of(DependencyUnavailable(self.service, text), BASE_TABLE)
        return Outcome(code_of(status), status.message, ((STATUS_METADATA_KEY, status.SerializeToString()),))


def reason_of(fields: Fields) -> str:
    """Return the reason of the error with which an answer ends. Empty without one."""
    info = ErrorInfo()
    for key, value in metadata_of([one for one in fields if one[0] == STATUS_METADATA_KEY.encode()]):
        if key == STATUS_METADATA_KEY and isinstance(value, bytes):
            for detail in Status.FromString(value).details:
                detail.Unpack(info)
    return str(info.reason)


def _bad_name(values: Sequence[str], names: str) -> BadArgument:
    """Return the refusal of metadata that name no service, or several."""
    shown = ", ".join(repr(value[:NAME_SHOWN]) for value in values[:VALUES_SHOWN])
    many = f" and {len(values) - VALUES_SHOWN} more" if len(values) > VALUES_SHOWN else ""
    reason = f"{shown} is no service" if values[0] else "is empty"
    if len(values) > 1:
        reason = f"has {len(values)} values, {shown}{many}, but a call goes to one service"
    return BadArgument(f"{reason}; send one of {names}", field=SERVICE_FIELD.decode(), value=shown, limit=names)


def _absent(name: str) -> grpc.RpcMethodHandler[Any, Any]:
    text = f"this gateway has no service {name!r} behind it: its setting {name}_target names none"
    return _refusing(ServiceAbsent(name, text), _TABLE)


def _refusing(error: Exception, table: ErrorTable) -> grpc.RpcMethodHandler[Any, Any]:
    """Return the handler that ends each call with an error."""
    status = status_of(error, table)

    async def refuse(_requests: object, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        details = ((STATUS_METADATA_KEY, status.SerializeToString()),)
        await context.abort(code_of(status), status.message, details)

    return grpc.stream_stream_rpc_method_handler(refuse)
