# SPDX-License-Identifier: Apache-2.0
"""GrpcServer: a gRPC server with the parts that all our services share: health, reflection, limits, TLS, tokens.

States: made -> add_service... -> start (listens, answers RECOVERING to all but early calls) -> admit (serves)
-> drain (answers STOPPING) -> stop. Health says SERVING only between set_healthy, which comes after admit, and drain.
Callers: the event loop that it was started on.
Not handled: the meaning of calls (servicers), the time of a change of state (libs.runtime.process).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Collection, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from msgspec.structs import replace
from reput.common.v1 import audit_service_pb2, connection_service_pb2

from libs.runtime.http2.connections import shortages
from libs.runtime.rpc.audit_servicer import AuditServicer
from libs.runtime.rpc.bounds import CallBounds
from libs.runtime.rpc.connection_servicer import ConnectionServicer
from libs.runtime.rpc.errors import ErrorTable, Refusals
from libs.runtime.rpc.fronts.front import front_of
from libs.runtime.rpc.guard import Guard
from libs.runtime.rpc.handlers import Around, Surroundings, TakeTurn, service_handler
from libs.runtime.rpc.health import CALL_COUNT_MAX as HEALTH_CALL_COUNT_MAX
from libs.runtime.rpc.health import SERVICE_NAME as HEALTH_SERVICE
from libs.runtime.rpc.health import Checked, HealthServicer
from libs.runtime.rpc.request_check import Limits
from libs.runtime.settings import ServerConfig
from libs.runtime.trust.callers import Callers
from libs.runtime.trust.exposure import check_reach
from libs.runtime.trust.rights.access import Access
from libs.runtime.trust.trail import Trail
from libs.runtime.watch.telemetry import Telemetry
from libs.service_names import SERVICES, STORE_PORT

if TYPE_CHECKING:
    import grpc

_log = logging.getLogger(__name__)

TRUSTED_CALL_COUNT_MAX = 256
"""Maximum number of running calls of other services and of operators."""

REFLECTION_CALL_COUNT_MAX = 64
"""Maximum number of reflection streams. A tool needs a single stream, for a moment."""


CALLS_LOOK_S = 0.005


class _AlwaysOpen:
    """The gate of services that answer in every state."""

    is_ready = True
    is_stopping = False


class _Reflection:
    """gRPC's servicer of reflection, loaded by the first call: few processes get one."""

    def __init__(self, names: list[str]) -> None:
        self._names = names

    async def ServerReflectionInfo(self, requests: AsyncIterator[Any], context: object) -> AsyncIterator[Any]:  # noqa: N802
        """Answer questions about the services."""
        from grpc_reflection.v1alpha import reflection

        servicer: Any = reflection.aio.ReflectionServicer(self._names)
        async for answer in servicer.ServerReflectionInfo(requests, context):
            yield answer


