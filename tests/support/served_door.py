# SPDX-License-Identifier: Apache-2.0
"""A whole store inside this process, with a gateway whose door has the APIs of all services."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from libs.runtime.process import running
from libs.runtime.settings import PeerConfig, ServerConfig, TelemetryConfig
from services.commitlog.bootstrap import Service as CommitLog
from services.commitlog.bootstrap import Settings as CommitLogSettings
from services.delivery.bootstrap import Service as Delivery
from services.delivery.bootstrap import Settings as DeliverySettings
from services.gateway.bootstrap import Service as Gateway
from services.gateway.bootstrap import Settings as GatewaySettings
from services.gateway.config import GatewayConfig
from services.indexer.bootstrap import Service as Indexer
from services.indexer.bootstrap import Settings as IndexerSettings
from services.indexer.config import IndexerConfig
from services.janitor.bootstrap import Service as Janitor
from services.janitor.bootstrap import Settings as JanitorSettings
from services.janitor.config import JanitorConfig
from tests.support.commitlog import make_config
from tests.support.served_indexer import SMALL
from tests.support.service_process import ServiceProcess

TELEMETRY = TelemetryConfig(metrics_port=0)
SERVER = ServerConfig(port=0, drain_timeout_ms=2_000)
SEGMENT_SIZE_BYTES = 32 << 20


class Process(ServiceProcess):
    """A gateway as a process."""

    service = "gateway"
    has_files = False


@dataclass
class Store:
    """A running store: the addresses of its services by name, `gateway` among them, and the services."""

    targets: dict[str, str] = field(default_factory=dict)
    services: dict[str, Any] = field(default_factory=dict)

    def note(self, name: str, service: Any) -> PeerConfig:
        """Add a service, and return the setting that names it."""
        self.services[name] = service
        self.targets[name] = f"127.0.0.1:{service.server.port}"
        return PeerConfig(target=self.targets[name])


@contextlib.asynccontextmanager
async def store(directory: Path, server: ServerConfig = SERVER) -> AsyncIterator[Store]:
    """CommitLog, Indexer, Delivery and Janitor, all with the same settings of the server."""
    found = Store()
    common: dict[str, Any] = {"server": server, "telemetry": TELEMETRY}
    async with contextlib.AsyncExitStack() as stack:
        engine = make_config(data_dir=directory / "log", segment_size_bytes=SEGMENT_SIZE_BYTES)
        log_settings = CommitLogSettings(engine=engine, **common)
        log = found.note("commitlog", await stack.enter_async_context(running(CommitLog, log_settings)))
        index = IndexerSettings(engine=IndexerConfig(data_dir=directory / "index", **SMALL), commitlog=log, **common)
        indexer = found.note("indexer", await stack.enter_async_context(running(Indexer, index)))
        both: dict[str, Any] = {"commitlog": log, "indexer": indexer, **common}
        found.note("delivery", await stack.enter_async_context(running(Delivery, DeliverySettings(**both))))
        keeping = JanitorSettings(engine=JanitorConfig(data_dir=directory / "janitor"), **both)
        found.note("janitor", await stack.enter_async_context(running(Janitor, keeping)))
        yield found


@contextlib.asynccontextmanager
async def door(found: Store, server: ServerConfig = SERVER, **targets: str) -> AsyncIterator[Gateway]:
    """A gateway of a store. `targets` replace the addresses of services."""
    names = ("commitlog", "indexer", "delivery", "janitor")
    peers = {name: PeerConfig(target=targets.get(name, found.targets.get(name, ""))) for name in names}
    settings = GatewaySettings(
        engine=GatewayConfig(auto_create_topics=True), server=replace(server), telemetry=TELEMETRY, **peers
    )
    async with running(Gateway, settings) as service:
        found.note("gateway", service)
        yield service
