# SPDX-License-Identifier: Apache-2.0
"""The front on gRPC's own server."""

import socket

import grpc.aio

from libs.runtime.errors import ListenFailed
from libs.runtime.rpc.fronts.addresses import address_of, listen_error, probe_unix
from libs.runtime.settings import ServerConfig
from libs.runtime.trust.credentials import server_credentials
from libs.runtime.watch.telemetry import Telemetry

RESPONSE_SIZE_BYTES_MAX = 64 << 20
"""Maximum size of a response. Services keep their responses far below."""

PING_INTERVAL_MS_MIN = 5_000
"""Clients may ping this often, also without calls; gRPC's default of five minutes answers with too_many_pings."""

KEEPALIVE_INTERVAL_MS = 60_000
"""The server pings at this interval, so that calls of lost clients end."""

KEEPALIVE_TIMEOUT_MS = 20_000


class GrpcioFront:
    """A front on gRPC's own server."""

    open_connections = None
    unknown_text = ""

    def __init__(self, config: ServerConfig, request_size_bytes_max: int, call_count_max: int) -> None:
        self._config = config
        self._server = grpc.aio.server(
            options=server_options(request_size_bytes_max), maximum_concurrent_rpcs=call_count_max
        )
        self.add_generic_rpc_handlers = self._server.add_generic_rpc_handlers
        self.start = self._server.start
        self.stop = self._server.stop

    def add_first(self, handler: grpc.GenericRpcHandler) -> None:
        """See `Front`. gRPC's server can't pass calls on."""
        raise NotImplementedError

    def end_relayed_streams(self) -> None:
        """See `Front`. gRPC's server passes no calls on."""

    def observe(self, telemetry: Telemetry) -> None:
        """See `Front`. gRPC's server reports no counts."""

    async def listen(self) -> int:
        """See `Front`."""
        config = self._config
        credentials = server_credentials(config)
        address = address_of(config)
        _probe(config.listen_host, config.port, address)
        try:
            if credentials is None:
                port = self._server.add_insecure_port(address)
            else:
                port = self._server.add_secure_port(address, credentials)
        except RuntimeError as error:
            raise ListenFailed(address, reason=str(error)) from error
        if config.unix_socket is not None:
            probe_unix(config.unix_socket)
            self._server.add_insecure_port(f"unix:{config.unix_socket}")
        return port


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
        raise listen_error(address, error) from error
