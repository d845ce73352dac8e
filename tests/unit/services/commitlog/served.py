# SPDX-License-Identifier: Apache-2.0
"""The CommitLog behind a real gRPC server: inside the test's process, or as a process of its own on a real disk."""

import asyncio
import contextlib
import hashlib
import os
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from google.rpc.error_details_pb2 import BadRequest, ErrorInfo
from google.rpc.status_pb2 import Status
from reput.commitlog.v1 import (
    append_service_pb2_grpc,
    log_service_pb2_grpc,
    segment_service_pb2_grpc,
    topic_service_pb2_grpc,
)

from libs.runtime.process import running
from libs.runtime.settings import ServerConfig, TelemetryConfig
from services.commitlog.bootstrap import Service, Settings
from tests.unit.services.commitlog.support import make_config

REPOSITORY = Path(__file__).resolve().parents[4]
STATUS_KEY = "grpc-status-details-bin"
END_TIMEOUT_S = 25


class Client:
    """Stubs of all services of one server."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.append = append_service_pb2_grpc.AppendServiceStub(channel)
        self.log = log_service_pb2_grpc.LogServiceStub(channel)
        self.segments = segment_service_pb2_grpc.SegmentServiceStub(channel)
        self.topics = topic_service_pb2_grpc.TopicServiceStub(channel)


class Refusal:
    """A failed call's status, taken apart."""

    def __init__(self, error: grpc.aio.AioRpcError | Status) -> None:
        if isinstance(error, Status):
            status = error
        else:
            details = dict(error.trailing_metadata() or ())
            status = Status.FromString(details[STATUS_KEY])
            assert status.code == error.code().value[0]
        self.code = next(code for code in grpc.StatusCode if code.value[0] == status.code)
        infos = [detail for detail in status.details if detail.Is(ErrorInfo.DESCRIPTOR)]
        assert len(infos) == 1
        info = ErrorInfo.FromString(infos[0].value)
        assert info.domain == "reput"
        self.reason = info.reason
        self.metadata = dict(info.metadata)
        self.message = status.message
        self.fields = [
            violation.field
            for detail in status.details
            if detail.Is(BadRequest.DESCRIPTOR)
            for violation in BadRequest.FromString(detail.value).field_violations
        ]

    @property
    def field(self) -> str:
        """The field at fault, from the metadata or the BadRequest."""
        return self.metadata.get("field", self.fields[0] if self.fields else "")


@contextlib.asynccontextmanager
async def served(data_dir: Path, **config: Any) -> AsyncIterator[tuple[Service, Client]]:
    """A server in this process on a real directory."""
    settings = Settings(
        engine=make_config(**{"data_dir": data_dir, "dispatch_heartbeat_ms": 20, **config}),
        server=ServerConfig(port=0, drain_timeout_ms=2_000),
        telemetry=TelemetryConfig(metrics_port=0),
    )
    async with (
        running(Service, settings) as service,
        grpc.aio.insecure_channel(f"127.0.0.1:{service.server.port}") as channel,
    ):
        yield service, Client(channel)


class Process:
    """`python -m services.commitlog` as a child."""

    def __init__(self, child: asyncio.subprocess.Process) -> None:
        self.child = child
        self.lines: list[str] = []
        self.port = 0

    @classmethod
    async def start(cls, data_dir: Path, *flags: str, failpoints: str = "") -> "Process":
        """Start it; it may still be recovering, or fail to start."""
        environment = {**os.environ, "REPUT_FAILPOINTS": failpoints, "REPUT_COMMITLOG_LOG_FORMAT": "json"}
        command = [sys.executable, "-m", "services.commitlog", "--data-dir", str(data_dir), "--metrics-port", "0"]
        port = [] if "--port" in flags else ["--port", "0"]
        child = await asyncio.create_subprocess_exec(
            *command, *port, *flags, cwd=REPOSITORY, env=environment, stderr=asyncio.subprocess.PIPE
        )
        return cls(child)

    async def wait_serving(self) -> "Process":
        """Read its log until it serves."""
        assert self.child.stderr is not None
        while True:
            line = (await self.child.stderr.readline()).decode()
            assert line, f"it ended: {self.lines}"
            self.lines.append(line)
            if '"serving"' in line:
                match = re.search(r'"port": (\d+)', line)
                assert match
                self.port = int(match[1])
                return self

    async def wait_ended(self) -> int:
        """Read its log to the end; the exit code. One that does not end is killed, and its code tells."""
        watchdog = asyncio.get_running_loop().call_later(END_TIMEOUT_S, self.child.kill)
        _, rest = await self.child.communicate()
        watchdog.cancel()
        self.lines += rest.decode().splitlines(keepends=True)
        assert self.child.returncode is not None
        return self.child.returncode

    async def end(self, signal_number: int = signal.SIGTERM) -> int:
        """Send a signal and wait."""
        self.child.send_signal(signal_number)
        return await self.wait_ended()

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """Stubs for it."""
        async with grpc.aio.insecure_channel(f"127.0.0.1:{self.port}") as channel:
            yield Client(channel)


@contextlib.asynccontextmanager
async def process(data_dir: Path, *flags: str, failpoints: str = "") -> AsyncIterator[Process]:
    """A child that serves; killed at the end of the block if it still runs."""
    child = await Process.start(data_dir, *flags, failpoints=failpoints)
    try:
        yield await child.wait_serving()
    finally:
        if child.child.returncode is None:
            await child.end(signal.SIGKILL)


def digest(directory: Path) -> dict[str, str]:
    """A hash of every file below a directory."""
    files = [path for path in sorted(directory.rglob("*")) if path.is_file()]
    return {str(path.relative_to(directory)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}
