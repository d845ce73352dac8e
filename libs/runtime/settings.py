# SPDX-License-Identifier: Apache-2.0
"""The settings that every service has beside the settings of its engine: server, access control, telemetry.

Values only. A bootstrap puts them next to its engine's configuration, and `libs.runtime.config` reads all of them from
a single section.
"""

import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, ClassVar, Literal

from msgspec import Meta

from libs.importance import Advanced, Basic
from libs.runtime.http2.limits import ConnectionLimits
from libs.runtime.trust.audit.limits import AuditConfig

PORT_MAX = 65_535
TARGET = re.compile(r"(?:\[[0-9A-Fa-f:.%\w]+\]|[^\s:/\[\],]+):([0-9]{1,5})")
"""host:port, with an IPv6 address in brackets."""
Port = Annotated[int, Meta(ge=0, le=PORT_MAX)]


def check_targets(text: str, *, name: str = "target") -> None:
    """Raise ValueError unless each of the addresses, with commas between, is host:port, unix:PATH or a gRPC name.

    A comma may follow the last address.
    """
    for target in text.removesuffix(",").split(",") if text else ():
        address = target.strip()
        found = TARGET.fullmatch(address)
        is_other = address.startswith(("unix:", "unix-abstract:", "dns:", "ipv4:", "ipv6:", "xds:")) or "://" in address
        if not is_other and (found is None or not 0 < int(found[1]) <= PORT_MAX):
            raise ValueError(f"{name} is {text!r}: {address!r} must be host:port, for example 127.0.0.1:7101")


@dataclass(frozen=True, kw_only=True, slots=True)
class ListenConfig:
    """Settings of every server: where it listens, its TLS, and its stop."""

    listen_host: Basic[str] = "127.0.0.1"
    """Address to listen on; a host name, an IPv4 or an IPv6 address. Beyond loopback TLS is required."""

    port: Basic[Port]
    """Port to listen on; 0 takes any free port."""

    tls_certificate_file: Basic[Path | None] = None
    """PEM file with the server's certificate chain; without it the port serves plain text."""

    tls_key_file: Basic[Path | None] = None
    """PEM file with the private key of the certificate."""

    tls_client_ca_file: Advanced[Path | None] = None
    """PEM file with the authorities whose client certificates are accepted; without it clients show no certificate."""

    allow_insecure: Advanced[bool] = False
    """Listen beyond loopback without TLS all the same. Every program that reaches the port can then read and write."""

    drain_timeout_ms: Advanced[Annotated[int, Meta(ge=0)]] = 10_000
    """Longest time, in milliseconds, for which a stop waits for running calls."""

    def __post_init__(self) -> None:
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_certificate_file and tls_key_file need each other")
        if self.tls_client_ca_file is not None and self.tls_certificate_file is None:
            raise ValueError("tls_client_ca_file needs tls_certificate_file and tls_key_file")


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerConfig(ListenConfig):
    """Settings of the gRPC server. An empty file name means: not used."""

    unix_socket: Advanced[Path | None] = None
    """Path of a Unix socket to listen on as well, for callers on the same host; it needs no TLS."""

    token_file: Basic[Path | None] = None
    """File with the bearer token that clients must show; without it no token is needed, except the two tokens below."""

    service_token_file: Basic[Path | None] = None
    """File with the token of the services of a store; each service shows it and asks for it. Without it the token of
    this user on this machine, ~/.local/state/reput/token, which is created when it is missing."""

    door_token_file: Advanced[Path | None] = None
    """File with the token of the gateways, which pass the address and the certificate of their callers on to the
    services. A gateway shows it, and a service believes nobody else. Without it the token of the services."""

    operator_token_file: Basic[Path | None] = None
    """File with the token that an operator must show for actions that can't be undone. Without it the token of this
    user on this machine, which the `reput` command shows by itself."""

    rights_file: Advanced[Path | None] = None
    """TOML file with named subjects and their rights for topics and groups; without it each client may use all of
    them."""

    front: Advanced[Literal["http2", "grpcio"]] = "http2"
    """The server that takes calls from the network: http2 runs in the service's own loop, at a fraction of the
    processor time; grpcio is gRPC's server for Python."""

    concurrent_rpc_max: Advanced[Annotated[int, Meta(ge=1)]] = 16_384
    """Maximum number of calls at once, including long polls and streams; further calls are refused with WINDOW_FULL.
    Health checks, and methods that only services and operators may call, have separate room."""

    connections: ConnectionLimits = field(default_factory=ConnectionLimits)

    audit: AuditConfig = field(default_factory=AuditConfig)

    request_inflight_bytes_max: Advanced[Annotated[int, Meta(ge=1 << 20)]] = 256 << 20
    """Bytes of requests that have begun to arrive and that no method has taken yet, over all callers; further requests
    are refused with WINDOW_FULL. Only the front http2 knows this setting."""

    answer_inflight_bytes_max: Advanced[Annotated[int, Meta(ge=1 << 20)]] = 256 << 20
    """Bytes of answers that readers have not taken yet, over all callers; further answers are refused with
    WINDOW_FULL. Answers of up to 32 KiB are not counted."""

    stream_unread_timeout_ms: Advanced[Annotated[int, Meta(ge=1)]] = 120_000
    """Longest time, in milliseconds, for which an answer of a stream waits for its reader; then the stream ends with
    STREAM_NOT_READ."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PeerConfig:
    """The connection to another service of the store. The name of the field is the prefix of the settings."""

    IS_PREFIXED: ClassVar = True

    target: Basic[str]
    """Address of the service, as host:port. The gateway takes several addresses, separated by commas; the
    service at one of them leads."""

    tls_ca_file: Basic[Path | None] = None
    """PEM file with the authorities that may have signed the service's certificate; without it there is no TLS."""

    tls_certificate_file: Advanced[Path | None] = None
    """PEM file with the certificate to show to the service; without it no certificate is shown."""

    tls_key_file: Advanced[Path | None] = None
    """PEM file with the private key of that certificate."""

    timeout_ms: Advanced[Annotated[int, Meta(ge=1)]] = 10_000
    """Longest wait, in milliseconds, for an answer of the service."""

    channel: Advanced[Literal["http2", "grpcio"]] = "http2"
    """The channel for calls: http2 runs in the caller's own loop, for less processor time; grpcio is gRPC's channel for
    Python, also used for targets that are neither host:port nor unix:PATH, for traced calls, and where the package
    ngh2 is missing."""

    def __post_init__(self) -> None:
        check_targets(self.target)
        if (self.tls_certificate_file is None) != (self.tls_key_file is None):
            raise ValueError("tls_key_file and tls_certificate_file need each other")


