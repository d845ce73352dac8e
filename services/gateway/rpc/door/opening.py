# SPDX-License-Identifier: Apache-2.0
"""The door from the settings: its channels, and the health of the services behind it. For the bootstrap only."""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from libs.runtime.errors import ConfigError
from libs.runtime.peer.connection import Connection, Peer
from libs.runtime.rpc.errors import ServiceNotFound
from libs.runtime.trust.callers import door_token_of, service_token_of
from libs.runtime.trust.passed_on import fields_by
from libs.runtime.trust.roles import RULES

if TYPE_CHECKING:
    from libs.runtime.http2.relay.upstream import Upstream
    from libs.runtime.process import Shell
    from libs.runtime.rpc.health import Checked
    from libs.runtime.rpc.server import GrpcServer
    from libs.runtime.settings import PeerConfig, ServerConfig
    from services.gateway.config import GatewayConfig

HEALTH_S: Final = 2.0
"""Longest wait for the health of a service."""

_log = logging.getLogger(__name__)


def has_door(config: GatewayConfig, server: GrpcServer) -> bool:
    """Return whether the gateway has a door."""
    if config.door == "off" or (config.door == "auto" and config.access_keys_file is not None):
        return False
    if not server.may_have_door:
        _log.warning("the APIs of the services are not on this port: the front grpcio can't pass calls on")
    return server.may_have_door


def open_door(
    stores: Mapping[str, Mapping[str, PeerConfig]],
    config: ServerConfig,
    server: GrpcServer,
    shell: Shell,
    *,
    reconnect_ms_max: int,
) -> list[Connection]:
    """Open the door on a server to the services of stores, and return the connections behind it. Raises ConfigError.

    A single store has the name "". Shards have their own names.
    """
    # it needs the package of the front
    from services.gateway.rpc.door.door import Door, DoorCalls, DoorStatistics
    from services.gateway.rpc.door.shards import ShardDoors

    token, shown = service_token_of(config), door_token_of(config)
    doors: dict[str, Door] = {}
    behind: list[Connection] = []
    checks: dict[str, list[Checked]] = defaultdict(list)
    for store, peers in stores.items():
        connections = {
            name: [
                Peer(name=name, config=peer, token=token).at(target).connect_relaying(reconnect_ms_max=reconnect_ms_max)
                for target in _targets(name, peer.target)
            ]
            for name, peer in peers.items()
        }
        channels = {name: [one.channel for one in members] for name, members in connections.items()}
        doors[store] = Door(config, channels, fields_by(lambda: shown.shown))
        for service, check in _healths(doors[store].upstreams, connections).items():
            checks[service].append(check)
        behind += [one for found in connections.values() for one in found]
    door = doors[""] if "" in doors else ShardDoors(doors)
    server.add_door(door, {service: _all_of(found) for service, found in checks.items()})
    shell.telemetry.observe_each("door", ("service", "code"), door.calls, DoorCalls)
    shell.telemetry.observe_each("door", ("service",), door.statistics, DoorStatistics)
    shell.telemetry.observe("door", door.held)
    return behind


def _targets(name: str, text: str) -> list[str]:
    targets = [target.strip() for target in text.split(",")] if text else []
    if not all(targets):
        raise ConfigError(f"{name}_target: {text!r} must be host:port, or several with a comma between")
    return targets


def _healths(
    upstreams: Mapping[str, Upstream], connections: Mapping[str, Sequence[Connection]]
) -> Mapping[str, Checked]:
    """Return the checks of the health of all services of the APIs behind the door, by their names."""
    names = {path[1 : path.rfind("/")] for path in RULES}
    found: dict[str, Checked] = {}
    for service in sorted(names):
        name = service.split(".")[1]
        if name in upstreams:
            found[service] = _check_of(upstreams[name], connections[name])
    return found


def _all_of(checks: Sequence[Checked]) -> Checked:
    """Return the check of a service at all shards: the first answer that is not SERVING, else SERVING."""

    async def check(service: str) -> int:
        for one in checks:
            if (status := await one(service)) != health_pb2.HealthCheckResponse.SERVING:
                return int(status)
        return int(health_pb2.HealthCheckResponse.SERVING)

    return checks[0] if len(checks) == 1 else check


def _check_of(upstream: Upstream, members: Sequence[Connection]) -> Checked:
    stubs: list[Any] = [health_pb2_grpc.HealthStub(member.channel) for member in members]

    async def check(service: str) -> int:
        request = health_pb2.HealthCheckRequest(service=service)
        try:
            answer = await stubs[upstream.member].Check(request, timeout=HEALTH_S)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.NOT_FOUND:
                raise ServiceNotFound(service) from error
            return int(health_pb2.HealthCheckResponse.NOT_SERVING)
        return int(answer.status)

    return check
