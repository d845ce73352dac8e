# SPDX-License-Identifier: Apache-2.0
"""The process shell: order of start and stop, exit codes, a single line for expected errors."""

import asyncio
import contextlib
import errno
import gc
import json
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from msgspec import Meta
from reput.commitlog.v1 import append_service_pb2

from libs.importance import Advanced
from libs.machine import failpoints
from libs.machine.errors import StoreLocked
from libs.runtime import process
from libs.runtime.process import ExitCode, Shell
from libs.runtime.rpc.server import GrpcServer
from libs.runtime.settings import ServerConfig, TelemetryConfig
from libs.runtime.version import VERSION
from libs.segments.errors import SegmentSizeWrong, SyncFailed
from services.commitlog.bootstrap import Settings as CommitLogSettings
from tests.support.patience import LIMIT_S
from tests.unit.libs.runtime.servers import APPEND, details_of

SERVER = ServerConfig(port=0, drain_timeout_ms=200)
TELEMETRY = TelemetryConfig(metrics_port=0, log_format="json")
SYNC_FAILED = SyncFailed(path=Path("/d/s"), position=7, reason="Input/output error")


@dataclass(frozen=True, kw_only=True)
class Engine:
    """The toy's own settings."""

    size: Advanced[Annotated[int, Meta(ge=1)]] = 1
    """Size."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of the toy."""

    engine: Engine = Engine()
    server: ServerConfig = SERVER
    telemetry: TelemetryConfig = TELEMETRY


class Toy:
    """A service that records its events; its class attributes control it."""

    events: list[str]
    on_open: "Callable[[Toy], object]" = staticmethod(lambda _toy: None)
    on_serving: "Callable[[Toy], object]" = staticmethod(lambda _toy: None)
    on_close: "Callable[[Toy], object]" = staticmethod(lambda _toy: None)
    live = ()
    opening_blocks = False
    drain_blocks = False

    def __init__(self, settings: Settings, shell: Shell) -> None:
        self.shell = shell
        self.server = GrpcServer(settings.server, errors={}, telemetry=shell.telemetry, request_size_bytes_max=1 << 20)
        self.server.add_service(append_service_pb2.DESCRIPTOR.services_by_name["AppendService"], self, raw={"Append"})
        self.answering = asyncio.Event()
        self.may_answer = asyncio.Event()
        self.is_connected = asyncio.Event()
        self.is_complete = asyncio.Event()
        Toy.events = ["build"]

    async def Append(self, request: bytes, context: object) -> bytes:  # noqa: N802
        """Answer when allowed to."""
        self.answering.set()
        await self.may_answer.wait()
        return request

    def reload(self, settings: Settings) -> None:
        """Nothing is live."""

    async def open(self) -> None:
        self.events.append("open")
        assert self.server.port > 0
        type(self).on_open(self)
        if self.opening_blocks:
            await asyncio.Event().wait()

    async def until_connected(self) -> None:
        type(self).on_serving(self)
        await self.is_connected.wait()

    async def until_complete(self) -> None:
        await self.is_complete.wait()

    async def drain(self) -> None:
        assert self.server.is_stopping
        self.events.append("drain")
        if self.drain_blocks:
            await asyncio.Event().wait()

    async def close(self) -> None:
        self.events.append("close")
        type(self).on_close(self)


@pytest.fixture
def toy() -> type[Toy]:
    class OwnToy(Toy):
        """A toy whose attributes can be changed without an effect on other tests."""

    return OwnToy


@pytest.fixture(autouse=True)
def _process_state() -> Iterator[None]:
    root = logging.getLogger()
    before, thresholds = (root.handlers, root.level), gc.get_threshold()
    yield
    root.handlers, root.level = before
    gc.unfreeze()
    gc.set_threshold(*thresholds)
    failpoints.disarm_all()


def run(toy: type[Toy], *arguments: str) -> int:
    return process.main(arguments, section="commitlog", settings_class=Settings, build=toy)


def raiser(error: Exception) -> Callable[[Toy], object]:
    def act(_toy: Toy) -> None:
        raise error

    return act


def terminate(_toy: Toy) -> None:
    os.kill(os.getpid(), signal.SIGTERM)


def events_in(text: str) -> list[str]:
    return [line.split('"event": "')[1].split('"')[0] for line in text.splitlines() if '"event": "' in line]


