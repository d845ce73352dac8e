# SPDX-License-Identifier: Apache-2.0
"""The CommitLog behind a real gRPC server: inside the test's process, or as a process of its own on a real disk."""

import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from reput.commitlog.v1 import (
    append_service_pb2_grpc,
    log_service_pb2_grpc,
    segment_service_pb2_grpc,
    topic_service_pb2_grpc,
)

from libs.runtime.process import running
from libs.runtime.settings import ServerConfig, TelemetryConfig
from services.commitlog.bootstrap import Service, Settings
from tests.support.commitlog import make_config
from tests.support.service_process import ServiceProcess
from tests.support.trusted import trusted


class Client:
    """Stubs of all services of a CommitLog."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.append = append_service_pb2_grpc.AppendServiceStub(channel)
        self.log = log_service_pb2_grpc.LogServiceStub(channel)
        self.segments = segment_service_pb2_grpc.SegmentServiceStub(channel)
        self.topics = topic_service_pb2_grpc.TopicServiceStub(channel)


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
        trusted(grpc.aio.insecure_channel(f"127.0.0.1:{service.server.port}")) as channel,
    ):
        yield service, Client(channel)


class Process(ServiceProcess):
    """The CommitLog as a child."""

    service = "commitlog"

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """Stubs for it."""
        async with trusted(grpc.aio.insecure_channel(f"127.0.0.1:{self.port}")) as channel, self.explained():
            yield Client(channel)


@contextlib.asynccontextmanager
async def process(data_dir: Path, *flags: str, failpoints: str = "") -> AsyncIterator[Process]:
    """A child that serves, and is killed at the end of the block if it still runs."""
    child = await Process.start(data_dir, *flags, failpoints=failpoints)
    try:
        yield await child.wait_serving()
    finally:
        if child.child.returncode is None:
            await child.end(signal.SIGKILL)
