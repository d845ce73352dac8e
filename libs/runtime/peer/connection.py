# SPDX-License-Identifier: Apache-2.0
"""A channel from a service to another service: address, TLS, token, reconnects, traces. For bootstraps only."""

import asyncio
import logging
import re
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, partialmethod
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import grpc
from msgspec import Struct

from libs.runtime.errors import ConfigError
from libs.runtime.http2 import PACKAGE
from libs.runtime.settings import PeerConfig
from libs.runtime.trust.tokens import TokenFile, WatchedFiles, read_file

if TYPE_CHECKING:
    from libs.runtime.http2.calling.channel import LoopChannel

_log = logging.getLogger(__name__)

RESPONSE_SIZE_BYTES_MAX = 64 << 20
"""Maximum size of a single answer of a peer. Real answers are far smaller."""

RECONNECT_MS_MIN = 100
"""First wait of grpcio's channel before another attempt. Its default is a second, and grows to two minutes."""

_PLAIN_TARGET = re.compile(r"(\[[0-9A-Fa-f:.%]+\]|[^/:\[\]]+):[0-9]{1,5}|unix:.+")
"""Only gRPC's own channel knows other forms, such as lists of addresses or other resolvers."""

Metadata = tuple[tuple[str, str], ...]
MetadataSource = Callable[[], Metadata]
"""Returns the metadata of a call. It is called for each call, because a token may be renewed."""


class Connection(Struct, frozen=True):
    """A channel to a peer, with the deadline and the metadata of its calls."""

    channel: grpc.aio.Channel
    timeout_s: float
    metadata: MetadataSource


@dataclass(frozen=True, kw_only=True)
class Peer:
    """The address of a service, and the token that makes the caller a service of the same store.

    `name` is the prefix of the settings of `config`.
    """

    name: str
    config: PeerConfig
    token: TokenFile

    def at(self, target: str) -> "Peer":
        """Return the peer at another address, host:port, of the same kind of service."""
        return replace(self, config=replace(self.config, target=target))

    def connect(self, *, interceptors: Sequence[grpc.aio.ClientInterceptor], reconnect_ms_max: int) -> Connection:
        """Return a connection whose calls carry the token. Without a CA file there is no TLS.

        Nothing is sent before the first call. Raises ConfigError for a file that can't be read.
        """
        make = partial(self._make, interceptors, reconnect_ms_max)
        config = self.config
        tls = (config.tls_ca_file, config.tls_certificate_file, config.tls_key_file)
        files = [file for file in tls if file is not None] if self._has_tls else []
        channel = cast("grpc.aio.Channel", RenewedChannel(make, files)) if files else make()
        return Connection(channel, self.config.timeout_ms / 1000, self._metadata)

    def connect_relaying(self, *, reconnect_ms_max: int) -> Connection:
        """Return a connection to which a door passes calls on. Raises ConfigError, also for a target of gRPC alone."""
        from libs.runtime.http2.calling.channel import LoopChannel
        from libs.runtime.http2.wire import open_relaying

        if not _PLAIN_TARGET.fullmatch(self.config.target):
            raise ConfigError(f"{self.name}_target: {self.config.target!r} must be host:port or unix:PATH for the door")
        config = self.config
        files = [file for file in (config.tls_ca_file, config.tls_certificate_file, config.tls_key_file) if file]
        make = partial(self._make_in_loop, partial(LoopChannel, open_wire=open_relaying), reconnect_ms_max)
        channel = cast("grpc.aio.Channel", RenewedChannel(make, files)) if self._has_tls else make()
        return Connection(channel, config.timeout_ms / 1000, self._metadata)

    def _make(self, interceptors: Sequence[grpc.aio.ClientInterceptor], reconnect_ms_max: int) -> grpc.aio.Channel:
        if self.config.channel == "http2" and not interceptors and _PLAIN_TARGET.fullmatch(self.config.target):
            try:
                from libs.runtime.http2.calling.channel import LoopChannel
            except ModuleNotFoundError as error:
                if error.name != PACKAGE:
                    raise
                _log.warning("calls to %s go by grpcio, as %s is not installed", self.config.target, error.name)
            else:
                return self._make_in_loop(LoopChannel, reconnect_ms_max)
        return self._make_by_grpcio(interceptors, reconnect_ms_max)

    def _make_in_loop(self, kind: "Callable[..., LoopChannel]", reconnect_ms_max: int) -> grpc.aio.Channel:
        channel = kind(
            self.config.target,
            context=self._context() if self._has_tls else None,
            reconnect_ms_max=reconnect_ms_max,
            answer_size_bytes_max=RESPONSE_SIZE_BYTES_MAX,
        )
        return cast("grpc.aio.Channel", channel)

    def _make_by_grpcio(
        self, interceptors: Sequence[grpc.aio.ClientInterceptor], reconnect_ms_max: int
    ) -> grpc.aio.Channel:
        target = self.config.target
        options = [
            ("grpc.max_receive_message_length", RESPONSE_SIZE_BYTES_MAX),
            ("grpc.initial_reconnect_backoff_ms", min(RECONNECT_MS_MIN, reconnect_ms_max)),
            ("grpc.max_reconnect_backoff_ms", reconnect_ms_max),
            ("grpc.enable_http_proxy", 0),  # `http_proxy` is for the world outside, not for the services of a store
        ]
        if not self._has_tls:
            return grpc.aio.insecure_channel(target, options=options, interceptors=interceptors)
        return grpc.aio.secure_channel(target, self._credentials(), options=options, interceptors=interceptors)

    @property
    def _has_tls(self) -> bool:
        return self.config.tls_ca_file is not None

    def _context(self) -> ssl.SSLContext:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["h2"])
        self._credentials()  # raises ConfigError with the name of a file that can't be read
        try:
            context.load_verify_locations(self.config.tls_ca_file)
            if self.config.tls_certificate_file is not None:
                context.load_cert_chain(self.config.tls_certificate_file, self.config.tls_key_file)
        except ssl.SSLError as error:
            raise ConfigError(f"{self.name}_tls_ca_file {self.config.tls_ca_file}: {error}") from error
        return context

    def _credentials(self) -> grpc.ChannelCredentials:
        return grpc.ssl_channel_credentials(
            self._read("tls_ca_file", self.config.tls_ca_file),
            self._read("tls_key_file", self.config.tls_key_file),
            self._read("tls_certificate_file", self.config.tls_certificate_file),
        )

    def _metadata(self) -> Metadata:
        return (("authorization", f"Bearer {self.token.shown}"),)

    def _read(self, setting: str, file: Path | None) -> bytes | None:
        return None if file is None else read_file(f"{self.name}_{setting}", file)