@pytest.mark.parametrize("signal_number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_in_order(
    toy: type[Toy], capsys: pytest.CaptureFixture[str], signal_number: signal.Signals
) -> None:
    """A signal leads to drain, close and exit code 0, and each step is logged."""
    toy.on_serving = lambda _toy: os.kill(os.getpid(), signal_number)
    assert run(toy) == ExitCode.CLEAN
    assert Toy.events == ["build", "open", "drain", "close"]
    assert events_in(capsys.readouterr().err) == ["serving", "stopping", "stopped"]


def test_a_hang_up_ends_nothing(toy: type[Toy], capsys: pytest.CaptureFixture[str]) -> None:
    """A hang-up leaves the service running, and a line is logged.

    It comes from a closed terminal, or from an operator that expects a reload.
    """

    def hang_up_and_terminate(_toy: Toy) -> None:
        os.kill(os.getpid(), signal.SIGHUP)
        asyncio.get_running_loop().call_later(0.05, os.kill, os.getpid(), signal.SIGTERM)

    toy.on_serving = hang_up_and_terminate
    assert run(toy) == ExitCode.CLEAN
    hung_up, *rest = (event for event in events_in(capsys.readouterr().err) if event != "serving")
    assert hung_up == "SIGHUP: no live setting has changed"
    assert rest == ["stopping", "stopped"]


def test_the_line_of_a_start_says_what_runs(toy: type[Toy], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """The line of a start has the version, the address and the file of settings."""
    file = tmp_path / "reput.toml"
    file.write_text("[commitlog]\nsize = 2\n")
    toy.on_serving = terminate
    assert run(toy, "--config", str(file)) == ExitCode.CLEAN
    [line] = [line for line in capsys.readouterr().err.splitlines() if '"serving"' in line]
    told = json.loads(line)
    assert told["port"] > 0
    assert {name: told[name] for name in ("config", "version", "listen_host", "front")} == {
        "config": str(file),
        "version": VERSION,
        "listen_host": "127.0.0.1",
        "front": "http2",
    }


def test_the_line_of_a_start_says_which_data(tmp_path: Path) -> None:
    """The log has the data directory with its whole path, the role of the log, and the settings that differ."""
    environment = {"REPUT_COMMITLOG_DATA_DIR": f"{tmp_path}/x/../store", "REPUT_COMMITLOG_TOKEN_FILE": "secret"}
    loaded = process.parse([], section="commitlog", settings_class=CommitLogSettings, environment=environment)
    assert process.about(loaded) == {
        "version": VERSION,
        "config": "no file",
        "data_dir": f"{tmp_path}/store",
        "role": "async_master",
        "listen_host": "127.0.0.1",
        "front": "http2",
        "settings": {"token_file": "secret"},
    }


def test_the_collector_never_walks_what_the_start_made(toy: type[Toy]) -> None:
    """A full collection does not walk the objects that the start made.

    It would block the event loop for each object that it knows.
    """
    known_counts: list[int] = []

    def look_and_stop() -> None:
        known_counts.append(len(gc.get_objects()))
        terminate(toy)  # type: ignore[arg-type]

    toy.on_open = lambda _toy: asyncio.get_running_loop().call_later(0.02, look_and_stop)
    known_before = len(gc.get_objects())
    assert run(toy) == ExitCode.CLEAN
    assert known_counts[0] < known_before / 10


def test_a_signal_while_opening_cancels_the_start(toy: type[Toy], capsys: pytest.CaptureFixture[str]) -> None:
    """A signal stops the process during a long recovery."""
    toy.opening_blocks = True
    toy.on_open = terminate
    assert run(toy) == ExitCode.CLEAN
    assert Toy.events == ["build", "open", "drain", "close"]
    assert events_in(capsys.readouterr().err) == ["stopping", "stopped"]


def test_a_drain_that_hangs_is_cut_off(toy: type[Toy], capsys: pytest.CaptureFixture[str]) -> None:
    """A drain that hangs ends after the time-out, and the store is closed nevertheless."""
    toy.drain_blocks = True
    toy.on_open = terminate
    toy.opening_blocks = True
    assert run(toy) == ExitCode.CLEAN
    assert Toy.events == ["build", "open", "drain", "close"]
    assert "draining took longer than drain_timeout_s" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (SYNC_FAILED, ExitCode.SEALED, "/d/s: sync up to byte 7 failed: Input/output error; the store is sealed"),
        (StoreLocked(Path("/d/lock")), ExitCode.STORE_LOCKED, "/d/lock: another process uses this directory"),
        (
            SegmentSizeWrong(path=Path("/d/0"), size_bytes=5, expected_bytes=8),
            ExitCode.FAILURE,
            (
                "/d/0: the file has 5 bytes, but the configured segment size is 8 bytes; nothing was changed: correct "
                "the setting if all files have the other size, or restore this one from a copy"
            ),
        ),
        (
            OSError(errno.EROFS, "Read-only file system", "/d/commitlog"),
            ExitCode.FAILURE,
            "[Errno 30] Read-only file system: '/d/commitlog'",
        ),
    ],
)
@pytest.mark.parametrize("way", ["open", "fail", "close"])
def test_an_expected_failure_is_one_line(
    toy: type[Toy], capsys: pytest.CaptureFixture[str], error: Exception, code: ExitCode, text: str, way: str
) -> None:
    """An expected failure of the start, the running service or its end gives the error's exit code and line.

    The service is closed.
    """
    if way == "open":
        toy.on_open = raiser(error)
    elif way == "fail":
        toy.on_open = lambda toy: toy.shell.fail(error)
    else:
        toy.on_open, toy.on_close = terminate, raiser(error)
    assert run(toy, "--log-level", "error") == code
    assert capsys.readouterr().err == f"reput commitlog: {text}\n"
    assert Toy.events[-1] == "close"


