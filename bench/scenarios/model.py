# SPDX-License-Identifier: Apache-2.0
"""The types of a measurement, and the groups of systems that measurements are of."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bench.peers.peer import Durability, Operation
from bench.results import Figures

MIB, KIB = 1 << 20, 1 << 10
SYSTEMS = ("reput", "reput-go", "rocketmq", "kafka", "nats", "redis")
"""Systems by the client that each of them has in a compiled language, and Reput also by its client in Python."""
STORES = ("reput-store", "rocketmq-store")
CLUSTERS = ("reput-3", "rocketmq-3", "kafka-3", "nats-3")
FRONTS = ("reput-grpcio-go", "front-go", "front-grpcio-go")
"""Another front of Reput, and fronts without a store."""
COMPILED = ("reput-go", "reput-java", *FRONTS, "rocketmq", "kafka", "nats", "redis")
"""Systems whose clients for single calls are compiled."""
LANGUAGES = (
    *("reput", "kafka-confluent", "kafka-aio", "nats-python"),
    *("reput-go", "nats"),
    *("reput-java", "rocketmq", "kafka"),
    *("reput-node", "nats-node"),
)
"""Systems by language of the client: Python, Go, Java, Node.js."""
SHARED = ("reput", "reput-go", "rocketmq", "kafka", "nats", "redis")
"""Systems whose callers share a connection in the system's best way."""
SHARING = ("reput-sharing", "nats", "redis")
"""Systems whose consumers share messages and acknowledge each of them. RocketMQ's are behind the gateways."""
GATEWAYS = ("gateway", "rocketmq-proxy", "gateway-empty")
"""Servers of RocketMQ 5's protocol, and the first of them without a store."""
SIZES = ("short", "full")

ROUND_COUNT_MAX = 1_000
SHORT_ROUND_COUNT = 3
"""Rounds of the short size."""

Size = Literal["short", "full"]
Table = Literal[
    "append", "latency", "calls", "producers", "read", "lookup",
    "store", "replicated", "gateway", "receive", "inside", "floors",
]  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Load:
    """A load on each of several systems. `fill` runs before it: an append whose figures do not count."""

    operation: Operation
    arguments: Mapping[str, object]
    fill: Mapping[str, object] | None = None
    own_arguments: Mapping[str, object] = field(default_factory=dict)
    """More flags for Reput's load generator."""
    own_fill: Mapping[str, object] = field(default_factory=dict)
    peers: Sequence[str] = SYSTEMS


Measure = Callable[[Path, Durability, float], Figures]
"""Measures something of our own in an empty folder, in a mode, with loads of some seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """A row of the report."""

    name: str
    sentence: str
    table: Table
    mode: Durability
    """The event that acknowledgements wait for, as a setting of the systems and in the load's requests."""
    what: Load | Measure
    round_count_max: int = ROUND_COUNT_MAX
    """Fewer rounds for scenarios that take long."""
    short_round_count_max: int = 0
    """The same in the short size, which does not have it with 0."""
    free_gib_min: int = 5
    """Free disk without which the scenario is skipped."""

    def round_limit(self, size: Size) -> int:
        """Return the most rounds. A scenario that the short size does not have was asked for by name."""
        return (self.short_round_count_max or self.round_count_max) if size == "short" else self.round_count_max

    @property
    def peers(self) -> Sequence[str]:
        """The systems that it measures."""
        return self.what.peers if isinstance(self.what, Load) else ("reput",)
