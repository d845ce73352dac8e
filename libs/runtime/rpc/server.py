# SPDX-License-Identifier: Apache-2.0
"""GrpcServer: a grpc.aio server with what every service of ours serves: health, reflection, limits, TLS, tokens.

States: made -> add_service... -> start (listens, answers RECOVERING to all but early calls) -> admit (serves)
-> drain (answers STOPPING) -> stop. Health says SERVING only between set_healthy, which comes after admit, and drain.
Callers: the event loop that it was started on.
Not handled: what the calls mean (servicers), when to change state (libs.runtime.process).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE
from grpc_reflection.v1alpha import reflection, reflection_pb2

from libs.runtime.errors import ConfigError, ListenFailed, PortInUse
from libs.runtime.rpc.bounds import CallBounds
from libs.runtime.rpc.errors import ErrorTable
from libs.runtime.rpc.guard import Guard
from libs.runtime.rpc.handlers import Around, Surroundings, service_handler
from libs.runtime.rpc.health import CALL_COUNT_MAX as HEALTH_CALL_COUNT_MAX
from libs.runtime.rpc.health import HealthServicer
from libs.runtime.rpc.request_check import Limits
from libs.runtime.settings import ServerConfig
from libs.runtime.telemetry import Telemetry
from libs.runtime.trust.credentials import server_credentials
from libs.runtime.trust.tokens import is_loopback

REQUEST_SLACK_BYTES = 1 << 20
"""gRPC itself refuses, without a reason of ours, only what is this much above our own limit."""

RESPONSE_SIZE_BYTES_MAX = 64 << 20
"""Bound of one response; services keep theirs far below."""

PING_INTERVAL_MS_MIN = 5_000
"""Clients may ping this often, also without calls; gRPC's default of five minutes answers with too_many_pings."""

KEEPALIVE_INTERVAL_MS = 60_000
"""The server pings as often, so that calls of clients that vanished end."""

KEEPALIVE_TIMEOUT_MS = 20_000


TRUSTED_CALL_COUNT_MAX = 256
"""Calls of other services and of operators at once."""

REFLECTION_CALL_COUNT_MAX = 64
"""Reflection streams at once; a tool needs one, for a moment."""


CALLS_LOOK_S = 0.005


class _AlwaysOpen:
    """The gate of what answers in every state."""

    is_ready = True
    is_stopping = False


