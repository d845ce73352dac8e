# SPDX-License-Identifier: Apache-2.0
"""Places: the addresses of a store, where every service answers for itself, and calls to each."""

from collections.abc import Mapping
from typing import Any, NamedTuple

import grpc
from reput_client import Options, ReputError
from reput_client.core.call import method_of
from reput_client.core.errors import from_rpc_error

from libs.machine.clock import Clock
from libs.service_names import BESIDE, SERVICES, meant_for

DENIED_S = 60.0
"""After a refusal for lack of a right a place is not asked again for so long: each refusal is a line of the audit."""
KINDS = {"gateway": "delivery"}


class Place(NamedTuple):
    """An address of a service."""

    service: str
    target: str

    @property
    def name(self) -> str:
        """The service and its address, for people."""
        name = SERVICES.get(self.service) or BESIDE[self.service][0]
        return f"{name} at {self.target}"


class Places:
    """Calls to each address. Callers: the event loop."""

    def __init__(self, options: Options, targets: Mapping[str, str], clock: Clock) -> None:
        self._options, self._clock = options, clock
        self._credentials = options.credentials()
        self._channels: dict[str, grpc.aio.Channel] = {}
        self._denied: dict[tuple[Place, str], tuple[float, ReputError]] = {}
        self.all = tuple(
            Place(service, target.strip())
            for service, text in targets.items()
            for target in text.split(",")
            if target.strip()
        )

    async def call(self, place: Place, request: Any) -> Any:
        """Return the answer of a service at an address. Raises ReputError."""
        _, path, parse = method_of(request.DESCRIPTOR)
        until_s, denial = self._denied.get((place, path), (0.0, None))
        if denial is not None and self._clock.monotonic_s() < until_s:
            raise denial
        method: Any = self._channel(place.target).unary_unary(
            f"/{path}", request_serializer=type(request).SerializeToString, response_deserializer=parse
        )
        metadata = (*self._options.metadata(), *meant_for(place.service))
        try:
            return await method(request, timeout=self._options.timeout_s, metadata=metadata)
        except grpc.RpcError as failure:
            error = from_rpc_error(failure, KINDS.get(place.service, place.service), place.target)
            if error.reason == "NOT_PERMITTED":
                self._denied[place, path] = (self._clock.monotonic_s() + DENIED_S, error)
            raise error from None

    async def close(self) -> None:
        """End all connections."""
        for channel in self._channels.values():
            await channel.close()

    def _channel(self, target: str) -> grpc.aio.Channel:
        channel = self._channels.get(target)
        if channel is None:
            channel = self._channels[target] = self._options.channel(target, self._credentials, grpc.aio)
        return channel