def test_the_first_failure_counts(toy: type[Toy], capsys: pytest.CaptureFixture[str]) -> None:
    """If the close fails after a failed sync, the line and the exit code are still those of the failed sync."""
    toy.on_open, toy.on_close = lambda toy: toy.shell.fail(SYNC_FAILED), raiser(OSError(errno.EIO, "close"))
    assert run(toy, "--log-level", "error") == ExitCode.SEALED
    assert capsys.readouterr().err == f"reput commitlog: {SYNC_FAILED}\n"


def test_a_bug_is_logged_with_its_traceback(toy: type[Toy], capsys: pytest.CaptureFixture[str]) -> None:
    """An unexpected error is logged with its traceback."""
    toy.on_open = raiser(ZeroDivisionError("oops"))
    assert run(toy) == ExitCode.FAILURE
    text = capsys.readouterr().err
    assert "ZeroDivisionError" in text
    assert "test_process.py" in text
    assert Toy.events[-1] == "close"


def test_a_port_in_use_ends_before_the_store_is_touched(toy: type[Toy], capsys: pytest.CaptureFixture[str]) -> None:
    """With a port in use the service is neither opened nor closed."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        assert run(toy, "--port", str(port)) == ExitCode.ADDRESS_IN_USE
        text = f"reput commitlog: 127.0.0.1:{port} is in use by another process; choose another port\n"
        assert capsys.readouterr().err == text
        assert Toy.events == ["build"]
        assert run(toy, "--metrics-port", str(port)) == ExitCode.ADDRESS_IN_USE
        assert "choose another metrics_port" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "environment", "text"),
    [
        (["--size", "0"], {}, "size is '0' (flag --size), but must be an integer of at least 1"),
        ([], {"REPUT_COMMITLOG_SIZ": "1"}, "unknown environment variable REPUT_COMMITLOG_SIZ; did you mean"),
        (["--config", "/missing.toml"], {}, "/missing.toml: No such file"),
        (["--listen-host", "0.0.0.0"], {}, "listen_host 0.0.0.0 can be reached from other machines"),
        (["--tls-key-file", "k"], {}, "tls_certificate_file and tls_key_file need each other"),
        ([], {"REPUT_FAILPOINTS": "x"}, "failpoint 'x': expected name=action"),
    ],
)
def test_wrong_usage_is_one_line_and_code_2(
    toy: type[Toy],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    environment: dict[str, str],
    text: str,
) -> None:
    """Settings that can't be are refused before anything else happens."""
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert run(toy, *arguments) == ExitCode.USAGE
    line = capsys.readouterr().err
    assert text in line
    assert line.count("\n") == 1


