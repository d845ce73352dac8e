# SPDX-License-Identifier: Apache-2.0
"""TLS and mutual TLS with certificates made for the test by the openssl command."""

import asyncio
import contextlib
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import grpc
import pytest

from libs.runtime.errors import ConfigError
from libs.runtime.peer.connection import Peer
from libs.runtime.settings import PeerConfig, ServerConfig
from libs.runtime.trust import tokens
from libs.runtime.trust.tokens import TokenFile
from tests.support.certificates import self_signed
from tests.support.patience import LIMIT_S
from tests.support.surroundings import free_port
from tests.unit.libs.runtime.servers import APPEND, DISPATCH, FRONTS, Served, serving

pytestmark = [
    pytest.mark.usefixtures("each_front"),
    pytest.mark.skipif(shutil.which("openssl") is None, reason="needs the openssl command"),
]
Channel = Literal["http2", "grpcio"]
each_channel = pytest.mark.parametrize("channel_kind", FRONTS)


@dataclass(frozen=True)
class Pair:
    """A key with its certificate, signed by itself."""

    key: Path
    certificate: Path


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Pair]:
    """Pairs of the server, of a client and of a stranger."""
    home = tmp_path_factory.mktemp("tls")
    names = ("server", "client", "stranger")
    files = self_signed(home, *names)
    return {name: Pair(files[f"{name}.key"], files[f"{name}.pem"]) for name in names}


def channel_credentials(pairs: dict[str, Pair], client: str | None) -> grpc.ChannelCredentials:
    root = pairs["server"].certificate.read_bytes()
    if client is None:
        return grpc.ssl_channel_credentials(root)
    pair = pairs[client]
    return grpc.ssl_channel_credentials(root, pair.key.read_bytes(), pair.certificate.read_bytes())


async def test_tls_serves_beyond_loopback(pairs: dict[str, Pair]) -> None:
    """With a certificate a server may listen on any address.

    The channel verifies the certificate. Plain text is refused.
    """
    pair = pairs["server"]
    config = ServerConfig(port=0, listen_host="0.0.0.0", tls_certificate_file=pair.certificate, tls_key_file=pair.key)
    async with serving(config, credentials=channel_credentials(pairs, None)) as served:
        assert await served.call(APPEND, b"x") == b"x"
        async with grpc.aio.insecure_channel(f"localhost:{served.server.port}") as plain:
            with pytest.raises(grpc.aio.AioRpcError):
                await plain.unary_unary(APPEND)(b"x", timeout=LIMIT_S)


@pytest.mark.parametrize(("client", "is_let_in"), [("client", True), ("stranger", False), (None, False)])
async def test_mutual_tls_lets_only_known_clients_in(
    pairs: dict[str, Pair], client: str | None, is_let_in: bool
) -> None:
    """A client without a certificate, or with an unknown certificate, is refused."""
    pair = pairs["server"]
    config = ServerConfig(
        port=0,
        tls_certificate_file=pair.certificate,
        tls_key_file=pair.key,
        tls_client_ca_file=pairs["client"].certificate,
    )
    async with serving(config, credentials=channel_credentials(pairs, client)) as served:
        if is_let_in:
            assert await served.call(APPEND, b"x") == b"x"
        else:
            with pytest.raises(grpc.aio.AioRpcError) as caught:
                await served.call(APPEND, b"x")
            assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
        assert served.append.requests == ([b"x"] if is_let_in else [])


@each_channel
@pytest.mark.parametrize(("client", "token", "is_let_in"), [("client", "right", True), ("client", "wrong", False)])
async def test_services_reach_each_other_by_tls_and_token(
    pairs: dict[str, Pair], tmp_path: Path, client: str, token: str, is_let_in: bool, channel_kind: Channel
) -> None:
    """A Peer shows its certificate and its token; with a wrong token it is refused."""
    for name in ("right", "wrong"):
        (tmp_path / name).write_text(f"token-{name}\n")
    config = ServerConfig(
        port=0,
        tls_certificate_file=pairs["server"].certificate,
        tls_key_file=pairs["server"].key,
        tls_client_ca_file=pairs["client"].certificate,
        token_file=tmp_path / "right",
    )
    async with serving(config, credentials=channel_credentials(pairs, client)) as served:
        peer = Peer(
            name="commitlog",
            config=PeerConfig(
                target=f"localhost:{served.server.port}",
                tls_ca_file=pairs["server"].certificate,
                tls_certificate_file=pairs[client].certificate,
                tls_key_file=pairs[client].key,
                channel=channel_kind,
            ),
            token=TokenFile("service_token_file", tmp_path / token),
        )
        connection = peer.connect(interceptors=[], reconnect_ms_max=1000)
        async with contextlib.AsyncExitStack() as stack:
            stack.push_async_callback(connection.channel.close)
            call = connection.channel.unary_unary(APPEND)(b"x", timeout=LIMIT_S, metadata=connection.metadata())
            if is_let_in:
                assert await call == b"x"
            else:
                with pytest.raises(grpc.aio.AioRpcError) as caught:
                    await call
                assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


