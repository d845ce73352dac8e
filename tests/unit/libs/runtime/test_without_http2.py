# SPDX-License-Identifier: Apache-2.0
"""Without the HTTP/2 package, gRPC's own server and channels are used; a broken installation is an error."""

import logging
import sys
from pathlib import Path

import grpc
import pytest

from libs.runtime.http2 import PACKAGE
from libs.runtime.peer.connection import Connection, Peer
from libs.runtime.rpc.fronts.front import front_of
from libs.runtime.rpc.fronts.grpcio import GrpcioFront
from libs.runtime.settings import PeerConfig, ServerConfig
from libs.runtime.trust.tokens import TokenFile


@pytest.fixture
def missing(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> str:
    """The name of a module that can't be found; no module that needs it is loaded."""
    loaded: list[str] = []
    for name in list(sys.modules):
        if name.startswith("libs.runtime.http2.") or name == "libs.runtime.rpc.fronts.in_loop":
            package, _, module = name.rpartition(".")
            monkeypatch.delattr(sys.modules[package], module, raising=False)  # `from package import module` looks there
            loaded.append(name)
    for name in loaded:
        monkeypatch.delitem(sys.modules, name)
    wanted: str = request.param
    monkeypatch.setitem(sys.modules, wanted, None)  # type: ignore[arg-type]  # so it is for the import system
    return wanted


def connect(directory: Path) -> Connection:
    """A connection without a server."""
    (directory / "token").write_text("a-token")
    token = TokenFile("service_token_file", directory / "token")
    peer = Peer(name="log", config=PeerConfig(target="127.0.0.1:1", channel="http2"), token=token)
    return peer.connect(interceptors=[], reconnect_ms_max=100)


@pytest.mark.parametrize("missing", [PACKAGE], indirect=True)
async def test_grpcio_serves_and_calls(missing: str, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """For each front a line of the log names the missing package."""
    with caplog.at_level(logging.WARNING):
        front = front_of(ServerConfig(port=0, front="http2"), request_size_bytes_max=1 << 20, call_count_max=10)
        connection = connect(tmp_path)
    assert isinstance(front, GrpcioFront)
    assert isinstance(connection.channel, grpc.aio.Channel)
    assert [f"{missing} is not installed" in record.getMessage() for record in caplog.records] == [True, True]
    await connection.channel.close()


@pytest.mark.parametrize("missing", ["libs.runtime.http2.connection"], indirect=True)
async def test_a_part_of_ours_is_missed(missing: str) -> None:
    """A missing module of Reput raises an error, without a silent fallback."""
    with pytest.raises(ModuleNotFoundError, match=missing):
        front_of(ServerConfig(port=0, front="http2"), request_size_bytes_max=1 << 20, call_count_max=10)


@pytest.mark.parametrize("missing", ["libs.runtime.http2.calling.channel"], indirect=True)
async def test_a_part_of_ours_is_missed_by_a_caller(missing: str, tmp_path: Path) -> None:
    """A missing part of Reput's own package raises ModuleNotFoundError at a connect, too."""
    with pytest.raises(ModuleNotFoundError, match=missing):
        connect(tmp_path)
