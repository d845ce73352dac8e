# SPDX-License-Identifier: Apache-2.0
"""Options: where the services are and how to reach them, from arguments, then the environment, then defaults.

ProducerOptions: how a producer sends.
"""

import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import grpc

from reput_client.core.bodies.codecs import LEVELS, Compression, load
from reput_client.core.bodies.compression import Compressor
from reput_client.core.retry import RetryPolicy
from reput_client.core.telemetry.log import log
from reput_client.core.types import Durability

SERVICES = ("commitlog", "indexer", "janitor", "delivery")

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
    `key_file` together show a client certificate. Each may be given as `ca_pem`, `certificate_pem` and `key_pem`
    instead: what the file has. `server_name` is the name that the server's certificate must have if it is not the
    target's. `token` is sent as a bearer token with every call; a function is asked before each one for the token of
    now, by whichever thread calls, and must not take long. If it raises, the log tells, and the call goes without.
    """

    commitlog: str = "127.0.0.1:7101"
    indexer: str = "127.0.0.1:7102"
    janitor: str = "127.0.0.1:7103"
    delivery: str = "127.0.0.1:7104"
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""
    ca_pem: bytes = b""
    certificate_pem: bytes = b""
    key_pem: bytes = field(default=b"", repr=False)
    server_name: str = ""
    token: str | Callable[[], str] = field(default="", repr=False)
    timeout_s: float = 30.0
    """Longest time of one call with all of its retries."""

    def __post_init__(self) -> None:
        """Raise ValueError or TypeError for what can't be meant, before anybody waits for it."""
        if not isinstance(self.timeout_s, int | float):
            raise TypeError(f"timeout_s is {self.timeout_s!r}: expected seconds")
        if not self.timeout_s > 0:
            raise ValueError(f"timeout_s is {self.timeout_s}: expected more than 0 seconds")
        for name in ("ca", "certificate", "key"):
            pem = getattr(self, f"{name}_pem")
            if not isinstance(pem, bytes):
                raise TypeError(f"{name}_pem is of type {type(pem).__name__}: expected bytes")
            if pem and getattr(self, f"{name}_file"):
                raise ValueError(f"{name}_file and {name}_pem are both given")
        if not isinstance(self.token, str) and not callable(self.token):
            raise TypeError(f"token is of type {type(self.token).__name__}: expected a str, or a function")
        if not self.ca_file and not self.ca_pem:
            for name in ("certificate_file", "certificate_pem", "server_name"):
                if getattr(self, name):
                    raise ValueError(f"{name} needs ca_file or ca_pem, which turn TLS on")
        for service in SERVICES:
            for target in self.targets(service):
                if not _TARGET.fullmatch(target):
                    raise ValueError(f"{service} is {target!r}: expected host:port, or several with commas")

    @classmethod
    def load(cls, arguments: Mapping[str, object], environment: Mapping[str, str] = os.environ) -> "Options":
        """Merge arguments that are not None over the environment.

        Variables: REPUT_CLIENT_COMMITLOG_TARGET, REPUT_CLIENT_INDEXER_TARGET, REPUT_CLIENT_JANITOR_TARGET,
        REPUT_CLIENT_DELIVERY_TARGET, REPUT_CLIENT_CA_FILE, REPUT_CLIENT_CERTIFICATE_FILE, REPUT_CLIENT_KEY_FILE,
        REPUT_CLIENT_SERVER_NAME, REPUT_CLIENT_TOKEN and REPUT_CLIENT_TOKEN_FILE, whose first word counts.
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
        """Return the targets of one of SERVICES, the first one first."""
        assert service in SERVICES
        text = str(getattr(self, service))
        return [target for target in map(str.strip, text.split(",")) if target] or [text]

    def channel(self, target: str, credentials: grpc.ChannelCredentials | None, api: Any = grpc) -> Any:
        """Make a channel to a target. `api` is grpc or grpc.aio."""
        options = self.channel_options(target)
        if credentials is None:
            return api.insecure_channel(target, options=options)
        return api.secure_channel(target, credentials, options=options)

    def channel_options(self, target: str) -> tuple[tuple[str, int | str], ...]:
        """Return gRPC's options for a channel. What is on this machine is reached without the proxy of `http_proxy`."""
        proxy = (("grpc.enable_http_proxy", 0),) if is_local(target) else ()
        name = (("grpc.ssl_target_name_override", self.server_name),) if self.server_name else ()
        return (*CHANNEL_OPTIONS, *proxy, *name)

    def credentials(self) -> grpc.ChannelCredentials | None:
        """Return TLS credentials, None for a plain connection. Raises OSError for a file that can't be read."""
        if not self.ca_file and not self.ca_pem:
            return None
        return grpc.ssl_channel_credentials(
            root_certificates=None if self.ca_file == "system" else _pem(self.ca_file, self.ca_pem),
            private_key=_pem(self.key_file, self.key_pem),
            certificate_chain=_pem(self.certificate_file, self.certificate_pem),
        )

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return what a call carries that is made now."""
        token = self.token if isinstance(self.token, str) else _asked(self.token)
        return (("authorization", f"Bearer {token}"),) if token else ()


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

    compression: Compression = "none"
    """How bodies are compressed: as RocketMQ's clients do it, which inflate them, as this client does."""

    compression_threshold_bytes: int = 4096
    """The smallest body that is compressed. What would not become smaller is sent as it is."""

    compression_level: int | None = None
    """zlib 1 to 9, lz4 0 to 16, zstd 1 to 22; None is RocketMQ's choice: 5, and 0 for lz4."""

    def __post_init__(self) -> None:
        if self.linger_ms < 0:
            raise ValueError("linger_ms is negative")
        if not 0 < self.batch_size_bytes <= min(self.window_bytes, 8 << 20):
            raise ValueError("batch_size_bytes must be at least 1, at most window_bytes and at most 8 MiB")
        if self.compression_threshold_bytes < 0:
            raise ValueError("compression_threshold_bytes is negative")
        self.compressor()

    def compressor(self) -> Compressor | None:
        """Return what compresses bodies, None if nothing does.

        Raises ValueError for a codec or level that does not exist, ModuleNotFoundError for a package that is not there.
        """
        if self.compression == "none":
            return None
        if self.compression not in LEVELS:
            raise ValueError(f"compression is {self.compression!r}: use 'none', {', '.join(map(repr, LEVELS))}")
        first, last, level = LEVELS[self.compression]
        if self.compression_level is not None:
            level = self.compression_level
        if not first <= level <= last:
            raise ValueError(f"compression_level is {level}: {self.compression} has {first} to {last}")
        load(self.compression)
        return Compressor(self.compression, self.compression_threshold_bytes, level)