async def test_a_renewed_certificate_is_served(
    pairs: dict[str, Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New connections see it without a restart; while only the key is new, the old pair is served."""
    monkeypatch.setattr(tokens, "CHECK_INTERVAL_S", 0.0)
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"

    def renew(file: Path, source: Path) -> None:
        (tmp_path / "draft").write_bytes(source.read_bytes())
        (tmp_path / "draft").rename(file)

    def install(pair: Pair) -> None:
        renew(key, pair.key)
        renew(certificate, pair.certificate)

    async def is_trusted(served: Served, name: str) -> bool:
        credentials = grpc.ssl_channel_credentials(pairs[name].certificate.read_bytes())
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.secure_channel(f"localhost:{served.server.port}", credentials, options) as channel:
            try:
                return bool(await channel.unary_unary(APPEND)(b"x", timeout=LIMIT_S) == b"x")
            except grpc.aio.AioRpcError as error:
                assert error.code() is grpc.StatusCode.UNAVAILABLE  # noqa: PT017 - both ends are right
                return False

    install(pairs["server"])
    config = ServerConfig(port=0, tls_certificate_file=certificate, tls_key_file=key)
    async with serving(config, credentials=channel_credentials(pairs, None)) as served:
        assert await served.call(APPEND, b"x") == b"x"
        renew(key, pairs["stranger"].key)
        assert await is_trusted(served, "server"), "a key without its certificate is not served"
        renew(certificate, pairs["stranger"].certificate)
        assert await is_trusted(served, "stranger")
        assert not await is_trusted(served, "server")
        certificate.unlink()
        assert await is_trusted(served, "stranger"), "a file that is away for a moment harms nobody"
        assert await served.call(APPEND, b"x") == b"x", "the open connection goes on"
        install(pairs["client"])
        assert await is_trusted(served, "client")


@each_channel
async def test_a_renewed_certificate_is_shown(
    pairs: dict[str, Pair], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, channel_kind: Channel
) -> None:
    """A service shows its new certificate without a restart, also while a call over the old connection continues."""
    monkeypatch.setattr(tokens, "CHECK_INTERVAL_S", 0.0)
    (tmp_path / "token").write_text("sesame")
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"

    def install(name: str) -> None:
        key.write_bytes(pairs[name].key.read_bytes())
        certificate.write_bytes(pairs[name].certificate.read_bytes())

    def config(client: str, port: int) -> ServerConfig:
        return ServerConfig(
            port=port,
            tls_certificate_file=pairs["server"].certificate,
            tls_key_file=pairs["server"].key,
            tls_client_ca_file=pairs[client].certificate,
            service_token_file=tmp_path / "token",
            operator_token_file=tmp_path / "token",
        )

    install("client")
    port = free_port()
    async with serving(config("client", port), credentials=channel_credentials(pairs, "client")):
        peer = Peer(
            name="commitlog",
            config=PeerConfig(
                target=f"localhost:{port}",
                tls_ca_file=pairs["server"].certificate,
                tls_certificate_file=certificate,
                tls_key_file=key,
                channel=channel_kind,
            ),
            token=TokenFile("service_token_file", tmp_path / "token"),
        )
        connection = peer.connect(interceptors=[], reconnect_ms_max=100)
        channel, metadata = connection.channel, connection.metadata
        append, dispatch = channel.unary_unary(APPEND), channel.unary_stream(DISPATCH)
        assert await append(b"x", timeout=LIMIT_S, metadata=metadata()) == b"x"
        following = dispatch(b"", metadata=metadata())
        await following.read()
        install("stranger")
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await append(b"x", timeout=LIMIT_S, metadata=metadata())
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE, "it shows the new one, which is not known here yet"
        await following.read()
        following.cancel()
    async with serving(config("stranger", port), credentials=channel_credentials(pairs, "stranger")):
        await asyncio.sleep(0.2)  # until the next attempt to connect is due
        assert await append(b"x", timeout=LIMIT_S, metadata=metadata()) == b"x"
    await channel.close()


def test_a_peers_unreadable_file_is_named(tmp_path: Path) -> None:
    """The setting and the file are in the single line of the error."""
    (tmp_path / "token").write_text("sesame")
    peer = Peer(
        name="indexer",
        config=PeerConfig(target="localhost:1", tls_ca_file=tmp_path / "missing.pem"),
        token=TokenFile("service_token_file", tmp_path / "token"),
    )
    with pytest.raises(ConfigError, match=r"indexer_tls_ca_file: .*missing\.pem: No such file"):
        peer.connect(interceptors=[], reconnect_ms_max=1000)