def test_help_lists_every_setting(toy: type[Toy], capsys: pytest.CaptureFixture[str]) -> None:
    """`--help` explains flags, bounds, defaults and environment names, the basic settings first."""
    with pytest.raises(SystemExit) as caught:
        run(toy, "--help")
    assert caught.value.code == 0
    text = " ".join(capsys.readouterr().out.split())
    assert "--size VALUE Size. Must be an integer of at least 1; default 1; also REPUT_COMMITLOG_SIZE." in text
    basic, advanced = text.partition(" basic settings: ")[2].split(" advanced settings: ")
    assert ("--port VALUE" in basic, "--size VALUE" in basic, "--size VALUE" in advanced) == (True, False, True)


def test_python_without_assertions_is_refused() -> None:
    """`python -O` would run the store unguarded."""
    program = (
        "import sys; from libs.runtime import process; from tests.unit.libs.runtime.test_process import Settings, Toy;"
        "sys.exit(process.main([], section='commitlog', settings_class=Settings, build=Toy))"
    )
    done = subprocess.run([sys.executable, "-O", "-c", program], capture_output=True, check=False, timeout=LIMIT_S)
    assert done.returncode == ExitCode.USAGE
    assert done.stderr.startswith(b"reput commitlog: assertions guard the store")
    assert done.stderr.count(b"\n") == 1


@contextlib.asynccontextmanager
async def channel_to(service: Toy) -> AsyncIterator[grpc.aio.Channel]:
    async with grpc.aio.insecure_channel(f"localhost:{service.server.port}") as channel:
        yield channel


async def test_running_serves_within_the_block(toy: type[Toy]) -> None:
    """Tests get a served service, and a call under way at the end of the block is answered."""
    async with contextlib.AsyncExitStack() as stack:
        async with process.running(toy, Settings()) as service:
            channel = await stack.enter_async_context(channel_to(service))
            call = asyncio.ensure_future(_append(channel))
            await service.answering.wait()
            service.may_answer.set()
        assert await call == b"x"
    assert Toy.events == ["build", "open", "drain", "close"]


async def test_a_call_that_outlasts_the_grace_is_cancelled(toy: type[Toy]) -> None:
    """A call that outlasts the grace period is cancelled, so that the stop ends."""
    async with contextlib.AsyncExitStack() as stack:
        async with process.running(toy, Settings()) as service:
            channel = await stack.enter_async_context(channel_to(service))
            call = asyncio.ensure_future(_append(channel))
            await service.answering.wait()
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await call
    assert caught.value.code() in (grpc.StatusCode.CANCELLED, grpc.StatusCode.UNAVAILABLE)


async def test_running_reports_a_failure_of_the_service(toy: type[Toy]) -> None:
    """An error that the service reported is not lost in a test."""
    running = process.running(toy, Settings())
    service = await running.__aenter__()
    service.shell.fail(SYNC_FAILED)
    await service.shell.wait_ended()
    with pytest.raises(SyncFailed):
        await running.__aexit__(None, None, None)


async def test_readiness_is_told_step_by_step(toy: type[Toy], monkeypatch: pytest.MonkeyPatch) -> None:
    """Calls are served when the store is open, and health is SERVING when the peers have answered.

    The starter is notified last.
    """
    address = f"reput-test-{os.getpid()}"
    monkeypatch.setenv("NOTIFY_SOCKET", f"@{address}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as notice:
        notice.bind(f"\0{address}")
        async with process.running(toy, Settings()) as service, channel_to(service) as channel:
            watch = health_pb2_grpc.HealthStub(channel).Watch(health_pb2.HealthCheckRequest())
            service.may_answer.set()
            assert await _append(channel) == b"x"
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.NOT_SERVING
            service.is_connected.set()
            assert (await watch.read()).status == health_pb2.HealthCheckResponse.SERVING
            with pytest.raises(BlockingIOError):
                notice.recv(4096)
            service.is_complete.set()
            assert await asyncio.get_running_loop().sock_recv(notice, 4096) == b"READY=1"
            watch.cancel()


async def test_calls_wait_for_the_opening(toy: type[Toy]) -> None:
    """While the store recovers, calls are refused with RECOVERING, so that callers retry."""
    service = toy(Settings(), Shell(process.Telemetry.off()))
    await service.server.start()
    async with channel_to(service) as channel:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await _append(channel)
        assert details_of(caught.value)[0].reason == "RECOVERING"
    await service.server.stop(0)
    service.shell.telemetry.shutdown()


async def _append(channel: grpc.aio.Channel) -> bytes:
    return await channel.unary_unary(APPEND)(b"x", timeout=LIMIT_S)
