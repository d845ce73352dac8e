# SPDX-License-Identifier: Apache-2.0
"""JanitorConfig: every setting of the Janitor, with its unit and RocketMQ's default where RocketMQ has the setting.

Values only. Bounds are checked when the configuration is loaded; relations between fields are checked by `check`.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from msgspec import Meta

Port = Annotated[int, Meta(ge=0, le=65535)]
Positive = Annotated[int, Meta(ge=1)]
NotNegative = Annotated[int, Meta(ge=0)]
RetentionHours = Annotated[int, Meta(ge=1, le=24 * 365 * 100)]
BatchCount = Annotated[int, Meta(ge=1, le=1000)]

_HOURS = re.compile(r"(?:[01][0-9]|2[0-3])(?:;(?:[01][0-9]|2[0-3]))*")


class ConfigContradiction(ValueError):
    """A setting makes no sense, alone or with another. The text names it and is one line."""


@dataclass(frozen=True, kw_only=True, slots=True)
class JanitorConfig:
    """Settings of the Janitor service. Times are in milliseconds unless the name says otherwise."""

    data_dir: Path
    """Directory whose reput/ folder holds the history of runs. Made when it is missing."""

    listen_host: str = "127.0.0.1"
    """Address to listen on. Beyond loopback, TLS and a token are required unless allow_insecure is set."""

    port: Port = 7103
    """Port to listen on; 0 takes any free one."""

    metrics_port: Port = 7203
    """Port of the Prometheus endpoint; 0 turns it off."""

    log_level: Literal["debug", "info", "warning", "error"] = "info"
    """Least severity that is logged."""

    log_format: Literal["auto", "console", "json"] = "auto"
    """Form of the log lines on standard error; auto is console on a terminal and json elsewhere."""

    otlp_endpoint: str = ""
    """Where traces go, for example http://127.0.0.1:4317; empty sends none."""

    tls_certificate_file: str = ""
    """PEM file with the server's certificate chain; empty serves without TLS."""

    tls_key_file: str = ""
    """PEM file with the private key of the certificate."""

    tls_client_ca_file: str = ""
    """PEM file with the authorities whose client certificates are accepted; empty asks for none."""

    token_file: str = ""
    """File with the bearer token that every call must carry; empty asks for none."""

    allow_insecure: bool = False
    """Listen beyond loopback without TLS and token all the same."""

    commitlog_target: str = "127.0.0.1:7101"
    """Where the CommitLog listens, as host:port or another gRPC target."""

    indexer_target: str = "127.0.0.1:7102"
    """Where the Indexer listens, as host:port or another gRPC target."""

    peer_ca_file: str = ""
    """PEM file with the authorities of the other services' certificates; empty calls them without TLS."""

    peer_certificate_file: str = ""
    """PEM file with the certificate that this service shows to the others; empty shows none."""

    peer_key_file: str = ""
    """PEM file with the private key of that certificate."""

    peer_token_file: str = ""
    """File with the bearer token that calls to the other services carry; empty sends none."""

    peer_timeout_ms: Positive = 10_000
    """Longest wait for one answer of another service."""

    retention_hours: RetentionHours = 72
    """Segments whose last record is older than this expire."""

    delete_when: str = "04"
    """Hours of the day in which expired segments are deleted: two digits each, separated by semicolons."""

    time_zone: str = ""
    """Time zone of delete_when, an IANA name such as Europe/Berlin; empty is the machine's own."""

    delete_batch_count_max: BatchCount = 10
    """Most segments that one scheduled run deletes; a manual run may delete 20 times as many."""

    delete_interval_ms: NotNegative = 100
    """Pause between two deletions."""

    first_check_delay_ms: NotNegative = 60_000
    """Time from the start of the service to the first look whether a run is due."""

    check_interval_ms: Positive = 10_000
    """Time between two looks."""

    concurrent_rpc_max: Positive = 64
    """Calls that may be under way at once."""

    drain_timeout_ms: NotNegative = 10_000
    """How long a stop waits for calls that are under way."""

    @property
    def delete_hours(self) -> tuple[int, ...]:
        """The hours of delete_when, ascending."""
        return tuple(sorted({int(hour) for hour in self.delete_when.split(";")}))

    def check(self) -> None:
        """Raise ConfigContradiction for a setting that makes no sense, alone or with another."""
        if not _HOURS.fullmatch(self.delete_when):
            raise ConfigContradiction(
                f"delete_when is {self.delete_when!r}, but must be hours from 00 to 23 with two digits, separated by semicolons"
            )
        if self.time_zone:
            try:
                ZoneInfo(self.time_zone)
            except (ZoneInfoNotFoundError, ValueError, OSError) as error:
                raise ConfigContradiction(f"time_zone {self.time_zone!r} is not a known IANA time zone") from error
        if bool(self.tls_certificate_file) != bool(self.tls_key_file):
            raise ConfigContradiction("tls_certificate_file and tls_key_file need each other")
        if bool(self.peer_certificate_file) != bool(self.peer_key_file):
            raise ConfigContradiction("peer_certificate_file and peer_key_file need each other")
