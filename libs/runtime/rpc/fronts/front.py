# SPDX-License-Identifier: Apache-2.0
"""Front: the interface of the fronts, and the choice of the front by the settings."""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Protocol

import grpc

from libs.runtime.http2 import PACKAGE
from libs.runtime.rpc.bounds import REQUEST_SLACK_BYTES
from libs.runtime.rpc.fronts.grpcio import GrpcioFront
from libs.runtime.settings import ServerConfig
from libs.runtime.watch.telemetry import Telemetry

if TYPE_CHECKING:
    from libs.runtime.http2.connection import Connection

_log = logging.getLogger(__name__)


class Front(Protocol):
    """A front: the part of a server that listens on the network."""

    unknown_text: str
    """Text for a call of an unknown method. GRPC's own server has words of its own."""

    @property
    def open_connections(self) -> "Callable[[], Iterator[Connection]] | None":
        """Iterates over the connections that are open now. None: gRPC's own server does not show them."""
        ...

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Add handlers. The first added handler that knows a method answers its calls."""
        ...

    def add_first(self, handler: grpc.GenericRpcHandler) -> None:
        """Add a handler that is asked about each call before all others."""
        ...

    def end_relayed_streams(self) -> None:
        """End calls that were passed on and may last for ever."""
        ...

    def observe(self, telemetry: Telemetry) -> None:
        """Report its counts."""
        ...

    async def listen(self) -> int:
        """Listen on the address and the Unix socket of the settings, and return the port.

        Raises PortInUse or ListenFailed.
        """
        ...

    async def start(self) -> None:
        """Begin to answer calls."""
        ...

    async def stop(self, grace_s: float) -> None:
        """Stop listening. Calls that still run after the grace are cancelled."""
        ...


def front_of(config: ServerConfig, *, request_size_bytes_max: int, call_count_max: int) -> Front:
    """Return the front of the settings. Raises ConfigError for a file of TLS that can't be used."""
    size_bytes_max = request_size_bytes_max + REQUEST_SLACK_BYTES
    if config.front == "http2":
        try:
            from libs.runtime.rpc.fronts.in_loop import Http2Front

            return Http2Front(config, size_bytes_max, call_count_max)
        except ModuleNotFoundError as error:
            if error.name != PACKAGE:
                raise
            _log.warning("the front is grpcio, as %s is not installed", error.name)
    return GrpcioFront(config, size_bytes_max, call_count_max)
