# SPDX-License-Identifier: Apache-2.0
"""The goals as data: a figure, or a figure through another figure of the same rounds, and its bound."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from bench.results import Results, Spread

Cell = tuple[str, str, str]
"""Scenario, system, figure."""
Verdict = Literal["met", "missed", "not measured"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """A bound for a value."""

    sentence: str
    value: Cell
    through: Cell | None = None
    at_least: float | None = None
    at_most: float | None = None

    def __post_init__(self) -> None:
        assert (self.at_least is None) != (self.at_most is None)

    def measured(self, results: Results) -> Spread | None:
        """Return the value over the rounds."""
        return results.spread(*self.value) if self.through is None else results.ratio(self.value, self.through)

    def verdict(self, results: Results) -> Verdict:
        """Return whether the median keeps the bound."""
        spread = self.measured(results)
        if spread is None:
            return "not measured"
        if self.at_least is not None:
            return "met" if spread.median >= self.at_least else "missed"
        assert self.at_most is not None
        return "met" if spread.median <= self.at_most else "missed"

    @property
    def bound(self) -> str:
        """The bound in words."""
        return f"≥ {self.at_least:,g}" if self.at_least is not None else f"≤ {self.at_most:,g}"


NAMES = {
    "reput": "Reput",
    "reput-go": "Reput by Go",
    "reput-sharing": "Reput",
    "reput-3": "Reput",
    "gateway": "the gateway",
    "rocketmq": "RocketMQ",
    "kafka": "Kafka",
    "kafka-confluent": "Kafka by confluent-kafka",
    "nats": "NATS JetStream",
    "redis": "Redis",
    "rocketmq-3": "RocketMQ",
    "kafka-3": "Kafka",
    "nats-3": "NATS JetStream",
    "rocketmq-proxy": "RocketMQ's proxy",
}
"""Systems as the sentences of goals name them."""


def faster(scenario: str, peer: str, factor: float, own: str = "reput") -> Goal:
    """Make a goal of Reput's messages per second through the messages per second of another system."""
    return Goal(
        sentence=f"{scenario}: {NAMES[own]} ÷ {NAMES[peer]}",
        value=(scenario, own, "messages_per_s"),
        through=(scenario, peer, "messages_per_s"),
        at_least=factor,
    )


def calls(
    scenario: str, figure: str, peer: str, *, at_least: float | None = None, at_most: float | None = None
) -> Goal:
    """Make a goal of single calls by a Go client, through another system or front."""
    return Goal(
        sentence=f"{scenario}: {figure} of Reput ÷ {peer}",
        value=(scenario, "reput-go", figure),
        through=(scenario, peer, figure),
        at_least=at_least,
        at_most=at_most,
    )


def keeps_up(scenario: str) -> Goal:
    """Make a goal of the Indexer's rate through the append rate."""
    return Goal(
        sentence=f"{scenario}: indexed ÷ appended messages/s",
        value=(scenario, "reput", "indexed_messages_per_s"),
        through=(scenario, "reput", "messages_per_s"),
        at_least=0.9,
    )


