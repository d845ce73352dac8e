# SPDX-License-Identifier: Apache-2.0
"""Guard: the first handler that gRPC asks about a call. It refuses callers without the role that the method needs.

It decides before the request is read. A call that needs no token costs only a look-up in a table.
Health checks pass, because orchestrators send no token. Every other method without a rule is for clients.
"""

from typing import Any

import grpc

from libs.runtime.rpc.errors import (
    BASE_TABLE,
    STATUS_METADATA_KEY,
    NotPermitted,
    code_of,
    status_of,
)
from libs.runtime.rpc.health import SERVICE_NAME as HEALTH_SERVICE
from libs.runtime.trust.callers import Callers, bearer_token
from libs.runtime.trust.passed_on import DOOR_KEY, origin_of
from libs.runtime.trust.rights.access import Access, NoDoor, NoToken
from libs.runtime.trust.roles import ROLES, Role
from libs.runtime.trust.trail import Trail
from libs.runtime.watch.telemetry import Telemetry


class Guard(grpc.GenericRpcHandler):
    """The guard of a server.

    Where a rights file is set, it refuses only callers without a valid credential, and calls of services: the rights of
    all other callers are checked when the request is read.
    """

    def __init__(self, callers: Callers, access: Access, telemetry: Telemetry, trail: Trail) -> None:
        self._callers, self._access = callers, access
        self._telemetry = telemetry
        self._trail = trail
        self._open_roles = callers.open_roles
        is_open = frozenset(method for method, role in ROLES.items() if role in self._open_roles)
        self._open_methods = frozenset[str]() if access.is_set else is_open

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> "grpc.RpcMethodHandler[Any, Any] | None":
        """Return None if the call is permitted, so that the next handlers get it, else the handler that refuses it."""
        method = handler_call_details.method
        origin = None
        if self._is_passed_on(handler_call_details):
            origin = origin_of(handler_call_details, self._callers)
            if origin is None:
                return self._refusal(method, NoDoor())
        if method in self._open_methods or method.startswith(f"/{HEALTH_SERVICE}/"):
            return None
        needed = ROLES.get(method, Role.CLIENT)
        if self._access.is_set and needed is not Role.SERVICE:
            token = bearer_token(handler_call_details.invocation_metadata)
            may_begin = self._access.may_begin(token, has_certificate=origin is not None and bool(origin.names))
            return None if may_begin else self._refusal(method, NoToken())
        if needed in self._open_roles:
            return None
        roles = self._open_roles | self._callers.roles_of(bearer_token(handler_call_details.invocation_metadata))
        if needed in roles:
            return None
        if roles:
            return self._refusal(method, NotPermitted(method, needed))
        return self._refusal(method, NoToken())

    @staticmethod
    def _is_passed_on(details: Any) -> bool:
        """Return whether a call has fields of a door. gRPC's own server has only their metadata."""
        found = getattr(details, "is_passed_on", None)
        if found is not None:
            return bool(found)
        return any(key.startswith(DOOR_KEY) for key, _ in details.invocation_metadata or ())

    def _refusal(self, method: str, error: Exception) -> "grpc.RpcMethodHandler[Any, Any]":
        status = status_of(error, BASE_TABLE)

        async def refuse(_requests: object, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
            if method in ROLES:
                self._telemetry.count_rpc(method.removeprefix("/"), code_of(status).name, 0.0)
                self._trail.refused(method, None, context, status)
            await context.abort(code_of(status), status.message, ((STATUS_METADATA_KEY, status.SerializeToString()),))

        return grpc.stream_stream_rpc_method_handler(refuse)
