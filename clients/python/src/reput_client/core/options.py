# SPDX-License-Identifier: Apache-2.0
"""Options: targets and credentials of the services, from arguments, then the environment, then defaults.

ProducerOptions: the options of a producer.
"""

import ipaddress
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote

import grpc

from reput_client.core.body_codecs import LEVELS, Compression, load
from reput_client.core.compression import Compressor
from reput_client.core.retry import RetryPolicy
from reput_client.core.telemetry.log import log
from reput_client.core.types import Durability

SERVICES = ("commitlog", "indexer", "janitor", "delivery")

MESSAGE_SIZE_BYTES_MAX = 64 << 20
"""Largest answer or request of the transport; servers answer with about 8 MiB and take batches of 16 MiB."""

ON_BEHALF_OF = "reput-on-behalf-of"
SHARD = "reput-shard"
_SHARD_NAME = re.compile(r"[A-Za-z0-9_-]{0,100}")
"""The metadata that names the person for whom a call is made, with `%` escapes."""
PERSON_CHARACTERS_MAX = 100

USER_AGENT = "reput-python/0.1.0"
"""The name and version of this client, which `reput clients` shows."""

CHANNEL_OPTIONS: tuple[tuple[str, int | str], ...] = (
    ("grpc.primary_user_agent", USER_AGENT),
    ("grpc.max_receive_message_length", MESSAGE_SIZE_BYTES_MAX),
    ("grpc.max_send_message_length", MESSAGE_SIZE_BYTES_MAX),
    # The client finds a restarted server again within a second, not after two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1000),
    ("grpc.max_reconnect_backoff_ms", 2000),
    # When a server vanished or is frozen, calls and streams that wait for it end.
    ("grpc.keepalive_time_ms", 20_000),
    ("grpc.keepalive_timeout_ms", 10_000),
    ("grpc.http2.ping_timeout_ms", 10_000),
    ("grpc.http2.max_pings_without_data", 0),
)


