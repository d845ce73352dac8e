# SPDX-License-Identifier: Apache-2.0
"""The Indexer behind a real gRPC server, inside the test's process or as a process of its own."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
from reput.indexer.v1 import (
    consumer_offset_service_pb2_grpc,
    index_service_pb2,
    index_service_pb2_grpc,
    query_service_pb2_grpc,
    queue_service_pb2_grpc,
    rebuild_service_pb2_grpc,
    scan_service_pb2_grpc,
)

from libs.runtime.process import running
from libs.runtime.settings import PeerConfig, ServerConfig, TelemetryConfig
from services.indexer.bootstrap import Service, Settings
from services.indexer.config import IndexerConfig
from tests.support.patience import LIMIT_S
from tests.support.service_process import ServiceProcess
from tests.support.trusted import trusted

SMALL = {
    "index_slot_count": 64,
    "index_entry_capacity": 200,
    "queue_file_size_bytes": 20 * 100,
    "reconnect_ms_max": 100,
    "disk_ballast_bytes": 4_096,
}


class Client:
    """Stubs of all services of an Indexer."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        self.channel = channel
        self.queues = queue_service_pb2_grpc.QueueServiceStub(channel)
        self.queries = query_service_pb2_grpc.QueryServiceStub(channel)
        self.scans = scan_service_pb2_grpc.ScanServiceStub(channel)
        self.offsets = consumer_offset_service_pb2_grpc.ConsumerOffsetServiceStub(channel)
        self.rebuilds = rebuild_service_pb2_grpc.RebuildServiceStub(channel)
        self.index = index_service_pb2_grpc.IndexServiceStub(channel)

    async def status(self) -> index_service_pb2.GetStatusResponse:
        """Return the Indexer's status."""
        return await self.index.GetStatus(index_service_pb2.GetStatusRequest())

    async def wait_indexed(self, physical_offset: int) -> None:
        """Wait until everything below this offset is indexed, and calls are answered."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                status = await self.status()
                if status.is_complete and status.indexed_physical_offset >= physical_offset:
                    return
                await asyncio.sleep(0.01)


@contextlib.asynccontextmanager
async def served(data_dir: Path, commitlog_target: str, **config: Any) -> AsyncIterator[tuple[Service, Client]]:
    """An Indexer in this process on a real directory."""
    settings = Settings(
        engine=IndexerConfig(data_dir=data_dir, **{**SMALL, **config}),
        commitlog=PeerConfig(target=commitlog_target, timeout_ms=5_000),
        server=ServerConfig(port=0, drain_timeout_ms=2_000),
        telemetry=TelemetryConfig(metrics_port=0),
    )
    async with (
        running(Service, settings) as service,
        trusted(grpc.aio.insecure_channel(f"127.0.0.1:{service.server.port}")) as channel,
    ):
        yield service, Client(channel)


class Process(ServiceProcess):
    """The Indexer as a child, with small files."""

    service = "indexer"
    flags = tuple(part for name, value in SMALL.items() for part in (f"--{name.replace('_', '-')}", str(value)))

    @contextlib.asynccontextmanager
    async def client(self) -> AsyncIterator[Client]:
        """Stubs for it."""
        async with trusted(grpc.aio.insecure_channel(f"127.0.0.1:{self.port}")) as channel:
            yield Client(channel)


@contextlib.asynccontextmanager
async def process(data_dir: Path, commitlog_target: str, *flags: str, failpoints: str = "") -> AsyncIterator[Process]:
    """A child that serves, and is killed at the end of the block if it still runs."""
    child = await Process.start(data_dir, "--commitlog-target", commitlog_target, *flags, failpoints=failpoints)
    try:
        yield await child.wait_serving()
    finally:
        if child.child.returncode is None:
            await child.end(signal.SIGKILL)
