# SPDX-License-Identifier: Apache-2.0
"""The Janitor's composition: settings, owners, loop, history and server.

The service is ready at once: an unreachable owner fails the runs, not the start.
"""

import asyncio
import functools
import os
from dataclasses import dataclass, field
from pathlib import Path
from zoneinfo import ZoneInfo

from reput.janitor.v1 import retention_service_pb2

from libs.formats import store_layout
from libs.log.state import data_dir
from libs.runtime.process import Shell
from libs.runtime.rpc.server import GrpcServer
from libs.runtime.settings import PeerConfig, ServerConfig, TelemetryConfig
from services.janitor.config import JanitorConfig
from services.janitor.engine.history import RunHistory
from services.janitor.engine.retention_loop import RetentionLoop
from services.janitor.rpc.error_table import ERROR_TABLE
from services.janitor.rpc.owner_clients import CommitLogClient, IndexerClient
from services.janitor.rpc.retention_servicer import RetentionServicer

REQUEST_SIZE_BYTES_MAX = 64 << 10
"""The largest field of the Janitor's requests is a page token."""

RECONNECT_MS_MAX = 10_000
"""Longest wait between two attempts to reach an owner."""

LOCAL_TIME_ZONE_FILE = Path("/etc/localtime")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of the Janitor process."""

    engine: JanitorConfig = field(default_factory=JanitorConfig)
    commitlog: PeerConfig = field(default_factory=lambda: PeerConfig(target="127.0.0.1:7101"))
    indexer: PeerConfig = field(default_factory=lambda: PeerConfig(target="127.0.0.1:7102"))
    server: ServerConfig = field(default_factory=lambda: ServerConfig(port=7103))
    telemetry: TelemetryConfig = field(default_factory=lambda: TelemetryConfig(metrics_port=7203))


class Service:
    """The Janitor as a service of the process shell."""

    live = (
        "retention_hours",
        "retention_bytes",
        "disk_max_used_percent",
        "disk_forcible_percent",
        "disk_full_percent",
        "disk_forced",
        "delete_when",
        "delete_batch_count_max",
        "delete_interval_ms",
        "retry_interval_ms",
    )

    def __init__(self, settings: Settings, shell: Shell) -> None:
        config = settings.engine
        self._fs, self._directory = shell.machine.fs, config.data_dir / store_layout.REPUT
        self._check_store = functools.partial(data_dir.check, self._fs, config.data_dir, may_create=config.create_store)
        self._history = RunHistory(self._fs, config.data_dir / store_layout.RETENTION_HISTORY)
        peers = {"commitlog": settings.commitlog, "indexer": settings.indexer}
        self._owners = [
            shell.peer(name, peer, settings.server, reconnect_ms_max=RECONNECT_MS_MAX)(peer.target)
            for name, peer in peers.items()
        ]
        log, index = self._owners
        self.loop = RetentionLoop(
            log=CommitLogClient(log),
            index=IndexerClient(index),
            policy=config,
            history=self._history,
            clock=shell.machine.clock,
        )
        shell.telemetry.observe("retention", self.loop.counters)
        self.server = GrpcServer(
            settings.server,
            errors=ERROR_TABLE,
            telemetry=shell.telemetry,
            request_size_bytes_max=REQUEST_SIZE_BYTES_MAX,
        )
        servicer = RetentionServicer(
            self.loop, self._history, time_zone=config.time_zone or local_time_zone_name(os.environ.get("TZ", ""))
        )
        self.server.add_service(retention_service_pb2.DESCRIPTOR.services_by_name["RetentionService"], servicer)

    def reload(self, settings: Settings) -> None:
        """Take the live settings. A run under way keeps the settings with which it began."""
        self.loop.policy = settings.engine

    async def open(self) -> None:
        """Read the history and start the loop."""
        await asyncio.to_thread(self._check_store)
        await asyncio.to_thread(self._fs.make_directory, self._directory)
        await asyncio.to_thread(self._history.load)
        self.loop.start()

    async def until_connected(self) -> None:
        """Return at once: an unreachable owner fails the runs, not the start."""

    async def until_complete(self) -> None:
        """Return at once: the service is complete when it is open."""

    async def drain(self) -> None:
        """End a run under way. This ends the calls that wait for it."""
        await self.loop.stop()

    async def close(self) -> None:
        """Stop the loop and close the connections to the owners."""
        await self.loop.stop()
        for owner in self._owners:
            await owner.channel.close()


def local_time_zone_name(environment_value: str) -> str:
    """Return the IANA name of the machine's time zone, "" if unknown.

    The name is TZ if it is set, else it is the target of /etc/localtime.
    """
    name = environment_value.removeprefix(":")
    if not name:
        parts = LOCAL_TIME_ZONE_FILE.resolve().parts
        name = "/".join(parts[parts.index("zoneinfo") + 1 :]) if "zoneinfo" in parts else ""
    try:
        return ZoneInfo(name).key if name else ""
    except (KeyError, ValueError, OSError):  # a POSIX rule or an odd link: no name to show
        return ""