@dataclass(frozen=True, kw_only=True, slots=True)
class TelemetryConfig:
    """Settings of logs, metrics and traces."""

    log_level: Basic[Literal["debug", "info", "warning", "error"]] = "info"
    """Lowest severity that is logged."""

    log_format: Advanced[Literal["auto", "console", "json"]] = "auto"
    """Form of the log lines on standard error; auto is console on a terminal and JSON elsewhere, also below
    `reput up`, which reads the logs of its services."""

    metrics_host: Basic[str] = "127.0.0.1"
    """Address of the Prometheus endpoint; without metrics_token_file every caller may read the metrics."""

    metrics_port: Basic[Port]
    """Port of the Prometheus endpoint; 0 turns it off."""

    metrics_tls: Advanced[bool] = False
    """Serve the metrics with TLS, by the certificate, key and client authorities of the server."""

    metrics_token_file: Advanced[Path | None] = None
    """File with a token in each line: a scraper must send one of them as bearer token; /healthz needs none."""

    metrics_old_names: Advanced[bool] = False
    """Also serve metrics under the names that they had before their units were seconds and ratios; goes with the
    next release."""

    otlp_endpoint: Advanced[str] = ""
    """Address to which traces, metrics and logs are sent by OTLP over gRPC, for example http://127.0.0.1:4317; empty
    sends nothing."""

    otlp_metrics_interval_ms: Advanced[Annotated[int, Meta(ge=0)]] = 15_000
    """Milliseconds between two sendings of all metrics by OTLP; 0 sends no metrics."""

    otlp_logs: Advanced[bool] = True
    """Send log lines by OTLP, too; standard error always has them."""

    trace_ratio: Advanced[Annotated[float, Meta(ge=0, le=1)]] = 0.1
    """Share of the calls without a traced caller that are traced; a caller's own decision always has priority."""

    def __post_init__(self) -> None:
        check_targets(self.otlp_endpoint, name="otlp_endpoint")  # with a scheme, the exporter's own rules apply