def _pem(file: str, pem: bytes) -> bytes | None:
    """Return the content of a file, or what was given instead, None if nothing was."""
    return Path(file).read_bytes() if file else pem or None


def _asked(token: Callable[[], str]) -> str:
    """Return the token of now, "" if there is none."""
    try:
        return token()
    except Exception:  # noqa: BLE001 - the function is the program's own
        log.exception("token() failed: a call is made without one")
        return ""


def first_token(file: Path) -> str:
    """Return the token of a file: its first word, "" for an empty file. Raises OSError.

    As ssh does with keys, a file of this user that others can read is told in a warning.
    """
    status = file.stat()
    if hasattr(os, "geteuid") and status.st_uid == os.geteuid() and status.st_mode & 0o037:
        log.warning("other users of this machine can read the token in %s: chmod 600 %s", file, file)
    return next(iter(file.read_text(encoding="utf-8").split()), "")


_VARIABLES = {
    "commitlog": "REPUT_CLIENT_COMMITLOG_TARGET",
    "indexer": "REPUT_CLIENT_INDEXER_TARGET",
    "janitor": "REPUT_CLIENT_JANITOR_TARGET",
    "delivery": "REPUT_CLIENT_DELIVERY_TARGET",
    "ca_file": "REPUT_CLIENT_CA_FILE",
    "certificate_file": "REPUT_CLIENT_CERTIFICATE_FILE",
    "key_file": "REPUT_CLIENT_KEY_FILE",
    "server_name": "REPUT_CLIENT_SERVER_NAME",
    "token": "REPUT_CLIENT_TOKEN",
}
