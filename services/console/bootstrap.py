# SPDX-License-Identifier: Apache-2.0
"""The console's composition: settings, a client of the store, the pages and their server.

It keeps nothing but the last 24 hours in memory, so it is ready at once and may be killed at any time. The web packages
are an extra of the package: they are imported when a console is made, so that its settings can be read without them.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import grpc.aio

from libs.machine.timer_slack import started_with_slack
from libs.runtime.errors import ConfigError
from libs.runtime.settings import ListenConfig, TelemetryConfig
from services.console.config import ConsoleConfig
from services.console.pages.mask import mask_of

if TYPE_CHECKING:
    from libs.runtime.process import Shell

PORT = 7300
GRPC_SLACK_S = 0.05
"""How late threads of gRPC may look for work: they look 300 times after the calls of a sample, which is half of the
processor time of an idle console."""
UNUSED_TARGET = "unix:unused"
"""The target of a channel that is never used: gRPC's threads start with the first channel, and end with the last."""
EXTRA = "the console needs packages that are not installed: pip install 'reput-server[console]'"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of the console's process."""

    engine: ConsoleConfig = field(default_factory=ConsoleConfig)
    server: ListenConfig = field(default_factory=lambda: ListenConfig(port=PORT))
    telemetry: TelemetryConfig = field(default_factory=lambda: TelemetryConfig(metrics_port=7206))


class Service:
    """The console as a service of the process shell. Raises ConfigError."""

    live = ("hide_bodies", "masked_fields", "allow_actions")

    def __init__(self, settings: Settings, shell: Shell) -> None:
        try:
            from services.console.web.server import WebServer
        except ModuleNotFoundError as missing:
            if missing.name not in ("starlette", "jinja2", "uvicorn"):
                raise
            raise ConfigError(EXTRA) from None
        from services.console.ask.samples.sampler import Sampler
        from services.console.ask.shards import first_store
        from services.console.pages.history import Ring
        from services.console.web.app import Console

        self._store = first_store(settings.engine)
        self._stores = tuple(self._store.shards.values()) or (self._store,)
        own = (settings.server.tls_certificate_file, settings.engine.store_certificate_file)
        for store in self._stores:
            store.certificate_files = tuple(path for path in own if path is not None)
        count_max = settings.engine.history_count_max
        for store in self._stores:
            store.ring = Ring(-(-count_max // len(self._stores)))
        self._samplers = [Sampler(store, store.ring) for store in self._stores]
        self._sampling: list[asyncio.Task[None]] = []
        self._unused_channel: grpc.aio.Channel | None = None
        self._console = Console(self._store, settings.engine, settings.server)
        self.server = WebServer(self._console, settings.engine, settings.server)
        shell.telemetry.observe("web", self._console.counts.snapshot)

    def reload(self, settings: Settings) -> None:
        """Take the live settings."""
        engine = settings.engine
        for store in self._stores:
            store.mask = mask_of(engine.masked_fields, hides_bodies=engine.hide_bodies)
        self._console.allow_actions(engine.allow_actions)

    async def open(self) -> None:
        """Begin to take samples. Connections to the store are made when they are needed."""
        with started_with_slack(GRPC_SLACK_S):
            self._unused_channel = grpc.aio.insecure_channel(UNUSED_TARGET)
        self._sampling = [asyncio.create_task(sampler.run()) for sampler in self._samplers]

    async def until_connected(self) -> None:
        """Return at once: an unreachable service is told on the pages, and does not delay the start."""

    async def until_complete(self) -> None:
        """Return at once: the console has no data to read."""

    async def drain(self) -> None:
        """End the live tails. Browsers connect again."""
        self._console.end_tails()

    async def close(self) -> None:
        """End the samples, and close the connections to the store."""
        for sampler, sampling in zip(self._samplers, self._sampling, strict=False):
            sampler.end()
            sampling.cancel()
        await asyncio.gather(*self._sampling, return_exceptions=True)
        for store in self._stores:
            await store.close()
        if self._unused_channel is not None:
            await self._unused_channel.close()
