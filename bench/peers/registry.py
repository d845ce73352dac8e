# SPDX-License-Identifier: Apache-2.0
"""The measured systems by name. A system's room is imported when it is asked for."""

import importlib

from bench.peers.peer import Peer

ROOMS = {
    "reput": ("reput", "Reput"),
    "rocketmq": ("rocketmq", "RocketMq"),
    "kafka": ("kafka", "Kafka"),
    "nats": ("nats", "Nats"),
    "redis": ("redis", "Redis"),
    "reput-sharing": ("reput", "ReputSharing"),
    "reput-store": ("reput", "ReputStore"),
    "rocketmq-store": ("rocketmq", "RocketMqStore"),
    "reput-3": ("reput", "ReputCluster"),
    "rocketmq-3": ("rocketmq", "RocketMqCluster"),
    "kafka-3": ("kafka", "KafkaCluster"),
    "nats-3": ("nats", "NatsCluster"),
    "reput-go": ("reput", "ReputByGo"),
    "reput-java": ("reput", "ReputByJava"),
    "reput-node": ("reput", "ReputByNode"),
    "nats-node": ("nats", "NatsByNode"),
    "kafka-confluent": ("kafka", "KafkaByConfluent"),
    "kafka-aio": ("kafka", "KafkaByAio"),
    "nats-python": ("nats", "NatsByPython"),
    "reput-grpcio-go": ("reput", "GrpcioByGo"),
    "front-go": ("reput", "FrontByGo"),
    "front-grpcio-go": ("reput", "GrpcioFrontByGo"),
    "gateway": ("gateway", "Gateway"),
    "gateway-empty": ("gateway", "EmptyGateway"),
    "rocketmq-proxy": ("gateway", "Proxy"),
}
"""Name -> module of this package and class, in the order of the report's columns."""


def peer_of(name: str) -> Peer:
    """Return the system with this name."""
    module, class_name = ROOMS[name]
    peer: Peer = getattr(importlib.import_module(f"bench.peers.{module}"), class_name)()
    return peer
