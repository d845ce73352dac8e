# SPDX-License-Identifier: Apache-2.0
"""A channel from one service to another: address, TLS, token, reconnects, traces. For bootstraps only."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import grpc

from libs.runtime.errors import ConfigError
from libs.runtime.tokens import TokenFile

RESPONSE_SIZE_BYTES_MAX = 64 << 20
"""Bound of what a peer may answer at once; it answers far less."""

RECONNECT_MS_MIN = 100
"""First wait before another attempt to reach a peer; gRPC's own is a second, and grows to two minutes."""

Metadata = tuple[tuple[str, str], ...]
MetadataSource = Callable[[], Metadata]
"""What a call carries, asked anew for each call: a token may be renewed."""


def no_metadata() -> Metadata:
    """For a peer that asks for no token."""
    return ()


@dataclass(frozen=True, kw_only=True)
class Peer:
    """How to reach a service, and the token that makes the caller a service of the same store.

    `target` is host:port. The TLS files may be None; `name` begins their settings.
    """

    name: str
    target: str
    tls_ca_file: Path | None
    tls_certificate_file: Path | None
    tls_key_file: Path | None
    token: TokenFile

    def connect(
        self, *, interceptors: Sequence[grpc.aio.ClientInterceptor], reconnect_ms_max: int
    ) -> tuple[grpc.aio.Channel, MetadataSource]:
        """A channel, and what every call over it carries. Without a CA file there is no TLS.

        Nothing is sent before the first call. Raises ConfigError for a file that can't be read.
        """
        options = [
            ("grpc.max_receive_message_length", RESPONSE_SIZE_BYTES_MAX),
            ("grpc.initial_reconnect_backoff_ms", min(RECONNECT_MS_MIN, reconnect_ms_max)),
            ("grpc.max_reconnect_backoff_ms", reconnect_ms_max),
            ("grpc.enable_http_proxy", 0),  # `http_proxy` is for the world outside, not for services of one store
        ]
        authorities = self._read("tls_ca_file", self.tls_ca_file)
        if authorities is None:
            return grpc.aio.insecure_channel(self.target, options=options, interceptors=interceptors), self._metadata
        credentials = grpc.ssl_channel_credentials(
            authorities,
            self._read("tls_key_file", self.tls_key_file),
            self._read("tls_certificate_file", self.tls_certificate_file),
        )
        channel = grpc.aio.secure_channel(self.target, credentials, options=options, interceptors=interceptors)
        return channel, self._metadata

    def _metadata(self) -> Metadata:
        return (("authorization", f"Bearer {self.token.shown}"),)

    def _read(self, setting: str, file: Path | None) -> bytes | None:
        try:
            return None if file is None else file.read_bytes()
        except OSError as error:
            raise ConfigError(f"{self.name}_{setting}: {file}: {error.strerror}") from error
