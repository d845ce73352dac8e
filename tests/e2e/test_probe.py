# SPDX-License-Identifier: Apache-2.0
"""The probe of health checks has the right result for every kind of server, and is small."""

import asyncio
import os
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from reput_server import probe

from libs.runtime.process import running
from libs.runtime.settings import ServerConfig, TelemetryConfig
from services.commitlog.bootstrap import Service, Settings
from tests.support.certificates import OPENSSL, self_signed
from tests.support.commitlog import make_config
from tests.support.console import console_of
from tests.support.patience import LIMIT_S

PROGRAM = (sys.executable, "-IS", probe.__file__)
FRONTS = ("http2", pytest.param("grpcio", marks=pytest.mark.long))


@asynccontextmanager
async def served(directory: Path, **server: Any) -> AsyncIterator[Service]:
    """A CommitLog that serves, with these settings of its server."""
    telemetry = TelemetryConfig(metrics_port=0)
    settings = Settings(
        engine=make_config(data_dir=directory / "log"), server=ServerConfig(port=0, **server), telemetry=telemetry
    )
    async with running(Service, settings) as service:
        yield service


async def ask(target: str, **variables: str) -> tuple[int, str]:
    """Run the probe as a health check does. Return its exit code, and its output."""
    command = [*PROGRAM, target] if target else [*PROGRAM]
    child = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE, env=os.environ | variables)
    _, said = await asyncio.wait_for(child.communicate(), LIMIT_S)
    assert child.returncode is not None
    return child.returncode, said.decode()


async def until_serving(target: str) -> None:
    """Probe until the server is serving."""
    while (await ask(target))[0]:  # noqa: ASYNC110 - a process tells
        await asyncio.sleep(0.05)


@pytest.mark.parametrize("front", FRONTS)
async def test_a_server_that_serves(tmp_path: Path, front: str) -> None:
    """A serving server is probed by address, by Unix socket, and by the variable of the image."""
    async with served(tmp_path, front=front, unix_socket=tmp_path / "s") as service:
        target = f"127.0.0.1:{service.server.port}"
        await until_serving(target)
        for found in (await ask(f"unix:{tmp_path}/s"), await ask(f"unix://{tmp_path}/s")):
            assert found == (0, "")
        assert await ask("", HEALTH_TARGET=target) == (0, "")
        await service.server.drain()
        assert await ask(target) == (1, f"{target}: not serving\n")


@pytest.mark.skipif(OPENSSL is None, reason="needs openssl")
@pytest.mark.parametrize("front", FRONTS)
async def test_a_server_that_trusts_nobody(tmp_path: Path, front: str) -> None:
    """With TLS, client certificates and a token the probe succeeds through the Unix socket.

    It needs none of them there.
    """
    files = self_signed(tmp_path, "server", "client")
    (tmp_path / "token").write_text("secret")
    guard = {
        "tls_certificate_file": files["server.pem"], "tls_key_file": files["server.key"],
        "tls_client_ca_file": files["client.pem"], "token_file": tmp_path / "token", "unix_socket": tmp_path / "s",
    }  # fmt: skip
    async with served(tmp_path, front=front, **guard) as service:
        await until_serving(f"unix:{tmp_path}/s")
        code, said = await ask(f"127.0.0.1:{service.server.port}")
        assert (code, said.count("\n")) == (1, 1)


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("127.0.0.1:1", "no answer: Connection refused"),
        ("unix:/nowhere", "no answer: No such file or directory"),
        ("http://127.0.0.1:1", "no answer: Connection refused"),
        ("", "no target: give host:port, unix:PATH or http://host:port"),
        ("host", "no target: give host:port, unix:PATH or http://host:port"),
    ],
)
async def test_nobody(target: str, reason: str) -> None:
    """Without a server the probe prints a single line with the reason, for the list of checks that an engine keeps."""
    assert await ask(target, HEALTH_TARGET="") == (1, f"{target}: {reason}\n")


def test_a_server_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that accepts a connection and sends nothing, or single bytes, ends the probe after its time-out."""
    monkeypatch.setattr(probe, "TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        begun_s = time.monotonic()
        with pytest.raises(TimeoutError):
            probe.check(f"127.0.0.1:{server.getsockname()[1]}")
        assert time.monotonic() - begun_s < LIMIT_S


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "the server closed the connection"),
        (probe.frame(probe.GOAWAY, 0, 0, bytes(8)), "the server refused the call"),
        (probe.frame(probe.HEADERS, probe.END_STREAM, 1, b"\x88"), "not serving"),
        (probe.frame(probe.DATA, 0, 1, b"\0\0\0\0\2" + probe.SERVING), ""),
        (probe.frame(probe.DATA, 0, 1, b"\0\0\0\0\2\x08\x02"), "not serving"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "the server closed the connection"),
        (bytes(9 << 13), "the server answers something else"),
    ],
)
def test_answers(answer: bytes, reason: str) -> None:
    """No answer causes a traceback, and an answer in single bytes has the same result as a whole answer."""
    for size in {1 if len(answer) < 100 else 1000, len(answer) or 1}:
        ours, theirs = socket.socketpair()
        with theirs, pytest.MonkeyPatch.context() as patch:
            patch.setattr(probe, "connect", lambda _, ours=ours: ours)
            for at in range(0, len(answer), size):
                theirs.sendall(answer[at : at + size])
            theirs.shutdown(socket.SHUT_WR)
            assert probe.check("x:1") == reason


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "not serving"),
        (b"HTTP/1.1 200 OK\r\n\r\nserving\n", ""),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", "not serving"),
        (probe.frame(probe.SETTINGS, 0, 0, b""), "not serving"),
    ],
)
def test_answers_of_a_console(answer: bytes, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A console serves if its answer begins with status 200."""
    ours, theirs = socket.socketpair()
    monkeypatch.setattr(probe, "connect", lambda _: ours)
    with theirs:
        theirs.sendall(answer)
        theirs.shutdown(socket.SHUT_WR)
        assert probe.check_page("x:1") == reason


async def test_a_console() -> None:
    """A console that serves is probed by its address with http://, and not by the probe of gRPC."""
    away = dict.fromkeys(("commitlog", "indexer", "janitor", "delivery"), "127.0.0.1:1")
    with console_of(away) as console:
        assert await ask(console.url) == (0, "")
        assert (await ask(f"127.0.0.1:{console.port}"))[0] == 1


def test_it_is_small() -> None:
    """The probe imports no package and little else, because a process every few seconds must cost little."""
    code = f"import sys; sys.argv = ['probe', '127.0.0.1:1']; import runpy; runpy.run_path({probe.__file__!r})"
    ending = "print(sorted({name.partition('.')[0] for name in sys.modules} - set(sys.stdlib_module_names)))"
    done = subprocess.run(
        [sys.executable, "-IS", "-c", f"{code}; {ending}"], capture_output=True, text=True, check=True
    )
    assert done.stdout == "['__main__']\n"