class GrpcServer:
    """See the module. `errors` is the service's table; `telemetry` counts and traces the calls."""

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
        """Room of callers, and that of services and operators."""
        self._surroundings = Surroundings(
            errors=errors, gate=self, bounds=self.bounds, trusted_bounds=self.trusted_bounds, telemetry=telemetry
        )
        self._health = HealthServicer()
        self._service_names: list[str] = []
        rooms = (config.concurrent_rpc_max, TRUSTED_CALL_COUNT_MAX, HEALTH_CALL_COUNT_MAX, REFLECTION_CALL_COUNT_MAX)
        self._server = grpc.aio.server(
            options=server_options(request_size_bytes_max + REQUEST_SLACK_BYTES), maximum_concurrent_rpcs=sum(rooms)
        )
        self._server.add_generic_rpc_handlers((Guard(config, telemetry),))

    def add_service(
        self,
        service: ServiceDescriptor,
        servicer: object,
        *,
        raw: Collection[str] = (),
        early: Collection[str] = (),
        around: Mapping[str, Around] = MappingProxyType({}),
    ) -> None:
        """Serve a proto service, as `service_handler` does. Call it before `start`."""
        handler = service_handler(
            service, servicer, self._surroundings, raw=raw, early=early, around=around, limits=self._limits
        )
        self._server.add_generic_rpc_handlers((handler,))
        self._service_names.append(service.full_name)

    def _room(self, call_count_max: int) -> CallBounds:
        """Make room for so many calls and their answers, which no others use."""
        return CallBounds(
            call_count_max=call_count_max,
            answer_bytes_max=self._config.answer_inflight_bytes_max,
            unread_timeout_s=self._config.stream_unread_timeout_ms / 1000,
        )

    def _add_own_services(self) -> None:
        """Add health and reflection, which answer in every state and have a room of their own each."""
        self._health.add(self._service_names)
        self._add("Health", health_pb2, self._health, self._room(HEALTH_CALL_COUNT_MAX))
        names = [*self._service_names, HEALTH_SERVICE, reflection.SERVICE_NAME]
        room = self._room(REFLECTION_CALL_COUNT_MAX)
        self._add("ServerReflection", reflection_pb2, reflection.aio.ReflectionServicer(names), room)

    def _add(self, name: str, module: Any, servicer: object, bounds: CallBounds) -> None:
        surroundings = replace(self._surroundings, gate=_AlwaysOpen(), bounds=bounds, trusted_bounds=bounds)
        handler = service_handler(module.DESCRIPTOR.services_by_name[name], servicer, surroundings)
        self._server.add_generic_rpc_handlers((handler,))

    async def start(self) -> None:
        """Listen and answer. Calls get RECOVERING until `admit`. Raises PortInUse, ListenFailed or ConfigError."""
        self._add_own_services()
        self._listen()
        await self._server.start()

    def admit(self) -> None:
        """Let calls in."""
        self.is_ready = True

    def hold(self) -> None:
        """Let no calls in until `admit`. Those that are under way go on."""
        self.is_ready = False

    async def wait_calls(self, timeout_s: float, *, but_count: int) -> None:
        """Wait at most so long until the services' calls have ended, but for so many, whose handlers wait here."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                while self.bounds.calls.count + self.trusted_bounds.calls.count > but_count:  # noqa: ASYNC110 - it has no event
                    await asyncio.sleep(CALLS_LOOK_S)

    async def set_healthy(self) -> None:
        """Let health say SERVING."""
        assert self.is_ready
        self._health.set_serving(True)

    async def drain(self) -> None:
        """Refuse new calls with STOPPING, so that load balancers and clients go elsewhere. Running calls go on."""
        self.is_stopping = True
        self._health.end()

    async def stop(self, grace_s: float) -> None:
        """Stop listening. Calls that still run after the grace are cancelled."""
        self.is_stopping = True
        await self._server.stop(grace_s)

    def _listen(self) -> None:
        config = self._config
        host = f"[{config.listen_host}]" if ":" in config.listen_host else config.listen_host
        address = f"{host}:{config.port}"
        credentials = server_credentials(config)
        if credentials is None and not config.allow_insecure and not is_loopback(config.listen_host):
            raise ConfigError(
                f"listen_host {config.listen_host} can be reached from other machines: set tls_certificate_file and "
                "tls_key_file, or allow_insecure = true"
            )
        _probe(config.listen_host, config.port, address)
        try:
            if credentials is None:
                self.port = self._server.add_insecure_port(address)
            else:
                self.port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise ListenFailed(address, reason=str(error)) from error
        if config.unix_socket is not None:
            _probe_unix(config.unix_socket)
            self._server.add_insecure_port(f"unix:{config.unix_socket}")


def server_options(receive_size_bytes_max: int) -> list[tuple[str, int]]:
    """Return the channel options of every server of ours. The largest request that the server accepts is in bytes."""
    return [
        ("grpc.max_receive_message_length", receive_size_bytes_max),
        ("grpc.max_send_message_length", RESPONSE_SIZE_BYTES_MAX),
        ("grpc.so_reuseport", 0),  # a second process on the port must fail, not share it
        ("grpc.http2.min_recv_ping_interval_without_data_ms", PING_INTERVAL_MS_MIN),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.keepalive_time_ms", KEEPALIVE_INTERVAL_MS),
        ("grpc.keepalive_timeout_ms", KEEPALIVE_TIMEOUT_MS),
    ]


def _probe(host: str, port: int, address: str) -> None:
    """Try the address with a plain socket, because gRPC hides the reason and writes it to standard error itself."""
    try:
        family, kind, protocol, _, where = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(where)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise PortInUse(address, setting="port") from error
        raise ListenFailed(address, reason=error.strerror or str(error)) from error


def _probe_unix(path: Path) -> None:
    """Refuse a socket that somebody serves. gRPC replaces one that a killed process left."""
    address = f"unix:{path}"
    if not os.access(path.parent, os.W_OK):
        raise ListenFailed(address, reason="the directory is missing or can't be written")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            return
    raise PortInUse(address, setting="unix_socket")
