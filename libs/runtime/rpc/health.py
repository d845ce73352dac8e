# SPDX-License-Identifier: Apache-2.0
"""grpc.health.v1.Health: the health of the server and each of its services, for single checks and for watches.

Invariants: watchers are bounded, and checks need no room of other calls. So an orchestrator always gets its answer, and
watchers keep no callers out. A watch ends when the server stops.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from typing import Any

from grpc_health.v1 import health_pb2

from libs.runtime.rpc.bounds import CallLimit
from libs.runtime.rpc.errors import ServiceNotFound

WATCH_COUNT_MAX = 128
"""Maximum number of watchers; an orchestrator or a client's load balancer needs a watcher for each connection."""

CALL_COUNT_MAX = 1_024
"""Maximum number of health calls, watches included. This room is separate from the room of all other calls."""

LOOK_AGAIN_S = 1.0
"""Time between two looks at the health of a service elsewhere, for those that watch it."""

Checked = Callable[[str], Awaitable[Any]]
"""Returns the health of a service elsewhere."""

SERVICE_NAME: str = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
_STATUSES = health_pb2.HealthCheckResponse


class HealthServicer:
    """The health of "" (all services) and of the added services. All of them always have the same health."""

    def __init__(self) -> None:
        self._names: set[str] = {""}
        self._elsewhere: dict[str, Checked] = {}
        self.is_serving = False
        """Whether health says SERVING. From any thread."""
        self._is_over = False
        self._changed = asyncio.Event()
        self._watches = CallLimit(WATCH_COUNT_MAX)

    def add(self, names: Iterable[str]) -> None:
        """Add services."""
        self._names.update(names)

    def add_elsewhere(self, services: Mapping[str, Checked]) -> None:
        """Add services of other processes, with the functions that return their health."""
        self._elsewhere.update(services)

    def set_serving(self, is_serving: bool) -> None:
        """Set the health, and notify all watchers."""
        self.is_serving = is_serving
        self._changed.set()
        self._changed = asyncio.Event()

    def end(self) -> None:
        """End all watches. The health does not change any more."""
        self._is_over = True
        self.set_serving(False)

    async def Check(  # noqa: N802 - gRPC methods carry the names of the protos
        self, request: health_pb2.HealthCheckRequest, _: object
    ) -> health_pb2.HealthCheckResponse:
        """Return the health now. Raises ServiceNotFound."""
        if request.service in self._elsewhere:
            return await self._status_elsewhere(request.service)
        if request.service not in self._names:
            raise ServiceNotFound(request.service)
        return self._status(request.service)

    async def Watch(  # noqa: N802
        self, request: health_pb2.HealthCheckRequest, _: object
    ) -> AsyncGenerator[health_pb2.HealthCheckResponse, None]:
        """Yield the health now and whenever it changes. Raises ServerFull."""
        is_elsewhere = request.service in self._elsewhere
        with self._watches:
            told = None
            while True:
                changed, is_over, status = self._changed, self._is_over, self._status(request.service)
                if is_elsewhere and not is_over:
                    status = await self._status_elsewhere(request.service)
                if status != told:
                    yield status
                    told = status
                if is_over:
                    return
                if changed is self._changed:
                    await _either(changed, LOOK_AGAIN_S if is_elsewhere else None)

    async def _status_elsewhere(self, service: str) -> health_pb2.HealthCheckResponse:
        if not self.is_serving:
            return _STATUSES(status=_STATUSES.NOT_SERVING)
        return _STATUSES(status=await self._elsewhere[service](service))

    def _status(self, service: str) -> health_pb2.HealthCheckResponse:
        if service not in self._names and service not in self._elsewhere:
            return _STATUSES(status=_STATUSES.SERVICE_UNKNOWN)
        return _STATUSES(status=_STATUSES.SERVING if self.is_serving else _STATUSES.NOT_SERVING)


async def _either(changed: asyncio.Event, timeout_s: float | None) -> None:
    """Wait for a change, at most `timeout_s`."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(timeout_s):
            await changed.wait()