class RenewedChannel:
    """A channel that is replaced when its files change, because a channel reads its certificates once.

    Calls that are under way stay with the previous channel until the next change. It has the part of a channel that
    stubs and bootstraps use. Callers: a single event loop. The constructor raises ConfigError for a file that can't be
    read.
    """

    def __init__(self, make: Callable[[], grpc.aio.Channel], files: Sequence[Path]) -> None:
        self._make = make
        self._watched = WatchedFiles(files)
        self._channel = make()
        self._previous: grpc.aio.Channel | None = None
        self._closing: set[asyncio.Task[None]] = set()

    def _callable(self, kind: str, *arguments: Any, **options: Any) -> Any:
        channel = self._channel
        method = getattr(channel, kind)(*arguments, **options)

        def call(*call_arguments: Any, **call_options: Any) -> Any:
            nonlocal channel, method
            current = self._current()
            if current is not channel:
                channel, method = current, getattr(current, kind)(*arguments, **options)
            return method(*call_arguments, **call_options)

        return call

    def relay(self, *arguments: Any) -> None:
        """Begin a call that is passed on. See LoopChannel."""
        cast("LoopChannel", self._current()).relay(*arguments)

    unary_unary = partialmethod(_callable, "unary_unary")
    unary_stream = partialmethod(_callable, "unary_stream")
    stream_unary = partialmethod(_callable, "stream_unary")
    stream_stream = partialmethod(_callable, "stream_stream")

    async def close(self) -> None:
        """End all calls and connections."""
        for channel in filter(None, (self._channel, self._previous)):
            await channel.close()

    def _current(self) -> grpc.aio.Channel:
        if self._watched.have_changed():
            try:
                channel = self._make()
            except ConfigError as error:
                _log.warning("%s; the certificate that was read before is shown", error)
                return self._channel
            _log.info("the files of a certificate that is shown to others have changed and are read")
            if self._previous is not None:
                closing = asyncio.create_task(self._previous.close())
                self._closing.add(closing)
                closing.add_done_callback(self._closing.discard)
            self._channel, self._previous = channel, self._channel
        return self._channel
