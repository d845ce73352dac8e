# SPDX-License-Identifier: Apache-2.0
"""The front in the event loop, built from the settings."""

from dataclasses import dataclass, field
from pathlib import Path

from libs.runtime.http2.framing import CallRefused, MessageTooLarge, TooManyCalls
from libs.runtime.http2.heads import Fields
from libs.runtime.http2.server import Http2Server
from libs.runtime.rpc.bounds import REQUEST_SLACK_BYTES, ByteBudget
from libs.runtime.rpc.errors import BASE_TABLE, STATUS_METADATA_KEY, RequestTooLarge, ServerFull, code_of, status_of
from libs.runtime.rpc.fronts.addresses import address_of, listen_error, probe_unix
from libs.runtime.settings import ServerConfig
from libs.runtime.trust.credentials import ssl_context
from libs.runtime.watch.telemetry import Telemetry


@dataclass(frozen=True, kw_only=True, slots=True)
class FrontStatistics:
    """The counts of the front, for telemetry."""

    connections: int
    """Open connections."""
    idle_connections: int
    """Open connections without a call."""
    calls: int
    """Calls that are served now."""
    request_inflight_bytes: int
    """Bytes of requests that no handler has taken yet."""
    opened_connections_total: int = field(metadata={"former": "connections_total"})
    """Connections that were opened."""
    refused_connections_total: int
    """Connections that were refused because of the limit."""
    displaced_connections_total: int
    """Connections that were ended to make room for newer connections."""
    silent_connections_total: int
    """Connections that were closed because the caller did not answer a ping."""
    broken_connections_total: int
    """Connections that were closed because the caller violated HTTP/2 or the limits."""
    late_requests_total: int
    """Requests that took too long to arrive."""


class Http2Front(Http2Server):
    """A front in the event loop."""

    def __init__(self, config: ServerConfig, request_size_bytes_max: int, call_count_max: int) -> None:
        budget = IncomingBudget(
            "callers leave too many bytes of requests unfinished", config.request_inflight_bytes_max
        )
        super().__init__(
            config.connections,
            request_size_bytes_max=request_size_bytes_max,
            incoming=budget,
            call_count_max=call_count_max,
        )
        self._config = config

    async def listen(self) -> int:
        """See `Front`."""
        config = self._config
        try:
            port = await self.listen_tcp(config.listen_host, config.port, ssl_context(config))
        except OSError as error:
            raise listen_error(address_of(config), error) from error
        if config.unix_socket is not None:
            await self._listen_unix(config.unix_socket)
        return port

    def ending(self, refusal: CallRefused) -> Fields:
        """Return the end of a refused call, with the same status that a service would return."""
        match refusal:
            case MessageTooLarge():
                limit = refusal.size_bytes_max - REQUEST_SLACK_BYTES
                error: Exception = RequestTooLarge("bytes", value=refusal.size_bytes, limit=limit)
            case TooManyCalls():
                error = ServerFull("too many calls are under way", limit=refusal.limit)
            case _:
                return super().ending(refusal)
        return super().ending(_refusal_of(error))

    def observe(self, telemetry: Telemetry) -> None:
        """See `Front`."""
        telemetry.observe("front", self._statistics)

    def _statistics(self) -> FrontStatistics:
        counts = self.connections.counts
        return FrontStatistics(
            connections=len(self.connections),
            idle_connections=self.connections.idle_count,
            calls=self.call_count,
            request_inflight_bytes=self.incoming.charged_bytes,
            opened_connections_total=counts.opened,
            refused_connections_total=counts.refused,
            displaced_connections_total=counts.displaced,
            silent_connections_total=counts.silent,
            broken_connections_total=counts.broken,
            late_requests_total=counts.late_requests,
        )

    async def _listen_unix(self, path: Path) -> None:
        try:
            probe_unix(path)
            await self.listen_unix(path)
        except BaseException:
            self.close_listeners()
            raise


class IncomingBudget(ByteBudget):
    """Bytes of requests that no handler has taken yet, over all callers. Requests beyond the limit are refused."""

    def charge(self, size_bytes: int) -> None:
        """Count bytes. Raises CallRefused unless nothing else is counted."""
        try:
            super().charge(size_bytes)
        except ServerFull as error:
            raise _refusal_of(error) from error


def _refusal_of(error: Exception) -> CallRefused:
    status = status_of(error, BASE_TABLE)
    return CallRefused(code_of(status), status.message, ((STATUS_METADATA_KEY, status.SerializeToString()),))