APPENDS = (
    "append-100B",
    "append-1KiB",
    "append-64KiB",
    "append-1KiB-64K",
    "single-16",
    "append-100B-sync",
    "append-1KiB-sync",
    "append-64KiB-sync",
)
RATES: tuple[tuple[str, str, Mapping[str, float]], ...] = (
    *(
        (scenario, "reput", {"kafka": 1.5, "nats": 1.5, "redis": 1.5, "rocketmq": 4})
        for scenario in ("append-100B", "append-1KiB", "append-1KiB-64K")
    ),
    ("append-64KiB", "reput", {"kafka": 1.5, "nats": 1.3, "redis": 1.5, "rocketmq": 4}),
    ("append-100B-sync", "reput", {"kafka": 1.3, "nats": 1.5, "redis": 1.5, "rocketmq": 1.5}),
    *(
        (scenario, "reput", {"kafka": 1.5, "nats": 1.5, "redis": 1.5, "rocketmq": 1.5})
        for scenario in ("append-1KiB-sync", "append-64KiB-sync")
    ),
    ("single-16", "reput", {"kafka": 0.65}),
    ("single-16", "reput-go", {"kafka": 1.3}),
    ("producers-1KiB", "reput", {"kafka-confluent": 1, "kafka": 0.65}),
    ("producers-100B", "reput", {"kafka-confluent": 1, "kafka": 1}),
    ("group-64-sync", "reput", {"rocketmq": 1.5}),
    ("calls-16", "reput-go", {"rocketmq": 3, "kafka": 2}),
    ("calls-64", "reput-go", {"rocketmq": 3, "kafka": 2}),
    ("calls-64-sync", "reput-go", {"rocketmq": 1}),
    ("shared-16", "reput-go", {"nats": 1.2, "redis": 0.8}),
    ("shared-64", "reput-go", {"nats": 1.2, "redis": 0.8}),
    *((scenario, "reput-go", {"kafka": 1.2, "redis": 1.2}) for scenario in ("read-100B", "read-1KiB")),
    *((scenario, "reput", {"kafka": 1, "redis": 1}) for scenario in ("read-100B", "read-1KiB")),
    ("lookup-key", "reput-go", {"rocketmq": 1}),
    ("receive-ack-64", "reput-sharing", {"nats": 1.5}),
    ("receive-ack-512", "reput-sharing", {"nats": 1.5}),
    *(
        (scenario, "reput-3", {"rocketmq-3": 4, "kafka-3": 2, "nats-3": 1.7})
        for scenario in ("replicated", "replicated-sync")
    ),
    *(
        (scenario, "gateway", {"rocketmq-proxy": 2})
        for scenario in ("gateway-send-16", "gateway-send-64", "gateway-receive-16")
    ),
)
"""Scenario, system, and by how much it is to be faster than others: at least ahead, in each row."""
GOALS = (
    *(faster(scenario, peer, factor, own) for scenario, own, peers in RATES for peer, factor in peers.items()),
    Goal(
        sentence="single-16: messages/s through the client's batching",
        value=("single-16", "reput", "messages_per_s"),
        at_least=100_000,
    ),
    Goal(
        sentence="64 callers, synchronous flush: messages/s ÷ those of a bare loop of the same writes and syncs",
        value=("floor-sync-64", "reput", "share_of_bare"),
        at_least=0.8,
    ),
    Goal(
        sentence="1 MiB batches, synchronous flush: messages/s ÷ those of a bare loop of the same writes and syncs",
        value=("floor-sync-1MiB", "reput", "share_of_bare"),
        at_least=0.8,
    ),
    Goal(
        sentence="latency-16: p99 of Reput ÷ p99 of RocketMQ",
        value=("latency-16", "reput", "p99_ms"),
        through=("latency-16", "rocketmq", "p99_ms"),
        at_most=1,
    ),
    Goal(
        sentence="latency-16: p99 of Reput ÷ p99 of an empty handler",
        value=("latency-16", "reput", "p99_ms"),
        through=("floor-unary-16", "reput", "p99_ms"),
        at_most=1.3,
    ),
    *(
        calls(scenario, "messages_per_s", peer, at_least=factor)
        for scenario, peer, factor in (
            ("calls-16", "reput-grpcio-go", 6),
            ("calls-64", "reput-grpcio-go", 8),
            ("calls-64-sync", "reput-grpcio-go", 4),
        )
    ),
    calls("calls-1", "p50_ms", "reput-grpcio-go", at_most=0.4),
    calls("calls-16", "p99_ms", "rocketmq", at_most=1),
    calls("calls-16", "p99_ms", "kafka", at_most=1),
    *(
        Goal(
            sentence=f"{scenario}: Reput ÷ RocketMQ's DefaultMessageStore",
            value=(scenario, "reput-store", "messages_per_s"),
            through=(scenario, "rocketmq-store", "messages_per_s"),
            at_least=0.5,
        )
        for scenario in ("store-100B", "store-1KiB")
    ),
    *(keeps_up(scenario) for scenario in APPENDS),
    Goal(
        sentence="dispatch-lag: p99 in ms at half of the append rate",
        value=("dispatch-lag", "reput", "lag_p99_ms"),
        at_most=20,
    ),
    *(
        Goal(
            sentence=f"{scenario}: p99 in ms of a hot lookup by key",
            value=(scenario, "reput", "key_p99_ms"),
            at_most=2,
        )
        for scenario in ("lookup-1M", "lookup-20M")
    ),
    calls("lookup-key", "p50_ms", "rocketmq", at_most=1),
    calls("lookup-key", "p99_ms", "rocketmq", at_most=0.33),
    Goal(
        sentence="key-walk: a key among 1,000 of a call, in 64 files ÷ in one",
        value=("key-walk-64", "reput", "missed_ns_per_key"),
        through=("key-walk-1", "reput", "missed_ns_per_key"),
        at_most=1.2,
    ),
    Goal(
        sentence="topics-10000: seconds of the Indexer's lag",
        value=("topics-10000", "reput", "many_topics_index_lag_s"),
        at_most=1,
    ),
    Goal(
        sentence="topics-10000: rate ÷ the rate of one topic",
        value=("topics-10000", "reput", "share"),
        at_least=0.9,
    ),
    *(
        Goal(
            sentence=f"{scenario}: p50 in ms of one caller",
            value=(scenario, own, "p50_ms"),
            at_most=0.15,
        )
        for scenario, own in (("latency-1", "reput"), ("calls-1", "reput-go"))
    ),
    Goal(
        sentence="one-replica: messages/s with an asynchronous replica ÷ without",
        value=("one-replica", "reput", "share"),
        at_least=0.7,
    ),
    Goal(
        sentence="one-replica: p99 in ms of how late the replica has a message, at half of what both keep up with",
        value=("one-replica", "reput", "lag_p99_ms"),
        at_most=50,
    ),
    *(
        Goal(
            sentence=f"filter-1M: seconds until a group has the first message that its filter by {name} lets through",
            value=("filter-1M", "reput", f"{figure}_first_s"),
            at_most=2,
        )
        for figure, name in (("tag", "tag"), ("where", "property"))
    ),
    Goal(
        sentence="recovery-scan: GB/s",
        value=("recovery-scan", "reput", "gigabytes_per_s"),
        at_least=1,
    ),
    Goal(
        sentence="recovery-scan: ÷ copying with CRC",
        value=("recovery-scan", "reput", "share_of_copy_with_crc"),
        at_least=0.6,
    ),
)
