# SPDX-License-Identifier: Apache-2.0
"""The gateway's composition: settings, channels to the CommitLog and to Delivery, the servicer and its server.

It keeps no state, so it is ready at once and may be killed at any time.
"""

from dataclasses import dataclass, field
from functools import partial

from libs.formats.limits import APPEND_REQUEST_SIZE_BYTES_MAX
from libs.machine.loop import SupervisedLoop
from libs.runtime.errors import ConfigError
from libs.runtime.peer.connection import Connection
from libs.runtime.peer.leader import LeaderClient
from libs.runtime.peer.shards import shards_of
from libs.runtime.process import Shell
from libs.runtime.rpc.request_check import RequestLimits
from libs.runtime.rpc.server import GrpcServer
from libs.runtime.settings import PeerConfig, ServerConfig, TelemetryConfig
from services.gateway.config import GatewayConfig
from services.gateway.engine.bodies import Bodies
from services.gateway.engine.producers import Producers
from services.gateway.engine.renewals import Renewals
from services.gateway.engine.shards.traffic import ShardStatistics, ShardTraffic
from services.gateway.rpc.access_keys import AccessKeys
from services.gateway.rpc.caller import WorkCanceller
from services.gateway.rpc.consumer_methods import ConsumerMethods
from services.gateway.rpc.door.opening import has_door, open_door
from services.gateway.rpc.messaging_servicer import SERVED_AS, MessagingServicer
from services.gateway.rpc.orphans import Orphans
from services.gateway.rpc.routes import Routes
from services.gateway.rpc.store.opening import SERVICES, at_shard, open_store
from services.gateway.rpc.telemetry import Telemetry
from services.gateway.rpc.wire import messaging_pb2 as wire

RENEW_INTERVAL_MS = 1_000
LIMITS = {
    "SendMessage": RequestLimits(size_bytes_max=APPEND_REQUEST_SIZE_BYTES_MAX, value_count_max=100_000),
    "AckMessage": RequestLimits(size_bytes_max=2 << 20, value_count_max=10_000),
    "Telemetry": RequestLimits(value_count_max=10_000),
}
"""A producer's settings have a list of topics, and an acknowledgement has a list of handles."""


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of the gateway's process."""

    engine: GatewayConfig = field(default_factory=GatewayConfig)
    commitlog: PeerConfig = field(default_factory=lambda: PeerConfig(target="127.0.0.1:7101", timeout_ms=5_000))
    delivery: PeerConfig = field(default_factory=lambda: PeerConfig(target="127.0.0.1:7104", timeout_ms=5_000))
    indexer: PeerConfig = field(default_factory=lambda: PeerConfig(target="127.0.0.1:7102", timeout_ms=5_000))
    janitor: PeerConfig = field(default_factory=lambda: PeerConfig(target="127.0.0.1:7103", timeout_ms=5_000))
    server: ServerConfig = field(default_factory=lambda: ServerConfig(port=8081))
    telemetry: TelemetryConfig = field(default_factory=lambda: TelemetryConfig(metrics_port=7205))


class Service:
    """The gateway as a service of the process shell. Raises ConfigError."""

    live = ("auto_create_topics", "client_stream_count_max", "inflated_size_bytes_max", "renewal_count_max")

    def __init__(self, settings: Settings, shell: Shell) -> None:
        if settings.server.token_file is not None:
            raise ConfigError("token_file: RocketMQ's clients have no tokens: set access_keys_file, or neither")
        config, clock = settings.engine, shell.machine.clock
        self._connections: list[Connection] = []
        peers = {name: getattr(settings, name) for name in SERVICES}
        shards = shards_of(config.shards_file)
        lead = partial(self._lead, settings, shell)
        traffic = ShardTraffic(shards, clock)
        shell.telemetry.observe_each("shard", ("shard",), traffic.statistics, ShardStatistics)
        self.log, delivery = open_store(peers, shards, config, lead, traffic, clock)
        renewals = self.renewals = Renewals(delivery, clock, count_max=config.renewal_count_max)
        producers = Producers()
        self.bodies = Bodies(size_bytes_max=config.inflated_size_bytes_max)
        self._orphans = Orphans(delivery, producers)
        self._canceller = WorkCanceller()
        self._renewal_loop = SupervisedLoop("renewals", renewals.run_maintenance, interval_ms=RENEW_INTERVAL_MS)
        self.server = GrpcServer(
            settings.server,
            errors={},
            telemetry=shell.telemetry,
            request_size_bytes_max=APPEND_REQUEST_SIZE_BYTES_MAX,
            limits=LIMITS,
        )
        most = config.body_size_bytes_max
        self.telemetry = Telemetry(
            delivery,
            renewals,
            producers,
            self.bodies,
            self._canceller,
            body_size_bytes_max=most,
            stream_count_max=config.client_stream_count_max,
        )
        servicer = MessagingServicer(
            self.log,
            delivery,
            Routes(self.log),
            ConsumerMethods(delivery, renewals, self.bodies, self._canceller, clock),
            self.telemetry,
            renewals,
            producers,
            self.bodies,
            AccessKeys(config.access_keys_file),
            clock=clock,
            body_size_bytes_max=most,
            access=self.server.access,
            trail=self.server.trail,
        )
        service = wire.DESCRIPTOR.services_by_name["MessagingService"]
        self.server.add_service(service, servicer, served_as=SERVED_AS)
        if has_door(config, self.server):
            behind = {name: at_shard(peers, shard) for name, shard in shards.items()} or {"": peers}
            self._connections += open_door(
                behind, settings.server, self.server, shell, reconnect_ms_max=config.reconnect_ms_max
            )

    def _lead(self, settings: Settings, shell: Shell, name: str, config: PeerConfig, label: str) -> LeaderClient:
        """Connect to each of the targets. Raises ConfigError if a target is empty."""
        connect = shell.peer(name, config, settings.server, reconnect_ms_max=settings.engine.reconnect_ms_max)
        targets = [target.strip() for target in config.target.split(",")]
        if not all(targets):
            raise ConfigError(f"{name}_target: {config.target!r} must be host:port, or several with a comma between")
        connections = [connect(target) for target in targets]
        self._connections += connections
        return LeaderClient(label, connections)

    def reload(self, settings: Settings) -> None:
        """Take the live settings. Open streams and renewed messages above a smaller limit stay."""
        config = settings.engine
        self.log.creates_topics = config.auto_create_topics
        self.renewals.count_max = config.renewal_count_max
        self.bodies.size_bytes_max = config.inflated_size_bytes_max
        self.telemetry.stream_count_max = config.client_stream_count_max

    async def open(self) -> None:
        """Begin to renew messages, and to ask producers how their transactions end."""
        self._renewal_loop.start()
        self._orphans.start()

    async def until_connected(self) -> None:
        """Return at once: an unreachable service fails the calls, not the start."""

    async def until_complete(self) -> None:
        """Return at once: the gateway has no data to read."""

    async def drain(self) -> None:
        """End receives that wait, and the streams of clients. The clients connect again to another gateway."""
        self._canceller.end()

    async def close(self) -> None:
        """Stop the loops, and close the channels to the CommitLog and Delivery."""
        await self._renewal_loop.stop()
        await self._orphans.stop()
        self.bodies.close()
        for connection in self._connections:
            await connection.channel.close()
