# SPDX-License-Identifier: Apache-2.0
"""Front: what a server is made on, and which one the settings ask for."""

import logging
from collections.abc import Sequence
from typing import Protocol

import grpc

from libs.runtime.http2 import PACKAGE
from libs.runtime.rpc.bounds import REQUEST_SLACK_BYTES
from libs.runtime.rpc.fronts.grpcio import GrpcioFront
from libs.runtime.settings import ServerConfig
from libs.runtime.telemetry import Telemetry

_log = logging.getLogger(__name__)


class Front(Protocol):
    """What a server is made on."""

    def add_generic_rpc_handlers(self, handlers: Sequence[grpc.GenericRpcHandler]) -> None:
        """Ask these, too, who answers a call. The first one that knows counts."""
        ...

    def observe(self, telemetry: Telemetry) -> None:
        """Report what it counts."""
        ...

    async def listen(self) -> int:
        """Take the settings' address and Unix socket, and return the port. Raises PortInUse or ListenFailed."""
        ...

    async def start(self) -> None:
        """Answer."""
        ...

    async def stop(self, grace_s: float) -> None:
        """Listen no more. Calls that still run after the grace are cancelled."""
        ...


def front_of(config: ServerConfig, *, request_size_bytes_max: int, call_count_max: int) -> Front:
    """Return the front that the settings ask for. Raises ConfigError for a file of TLS that can't be used."""
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
