# SPDX-License-Identifier: Apache-2.0
"""The store behind the gateway, from the settings, or the shards of a file. For the bootstrap only."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from libs.machine.clock import Clock
from libs.runtime.peer.leader import LeaderClient
from libs.runtime.settings import PeerConfig
from libs.shards.shards_file import Shard
from services.gateway.config import GatewayConfig
from services.gateway.engine.shards.traffic import ShardTraffic
from services.gateway.rpc.store.delivery_client import DeliveryClient
from services.gateway.rpc.store.log_client import LogClient
from services.gateway.rpc.store.ports import Deliveries, Log
from services.gateway.rpc.store.shards.sharded_delivery import ShardedDelivery
from services.gateway.rpc.store.shards.sharded_log import ShardedLog

Lead = Callable[[str, PeerConfig, str], LeaderClient]
"""Connects to the members of a service, by the prefix of its settings, its settings, and its name in errors."""

SERVICES = ("commitlog", "indexer", "delivery", "janitor")


def at_shard(peers: Mapping[str, PeerConfig], shard: Shard) -> Mapping[str, PeerConfig]:
    """Return the settings of the services of a shard: as for a single store, with the shard's addresses."""
    return {name: replace(peer, target=getattr(shard, name)) for name, peer in peers.items()}


def open_store(
    peers: Mapping[str, PeerConfig],
    shards: Mapping[str, Shard],
    config: GatewayConfig,
    lead: Lead,
    traffic: ShardTraffic,
    clock: Clock,
) -> tuple[Log, Deliveries]:
    """Return the clients of the store, or of all shards. Raises ConfigError."""
    if not shards:
        log = lead("commitlog", peers["commitlog"], "commitlog")
        delivery = lead("delivery", peers["delivery"], "delivery")
        client = LogClient(log, clock, creates_topics=config.auto_create_topics, is_once=config.once)
        return client, DeliveryClient(delivery)
    logs, deliveries = {}, {}
    for name, shard in shards.items():
        own = at_shard(peers, shard)
        log = lead("commitlog", own["commitlog"], f"commitlog of shard {name}")
        logs[name] = LogClient(log, clock, creates_topics=False, is_once=config.once)
        deliveries[name] = DeliveryClient(lead("delivery", own["delivery"], f"delivery of shard {name}"))
    sharded = ShardedLog(
        logs,
        traffic,
        clock,
        creates_topics=config.auto_create_topics,
        new_topics_at=[name for name, shard in shards.items() if shard.takes_topics],
        is_once=config.once,
    )
    return sharded, ShardedDelivery(deliveries, clock)
