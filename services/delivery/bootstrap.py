# SPDX-License-Identifier: Apache-2.0
"""Delivery's composition: settings, channels to the log and its index, engine, servicers and server.

It has no files: its state is in the log. It is ready at once, and answers RECOVERING until it has read its journal, and
while its log follows another log.
"""

import functools
from dataclasses import dataclass, field, replace

from reput.delivery.v1 import (
    dead_letter_service_pb2,
    delay_service_pb2,
    delivery_service_pb2,
    group_service_pb2,
    transaction_service_pb2,
)

from libs.runtime.peer.leader import LeaderClient
from libs.runtime.peer.shards import shards_of
from libs.runtime.process import Shell
from libs.runtime.reload import take_over
from libs.runtime.rpc.server import GrpcServer
from libs.runtime.settings import PeerConfig, ServerConfig, TelemetryConfig
from services.delivery.config import DeliveryConfig
from services.delivery.engine.own.counters import Counters, DeadLetterCounters
from services.delivery.engine.own.group_engine import GroupEngine
from services.delivery.engine.own.journal_owner import JournalOwner
from services.delivery.engine.own.lag_metrics import GroupLag, GroupStandstill, LagMetrics
from services.delivery.engine.receive.filters import FilterCount
from services.delivery.rpc.dead_letter_servicer import DeadLetterServicer
from services.delivery.rpc.delay_servicer import DelayServicer
from services.delivery.rpc.delivery_servicer import DeliveryServicer
from services.delivery.rpc.error_table import ERROR_TABLE
from services.delivery.rpc.group_servicer import GroupServicer
from services.delivery.rpc.limits import LIMITS, REQUEST_SIZE_BYTES_MAX
from services.delivery.rpc.log.half_client import HalfClient
from services.delivery.rpc.log.index_client import IndexClient
from services.delivery.rpc.log.level_client import LevelClient
from services.delivery.rpc.log.log_client import LogClient
from services.delivery.rpc.log.timer_client import TimerClient
from services.delivery.rpc.shard_client import ShardClient
from services.delivery.rpc.transaction_servicer import TransactionServicer


@dataclass(frozen=True, kw_only=True)
class Settings:
    """All settings of the Delivery process."""

    engine: DeliveryConfig = field(default_factory=DeliveryConfig)
    commitlog: PeerConfig = field(default_factory=lambda: PeerConfig(target="127.0.0.1:7101", timeout_ms=5_000))
    indexer: PeerConfig = field(default_factory=lambda: PeerConfig(target="127.0.0.1:7102", timeout_ms=5_000))
    server: ServerConfig = field(default_factory=lambda: ServerConfig(port=7104))
    telemetry: TelemetryConfig = field(default_factory=lambda: TelemetryConfig(metrics_port=7204))


class Service:
    """The Delivery service, as the process shell runs it."""

    live = (
        "open_count_max",
        "group_queue_count_max",
        "delayed_count_max",
        "delayed_roll_hours",
        "transaction_check_count_max",
        "transaction_count_max",
    )

    def __init__(self, settings: Settings, shell: Shell) -> None:
        config, clock = replace(settings.engine), shell.machine.clock
        self.config = config
        peers = {"commitlog": settings.commitlog, "indexer": settings.indexer}
        self._connections = [
            shell.peer(name, peer, settings.server, reconnect_ms_max=config.reconnect_ms_max)(peer.target)
            for name, peer in peers.items()
        ]
        to_log, to_index = self._connections
        log, index = LogClient(to_log), IndexClient(to_index)
        halves, timers = HalfClient(to_index, index), TimerClient(to_log, to_index, index)
        make = functools.partial(
            GroupEngine,
            log=log,
            index=index,
            halves=halves,
            timers=timers,
            levels=LevelClient(index),
            shards=ShardClient(self._shards(settings, shell)),
            clock=clock,
            config=config,
        )
        self.owner = JournalOwner(
            log,
            index,
            make,
            clock,
            level_count=len(config.delay_levels_ms()),
            skip_below=config.journal_skip_below,
        )
        self._measuring = LagMetrics(self.owner)
        counters = Counters(self.owner)
        shell.telemetry.observe("group", counters.groups)
        shell.telemetry.observe_each("group_lag", ("group", "topic"), lambda: self._measuring.lags, GroupLag)
        shell.telemetry.observe_each(
            "group_standstill", ("group", "topic", "reason"), lambda: self._measuring.standstills, GroupStandstill
        )
        shell.telemetry.observe_each("group", ("group", "topic"), counters.filters, FilterCount)
        shell.telemetry.observe_each("dead_letter", ("group",), counters.dead_letters, DeadLetterCounters)
        shell.telemetry.observe_durations(
            "settle", (), "Time from the delivery of a message to its acknowledgement.", counters.settle_durations
        )
        shell.telemetry.observe("delay", counters.delays)
        shell.telemetry.observe("delay_level", counters.delay_levels)
        shell.telemetry.observe("transaction", counters.transactions)
        self.server = GrpcServer(
            settings.server,
            errors=ERROR_TABLE,
            telemetry=shell.telemetry,
            request_size_bytes_max=REQUEST_SIZE_BYTES_MAX,
            limits=LIMITS,
        )
        for module, servicer in (
            (dead_letter_service_pb2, DeadLetterServicer(self.owner)),
            (delivery_service_pb2, DeliveryServicer(self.owner, receive_count_max=config.receive_count_max)),
            (group_service_pb2, GroupServicer(self.owner, log, index)),
            (delay_service_pb2, DelayServicer(self.owner, clock.now_ms())),
            (transaction_service_pb2, TransactionServicer(self.owner)),
        ):
            for service in module.DESCRIPTOR.services_by_name.values():
                self.server.add_service(service, servicer)

    def _shards(self, settings: Settings, shell: Shell) -> dict[str, LeaderClient]:
        """Connect to the Deliveries of all shards. Raises ConfigError."""
        config, deliveries = settings.engine, {}
        connect = shell.peer("commitlog", settings.commitlog, settings.server, reconnect_ms_max=config.reconnect_ms_max)
        for name, shard in shards_of(config.shards_file).items():
            members = [connect(target.strip()) for target in shard.delivery.split(",")]
            self._connections += members
            deliveries[name] = LeaderClient(f"delivery of shard {name}", members)
        return deliveries

    def reload(self, settings: Settings) -> None:
        """Take the live settings. The engine reads them at each use, also the engine of a later ownership."""
        take_over(self.config, settings.engine, self.live)

    async def open(self) -> None:
        """Start the owner, which waits for the first call or message, and the measuring of lags."""
        self.owner.start()
        self._measuring.start()

    async def until_connected(self) -> None:
        """Return at once: if another service is unavailable, calls report it, and the start does not wait."""

    async def until_complete(self) -> None:
        """Return at once: calls wait for the replay of the journal."""

    async def drain(self) -> None:
        """End receives that wait, and start no further ownership."""
        await self._measuring.stop()
        await self.owner.stop()

    async def close(self) -> None:
        """Close the channels to the log and the index."""
        await self._measuring.stop()
        await self.owner.stop()
        for connection in self._connections:
            await connection.channel.close()
