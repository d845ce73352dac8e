# SPDX-License-Identifier: Apache-2.0
"""Guard: the first handler that gRPC asks about a call. It refuses callers without the role that the method needs.

It decides before the request is read. A call that needs no token costs only a look-up in a table.
Health checks pass, because orchestrators send no token. Every other method without a rule is for clients.
"""

from typing import Any

import grpc
from grpc_health.v1.health import SERVICE_NAME as HEALTH_SERVICE

from libs.runtime.rpc.errors import BASE_TABLE, STATUS_METADATA_KEY, NotPermitted, Unauthenticated, code_of, status_of
from libs.runtime.settings import ServerConfig
from libs.runtime.trust.roles import ROLES, Role
from libs.runtime.trust.tokens import TokenFile, ensure_local_token
from libs.runtime.trust.trail import Trail
from libs.runtime.watch.telemetry import Telemetry

AUTHORIZATION = "authorization"
BEARER = "Bearer "


class Guard(grpc.GenericRpcHandler):
    """The guard of a server. Raises ConfigError for a token file that can't be used."""

    def __init__(self, config: ServerConfig, telemetry: Telemetry, trail: Trail) -> None:
        self._telemetry = telemetry
        self._trail = trail
        self._open_roles = Role.CLIENT if config.token_file is None else Role.NOBODY
        self._open_methods = frozenset(method for method, role in ROLES.items() if role in self._open_roles)
        self._tokens = [
            (Role.SERVICE | Role.CLIENT, service_token_of(config)),
            (Role.OPERATOR | Role.CLIENT, _token_of("operator_token_file", config)),
        ]
        if config.token_file is not None:
            self._tokens.append((Role.CLIENT, TokenFile("token_file", config.token_file)))

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """Return None if the call is permitted, so that the next handlers get it, else the handler that refuses it."""
        method = handler_call_details.method
        if method in self._open_methods or method.startswith(f"/{HEALTH_SERVICE}/"):
            return None
        needed = ROLES.get(method, Role.CLIENT)
        if needed in self._open_roles:
            return None
        roles = self._open_roles | self._roles_of(_bearer_token(handler_call_details.invocation_metadata))
        if needed in roles:
            return None
        if roles:
            return self._refusal(method, NotPermitted(method, needed))
        text = "a valid bearer token is needed in the metadata key authorization"
        return self._refusal(method, Unauthenticated(text))

    def _roles_of(self, token: bytes) -> Role:
        """Return all roles of a token. Every known token is compared, so that the time reveals nothing."""
        roles = Role.NOBODY
        for given, file in self._tokens:
            if file.has(token):
                roles |= given
        return roles

    def _refusal(self, method: str, error: Exception) -> "grpc.RpcMethodHandler[Any, Any]":
        status = status_of(error, BASE_TABLE)

        async def refuse(_requests: object, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
            if method in ROLES:
                self._telemetry.count_rpc(method.removeprefix("/"), code_of(status).name, 0.0)
                self._trail.refused(method, peer=context.peer(), reason=code_of(status).name)
            await context.abort(code_of(status), status.message, ((STATUS_METADATA_KEY, status.SerializeToString()),))

        return grpc.stream_stream_rpc_method_handler(refuse)


def service_token_of(config: ServerConfig) -> TokenFile:
    """Return the token that the services of a store show to each other. Raises ConfigError."""
    return _token_of("service_token_file", config)


def _token_of(setting: str, config: ServerConfig) -> TokenFile:
    return TokenFile(setting, getattr(config, setting) or ensure_local_token())


def _bearer_token(metadata: Any) -> bytes:
    for key, value in metadata or ():
        if key == AUTHORIZATION:
            text = value if isinstance(value, str) else value.decode("latin-1")
            return text.removeprefix(BEARER).encode() if text.startswith(BEARER) else b""
    return b""
