# SPDX-License-Identifier: Apache-2.0
"""Options: where the services are and how to reach them, from arguments, then the environment, then defaults.

ProducerOptions: how a producer sends.
"""

import ipaddress
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from reput_client.core.retry import RetryPolicy
from reput_client.core.types import Durability

MESSAGE_SIZE_BYTES_MAX = 64 << 20
"""Largest answer or request of the transport; servers answer with about 8 MiB and take batches of 16 MiB."""

CHANNEL_OPTIONS: tuple[tuple[str, int], ...] = (
    ("grpc.max_receive_message_length", MESSAGE_SIZE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_SIZE_BYTES_MAX),
    # A server that was restarted is found again within a second, not after two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # A server that vanished without a word, or is frozen, ends the calls that wait for it, streams too.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)


_TARGET = re.compile(r"(?!https?:)[^\s:/]+:\d{1,5}|\[[^\s\]]+\]:\d{1,5}|(unix|unix-abstract|dns|ipv4|ipv6|xds):\S+")
"""An address, or a name in one of the forms that gRPC knows."""


def is_local(target: str) -> bool:
    """Return whether a target is a socket or a loopback address of this machine."""
    host = target.rpartition(":")[0].strip("[]")
    try:
        return target.startswith("unix:") or host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Targets, credentials and the default time-out.

    A target is host:port, or several, separated by commas, for a service that there is more than once: calls go to the
    first one, and on to the next when it can't be reached or shuts down. A log that follows another one names its
    leader, and appends go there.
    With `ca_file` calls go over TLS ("system" means the authorities that gRPC ships with); `certificate_file` and
    `key_file` together show a client certificate. `token` is sent as a bearer token with every call.
    """

    commitlog: str = "127.0.0.1:7101"
    indexer: str = "127.0.0.1:7102"
    janitor: str = "127.0.0.1:7103"
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    token: str = ""
    timeout_s: float = 30.0
    """Longest time of one call with all of its retries."""

    def __post_init__(self) -> None:
        """Raise ValueError or TypeError for what can't be meant, before anybody waits for it."""
        if not isinstance(self.timeout_s, int | float):
            raise TypeError(f"timeout_s is {self.timeout_s!r}: expected seconds")
        if not self.timeout_s > 0:
            raise ValueError(f"timeout_s is {self.timeout_s}: expected more than 0 seconds")
        if self.certificate_file and not self.ca_file:
            raise ValueError("certificate_file needs ca_file, which turns TLS on")
        for service in ("commitlog", "indexer", "janitor"):
            for target in self.targets(service):
                if not _TARGET.fullmatch(target):
                    raise ValueError(f"{service} is {target!r}: expected host:port, or several with commas")

    @classmethod
    def load(cls, arguments: Mapping[str, object], environment: Mapping[str, str] = os.environ) -> "Options":
        """Merge arguments that are not None over the environment.

        Variables: REPUT_CLIENT_COMMITLOG_TARGET, REPUT_CLIENT_INDEXER_TARGET, REPUT_CLIENT_JANITOR_TARGET,
        REPUT_CLIENT_CA_FILE, REPUT_CLIENT_CERTIFICATE_FILE, REPUT_CLIENT_KEY_FILE, REPUT_CLIENT_TOKEN and
        REPUT_CLIENT_TOKEN_FILE, whose first word counts.
        Raises OSError for a token file that can't be read.
        """
        values: dict[str, object] = {
            name: environment[variable] for name, variable in _VARIABLES.items() if environment.get(variable)
        }
        token_file = environment.get("REPUT_CLIENT_TOKEN_FILE")
        if token_file and "token" not in values:
            values["token"] = first_token(Path(token_file))
        values.update({name: value for name, value in arguments.items() if value is not None})
        return cls(**values)  # type: ignore[arg-type]

    def targets(self, service: str) -> list[str]:
        """Return the targets of "commitlog", "indexer" or "janitor", the first one first."""
        text = {"commitlog": self.commitlog, "indexer": self.indexer, "janitor": self.janitor}[service]
        return [target for target in map(str.strip, text.split(",")) if target] or [text]

    def channel(self, target: str, credentials: grpc.ChannelCredentials | None, api: Any = grpc) -> Any:
        """Make a channel to a target. `api` is grpc or grpc.aio."""
        options = self.channel_options(target)
        if credentials is None:
            return api.insecure_channel(target, options=options)
        return api.secure_channel(target, credentials, options=options)

    def channel_options(self, target: str) -> tuple[tuple[str, int], ...]:
        """Return gRPC's options for a channel. What is on this machine is reached without the proxy of `http_proxy`."""
        return (*CHANNEL_OPTIONS, ("grpc.enable_http_proxy", 0)) if is_local(target) else CHANNEL_OPTIONS

    def credentials(self) -> grpc.ChannelCredentials | None:
        """Return TLS credentials, None for a plain connection. Raises OSError for a file that can't be read."""
        if not self.ca_file:
            return None
        return grpc.ssl_channel_credentials(
            root_certificates=None if self.ca_file == "system" else Path(self.ca_file).read_bytes(),
            private_key=Path(self.key_file).read_bytes() if self.key_file else None,
            certificate_chain=Path(self.certificate_file).read_bytes() if self.certificate_file else None,
        )

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return what every call carries."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """How a producer batches, waits and retries."""

    linger_ms: float = 5.0
    """How long the first message of a batch waits for company."""

    batch_size_bytes: int = 512 << 10
    """A batch is sent when it has this many bytes, whatever its age. At most 8 MiB."""

    window_bytes: int = 8 << 20
    """Bytes of messages whose outcome is not known yet; `send` waits while there are more."""

    durability: Durability = Durability.DEFAULT
    """What the store waits for before it answers."""

    retry: RetryPolicy | None = None
    """When failed attempts are repeated; None is the client's own policy.

    RetryPolicy(retries=0) never repeats, so no message is stored twice.
    """

    unique_ids: bool = True
    """Give each message without a unique id one of its own."""

    def __post_init__(self) -> None:
        if self.linger_ms < 0:
            raise ValueError("linger_ms is negative")
        if not 0 < self.batch_size_bytes <= min(self.window_bytes, 8 << 20):
            raise ValueError("batch_size_bytes must be at least 1, at most window_bytes and at most 8 MiB")


def first_token(file: Path) -> str:
    """Return the token of a file: its first word, "" for an empty file. Raises OSError."""
    return next(iter(file.read_text(encoding="utf-8").split()), "")


_VARIABLES = {
    "commitlog": "REPUT_CLIENT_COMMITLOG_TARGET",
    "indexer": "REPUT_CLIENT_INDEXER_TARGET",
    "janitor": "REPUT_CLIENT_JANITOR_TARGET",
    "ca_file": "REPUT_CLIENT_CA_FILE",
    "certificate_file": "REPUT_CLIENT_CERTIFICATE_FILE",
    "key_file": "REPUT_CLIENT_KEY_FILE",
    "token": "REPUT_CLIENT_TOKEN",
}