_TARGET = re.compile(r"(?!https?:)[^\s:/]+:\d{1,5}|\[[^\s\]]+\]:\d{1,5}|(unix|unix-abstract|dns|ipv4|ipv6|xds):\S+")
"""An address, or a name in a form that gRPC knows."""


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

    A target is host:port. A service with several addresses has several targets, separated by commas: calls use the
    first target, and the next target when it can't be reached or shuts down. A follower of a log names its leader, and
    appends are then sent to the leader.
    With `ca_file` calls use TLS ("system" means the authorities that gRPC ships with). `certificate_file` and
    `key_file` together give a client certificate. `ca_pem`, `certificate_pem` and `key_pem` are the contents of these
    files, in place of the files. `server_name` is the name in the server's certificate, if it differs from the target's
    name. `token` is sent as a bearer token with every call. A function is called before each call for the current
    token, in the thread of the call, and must return quickly. If it raises, the error is logged, and the call has no
    token. `on_behalf_of` names the person for whom the program calls: audit lines show it, and it gives no right
    (docs/audit.md). A function is called as that of the token is.
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
    on_behalf_of: str | Callable[[], str] = ""
    shard: str = ""
    """The shard of all calls, where the address is that of a gateway before several shards (docs/scale.md)."""
    timeout_s: float = 30.0
    """Longest time of a call with all of its retries, in seconds."""

    def __post_init__(self) -> None:
        """Raise ValueError or TypeError for an invalid option, before the first call."""
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
        for name in ("token", "on_behalf_of"):
            given = getattr(self, name)
            if not isinstance(given, str) and not callable(given):
                raise TypeError(f"{name} is of type {type(given).__name__}: expected a str, or a function")
        if not self.ca_file and not self.ca_pem:
            for name in ("certificate_file", "certificate_pem", "server_name"):
                if getattr(self, name):
                    raise ValueError(f"{name} needs ca_file or ca_pem, which turn TLS on")
        if not _SHARD_NAME.fullmatch(self.shard):
            raise ValueError(f"shard is {self.shard!r}: expected letters, digits, _ and -")
        for service in SERVICES:
            _check_targets(service, str(getattr(self, service)))

    @classmethod
    def load(cls, arguments: Mapping[str, object], environment: Mapping[str, str] = os.environ) -> "Options":
        """Merge arguments that are not None over the environment.

        `store` is the address of each service without an address of its own. As an argument it also takes precedence
        over all addresses of the environment, so that parts of two stores are never mixed.

        Variables: REPUT_CLIENT_STORE_TARGET, REPUT_CLIENT_COMMITLOG_TARGET, REPUT_CLIENT_INDEXER_TARGET,
        REPUT_CLIENT_JANITOR_TARGET, REPUT_CLIENT_DELIVERY_TARGET, REPUT_CLIENT_CA_FILE, REPUT_CLIENT_CERTIFICATE_FILE,
        REPUT_CLIENT_KEY_FILE, REPUT_CLIENT_SERVER_NAME, REPUT_CLIENT_SHARD, REPUT_CLIENT_TOKEN and
        REPUT_CLIENT_TOKEN_FILE, whose first word is the token.
        Raises OSError for a token file that can't be read.
        """
        values: dict[str, object] = {
            name: environment[variable] for name, variable in _VARIABLES.items() if environment.get(variable)
        }
        token_file = environment.get("REPUT_CLIENT_TOKEN_FILE")
        if token_file and "token" not in values:
            values["token"] = first_token(Path(token_file))
        given = {name: value for name, value in arguments.items() if value is not None}
        return cls(**_with_store(values) | _with_store(given))

    def targets(self, service: str) -> list[str]:
        """Return the targets of a service of SERVICES, the first target first."""
        assert service in SERVICES
        return _targets(str(getattr(self, service)))

    def channel(self, target: str, credentials: grpc.ChannelCredentials | None, api: Any = grpc) -> Any:
        """Make a channel to a target. `api` is grpc or grpc.aio."""
        options = self.channel_options(target)
        if credentials is None:
            return api.insecure_channel(target, options=options)
        return api.secure_channel(target, credentials, options=options)

    def channel_options(self, target: str) -> tuple[tuple[str, int | str], ...]:
        """Return gRPC's options for a channel. Targets on this machine are used without the proxy of `http_proxy`."""
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
        """Return the metadata of a call that is made now: token, shard, and for whom the call is made."""
        token, person = _asked("token", self.token), _asked("on_behalf_of", self.on_behalf_of)
        fields = (
            ("authorization", f"Bearer {token}" if token else ""),
            (SHARD, self.shard),
            (ON_BEHALF_OF, quote(person[:PERSON_CHARACTERS_MAX], safe=" @")),
        )
        return tuple(field for field in fields if field[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerOptions:
    """The options of a producer: batches, waiting, retries, durability and compression."""

    linger_ms: float = 5.0
    """How long the first message of a batch waits for further messages, in milliseconds.

    As soon as a caller waits for an outcome of the batch, the batch is sent.
    """

    batch_size_bytes: int = 512 << 10
    """A batch is sent when it has this many bytes, at any age. At most 8 MiB."""

    window_bytes: int = 8 << 20
    """Bytes of messages whose outcome is not known yet; `send` waits while there are more."""

    durability: Durability = Durability.DEFAULT
    """The durability that the store waits for before it answers."""

    retry: RetryPolicy | None = None
    """The policy for failed attempts; None is the client's own policy.

    RetryPolicy(retries=0) never repeats, so no message is stored twice.
    """

    unique_ids: bool = True
    """Give a new unique id to each message without a unique id."""

    compression: Compression = "none"
    """The compression of bodies, as RocketMQ's clients do it. They inflate such bodies, and so does this client."""

    compression_threshold_bytes: int = 4096
    """The smallest body that is compressed. A body that would not become smaller is sent as it is."""

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
        """Return the compressor of bodies, None for no compression.

        Raises ValueError for a codec or level that does not exist, ModuleNotFoundError for a missing package.
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


def _targets(text: str) -> list[str]:
    return [target for target in map(str.strip, text.split(",")) if target] or [text]


def _check_targets(name: str, text: str) -> None:
    """Raise ValueError for a text that is no address."""
    for target in _targets(text):
        if not _TARGET.fullmatch(target):
            raise ValueError(f"{name} is {target!r}: expected host:port, or several with commas")


def _with_store(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return options whose `store` became the address of each service without an address. Raises ValueError."""
    if not (store := values.get("store")):
        return {name: value for name, value in values.items() if name != "store"}
    _check_targets("store", store)
    return dict.fromkeys(SERVICES, store) | {name: value for name, value in values.items() if name != "store"}


def _pem(file: str, pem: bytes) -> bytes | None:
    """Return the content of a file, or the given bytes if there is no file, None if both are empty."""
    return Path(file).read_bytes() if file else pem or None


def _asked(name: str, given: str | Callable[[], str]) -> str:
    """Return an option, or what its function returns now, "" if the function fails."""
    if isinstance(given, str):
        return given
    try:
        return given()
    except Exception:  # noqa: BLE001 - the function is the program's own
        log.exception("%s() failed: a call is made without one", name)
        return ""


def first_token(file: Path) -> str:
    """Return the token of a file: its first word, "" for an empty file. Raises OSError.

    As ssh does with keys, it logs a warning for a file of this user that other users can read.
    """
    status = file.stat()
    if hasattr(os, "geteuid") and status.st_uid == os.geteuid() and status.st_mode & 0o037:
        log.warning("other users of this machine can read the token in %s: chmod 600 %s", file, file)
    return next(iter(file.read_text(encoding="utf-8").split()), "")


_VARIABLES = {
    "store": "REPUT_CLIENT_STORE_TARGET",
    "commitlog": "REPUT_CLIENT_COMMITLOG_TARGET",
    "indexer": "REPUT_CLIENT_INDEXER_TARGET",
    "janitor": "REPUT_CLIENT_JANITOR_TARGET",
    "delivery": "REPUT_CLIENT_DELIVERY_TARGET",
    "ca_file": "REPUT_CLIENT_CA_FILE",
    "certificate_file": "REPUT_CLIENT_CERTIFICATE_FILE",
    "key_file": "REPUT_CLIENT_KEY_FILE",
    "server_name": "REPUT_CLIENT_SERVER_NAME",
    "token": "REPUT_CLIENT_TOKEN",
    "shard": "REPUT_CLIENT_SHARD",
}