class GrpcServer:
    """The gRPC server of a service. `errors` is the service's table; `telemetry` counts and traces the calls."""

    def __init__(
        self,
        config: ServerConfig,
        *,
        errors: ErrorTable,
        telemetry: Telemetry,
        request_size_bytes_max: int,
        limits: Limits = MappingProxyType({}),
    ) -> None:
        self.is_ready = False
        self.is_stopping = False
        self.port = 0
        self._config = config
        self._limits = limits
        self.bounds = self._room(config.concurrent_rpc_max)
        self.trusted_bounds = self._room(TRUSTED_CALL_COUNT_MAX)
        """The room of services and operators; `bounds` is the room of clients."""
        callers = Callers(config)
        self.access = Access(config, callers)
        """The rights of the callers."""
        telemetry.observe("rights", self.access.statistics)
        self.trail = Trail(telemetry.service, config.audit)
        """The audit of the calls."""
        telemetry.observe("audit", self.trail.statistics)
        self.trail.name_of = self.access.name_of
        self._surroundings = Surroundings(
            errors=errors,
            gate=self,
            bounds=self.bounds,
            trusted_bounds=self.trusted_bounds,
            telemetry=telemetry,
            trail=self.trail,
            access=self.access,
        )
        self._health = HealthServicer()
        self._service_names: list[str] = []
        self._elsewhere: list[str] = []
        """Services behind the door."""
        rooms = (config.concurrent_rpc_max, TRUSTED_CALL_COUNT_MAX, HEALTH_CALL_COUNT_MAX, REFLECTION_CALL_COUNT_MAX)
        self._front = front_of(config, request_size_bytes_max=request_size_bytes_max, call_count_max=sum(rooms))
        self._front.observe(telemetry)
        telemetry.observe_each("rpc", ("code", "reason"), Refusals.counted, Refusals)
        self._front.add_generic_rpc_handlers((Guard(callers, self.access, telemetry, self.trail),))

    def add_service(
        self,
        service: ServiceDescriptor,
        servicer: object,
        *,
        raw: Collection[str] = (),
        early: Collection[str] = (),
        around: Mapping[str, Around] = MappingProxyType({}),
        at_once: Collection[str] = (),
        turns: Mapping[str, TakeTurn] = MappingProxyType({}),
        goes_on: Collection[str] = (),
        served_as: str = "",
    ) -> None:
        """Serve a proto service, as `service_handler` does. Call it before `start`."""
        handler = service_handler(
            service,
            servicer,
            self._surroundings,
            raw=raw,
            early=early,
            around=around,
            limits=self._limits,
            at_once=at_once,
            turns=turns,
            goes_on=goes_on,
            served_as=served_as,
        )
        self._front.add_generic_rpc_handlers((handler,))
        self._service_names.append(served_as or service.full_name)

    def add_door(self, door: grpc.GenericRpcHandler, services: Mapping[str, Checked]) -> None:
        """Let a door take calls before the roles of their callers are judged here. Call it before `start`.

        `services` are the services behind the door, with the checks of their health.
        """
        self._front.add_first(door)
        self._health.add_elsewhere(services)
        self._elsewhere.extend(services)

    @property
    def may_have_door(self) -> bool:
        """Whether the front can pass calls on."""
        return self._front.open_connections is not None

    def _room(self, call_count_max: int) -> CallBounds:
        """Return the bounds of a separate room for calls and their answers."""
        return CallBounds(
            call_count_max=call_count_max,
            answer_bytes_max=self._config.answer_inflight_bytes_max,
            unread_timeout_s=self._config.stream_unread_timeout_ms / 1000,
        )

    def _add_own_services(self) -> None:
        """Add the services that answer in every state: health and reflection in own rooms, audit and connections."""
        self._health.add(self._service_names)
        self._add("Health", health_pb2, self._health, self._room(HEALTH_CALL_COUNT_MAX))
        audit = audit_service_pb2.DESCRIPTOR.services_by_name["AuditService"]
        self.add_service(audit, AuditServicer(self.trail), early={"ListLines"})
        if self._front.open_connections is not None:
            connection = connection_service_pb2.DESCRIPTOR.services_by_name["ConnectionService"]
            servicer = ConnectionServicer(self._front.open_connections, self.access.name_of)
            self.add_service(connection, servicer, early={"ListConnections"})
        reflection = reflection_pb2.DESCRIPTOR.services_by_name["ServerReflection"].full_name
        names = [*self._service_names, *self._elsewhere, HEALTH_SERVICE, reflection]
        room = self._room(REFLECTION_CALL_COUNT_MAX)
        self._add("ServerReflection", reflection_pb2, _Reflection(names), room)

    def _add(self, name: str, module: Any, servicer: object, bounds: CallBounds) -> None:
        surroundings = replace(self._surroundings, gate=_AlwaysOpen(), bounds=bounds, trusted_bounds=bounds)
        handler = service_handler(module.DESCRIPTOR.services_by_name[name], servicer, surroundings)
        self._front.add_generic_rpc_handlers((handler,))

    async def start(self) -> None:
        """Listen and answer. Calls get RECOVERING until `admit`. Raises PortInUse, ListenFailed or ConfigError."""
        self._add_own_services()
        self._front.unknown_text += whose(self._surroundings.telemetry.service, has_door=bool(self._elsewhere))
        check_reach(self._config)
        for sentence in shortages(self._config.connections):
            _log.warning(sentence)
        self.port = await self._front.listen()
        await self._front.start()

    def admit(self) -> None:
        """Accept calls."""
        self.is_ready = True

    def hold(self) -> None:
        """Refuse new calls until `admit`. Running calls continue."""
        self.is_ready = False

    async def wait_calls(self, timeout_s: float, *, but_count: int) -> None:
        """Wait at most `timeout_s` until at most `but_count` calls of the services run: their handlers wait here."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.bounds.calls.count + self.trusted_bounds.calls.count > but_count:  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(CALLS_LOOK_S)

    @property
    def is_healthy(self) -> bool:
        """Whether health says SERVING. From any thread."""
        return self._health.is_serving

    async def set_healthy(self) -> None:
        """Let health say SERVING."""
        assert self.is_ready
        self._health.set_serving(True)

    async def drain(self) -> None:
        """Refuse new calls with STOPPING, so that load balancers and clients go elsewhere. Running calls continue."""
        self.is_stopping = True
        self._health.end()
        if self._elsewhere:
            self._front.end_relayed_streams()

    async def stop(self, grace_s: float) -> None:
        """Stop listening. Calls that still run after the grace are cancelled."""
        self.is_stopping = True
        await self._front.stop(grace_s)
        await asyncio.to_thread(self.trail.close)


def whose(service: str, *, has_door: bool) -> str:
    """Return a sentence for callers of an unknown method, which may be meant for another service. Empty without one."""
    if service in SERVICES:
        return (
            f" This is the {SERVICES[service]}, which serves its own API alone; a gateway serves the APIs of all "
            f"services, usually at port {STORE_PORT}"
        )
    if service == "gateway" and not has_door:
        return " This gateway serves RocketMQ's clients alone: its setting door is off"
    return ""
