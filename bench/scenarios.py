# SPDX-License-Identifier: Apache-2.0
"""The measurements as data. A scenario is a load on systems side by side, or a measurement of something of our own.

The words of a load (operation, body, batch, producers, callers, calls) are the words of the load generators' command
line.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from bench.inside import answers, catching_up, filters, floors, growth, kernel, key_walk, lookups, replicas
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


def append(body: int, batch: int, *, producers: int = 1, peers: Sequence[str] = SYSTEMS) -> Load:
    """Make a load of a stream of batches."""
    return Load(
        operation="append",
        arguments={"body": body, "batch": batch, "producers": producers},
        peers=peers,
    )


def latency(callers: int, calls: int, *, peers: Sequence[str] = SYSTEMS, **own: object) -> Load:
    """Make a load of callers that each send a message of 1 KiB and wait for its acknowledgement, again and again."""
    return Load(
        operation="latency",
        arguments={"body": KIB, "callers": callers, "calls": calls},
        own_arguments=own,
        peers=peers,
    )


ACKNOWLEDGED: Mapping[Durability, str] = {"async": "acknowledged from memory", "sync": "acknowledged from the disk"}
SUFFIXES: Mapping[Durability, str] = {"async": "", "sync": "-sync"}
GATEWAY_CALLERS: Sequence[tuple[Durability, int]] = (("async", 1), ("async", 16), ("async", 64), ("sync", 64))
CLIENTS: Mapping[Table, tuple[str, Sequence[str]]] = {
    "latency": (",", SYSTEMS),
    "calls": (", by clients in Go and Java;", COMPILED),
}
"""Whose clients make the calls of a table, in words, and of which systems."""


def _appends(name: str, body: int, batch: int, mode: Durability, *, short_round_count_max: int = 0) -> Scenario:
    """Make a scenario of a stream of batches."""
    return Scenario(
        name=name,
        sentence=f"bodies of {_size(body)}, batches of {_size(batch)}, one producer, {ACKNOWLEDGED[mode]}",
        table="append",
        mode=mode,
        what=append(body, batch),
        short_round_count_max=short_round_count_max,
    )


def _producers(body: int, *, short_round_count_max: int = 0) -> Scenario:
    """Make a scenario of a program that sends single messages, by the clients of each language."""
    return Scenario(
        name=f"producers-{_size(body).replace(' ', '')}",
        sentence=f"one program sends single messages of {_size(body)}; batches of up to 512 KiB are the client's work",
        table="producers",
        mode="async",
        what=Load(
            operation="append",
            arguments={"body": body, "batch": 512 * KIB, "producers": 1},
            own_arguments={"through": "producer"},
            peers=LANGUAGES,
        ),
        short_round_count_max=short_round_count_max,
    )


def _calls(table: Table, callers: int, calls: int, mode: Durability, *, short_round_count_max: int = 0) -> Scenario:
    """Make a scenario of callers that wait for each of their answers."""
    by, peers = CLIENTS[table]
    count = "one caller" if callers == 1 else f"{callers} callers"
    return Scenario(
        name=f"{table}-{callers}" + SUFFIXES[mode],
        sentence=f"{count}, 1 KiB per call{by} {ACKNOWLEDGED[mode]}",
        table=table,
        mode=mode,
        what=latency(callers, calls, peers=peers),
        short_round_count_max=short_round_count_max,
    )


def _shared(callers: int, calls: int, mode: Durability, *, short_round_count_max: int = 0) -> Scenario:
    """Make a scenario of callers that wait for each message, and share a connection in each system's best way."""
    return Scenario(
        name=f"shared-{callers}" + SUFFIXES[mode],
        sentence=f"{callers} callers, each waits for its message of 1 KiB; they share connections in the "
        f"system's best way, Reput's the producer; {ACKNOWLEDGED[mode]}",
        table="latency",
        mode=mode,
        what=latency(callers, calls, peers=SHARED, through="producer"),
        short_round_count_max=short_round_count_max,
    )


def _size(size_bytes: int) -> str:
    if size_bytes < KIB:
        return f"{size_bytes} B"
    return f"{size_bytes // MIB} MiB" if size_bytes >= MIB else f"{size_bytes // KIB} KiB"


PEER_SCENARIOS = (
    _appends("append-100B", 100, MIB, "async"),
    _appends("append-1KiB", KIB, MIB, "async", short_round_count_max=SHORT_ROUND_COUNT),
    _appends("append-64KiB", 64 * KIB, MIB, "async"),
    _appends("append-1KiB-64K", KIB, 64 * KIB, "async"),
    Scenario(
        name="single-16",
        sentence="bodies of 1 KiB, 16 callers send single messages; batches of up to 512 KiB are the client's work",
        table="append",
        mode="async",
        what=Load(
            operation="append",
            arguments={"body": KIB, "batch": 512 * KIB, "producers": 16},
            own_arguments={"through": "producer"},
        ),
    ),
    _producers(100),
    _producers(KIB),
    _appends("append-100B-sync", 100, MIB, "sync"),
    _appends("append-1KiB-sync", KIB, MIB, "sync"),
    _appends("append-64KiB-sync", 64 * KIB, MIB, "sync"),
    _calls("latency", 1, 2_000, "async"),
    _calls("latency", 16, 6_400, "async", short_round_count_max=SHORT_ROUND_COUNT),
    _calls("latency", 64, 12_800, "async"),
    _calls("latency", 1, 1_000, "sync"),
    _calls("latency", 16, 4_800, "sync"),
    _calls("latency", 64, 6_400, "sync"),
    _calls("calls", 1, 4_000, "async"),
    _calls("calls", 16, 16_000, "async", short_round_count_max=SHORT_ROUND_COUNT),
    _calls("calls", 64, 32_000, "async"),
    _calls("calls", 64, 16_000, "sync"),
    _shared(16, 32_000, "async"),
    _shared(64, 64_000, "async", short_round_count_max=SHORT_ROUND_COUNT),
    Scenario(
        name="group-64-sync",
        sentence="as latency-64-sync; Reput's callers share the client's batching producer",
        table="latency",
        mode="sync",
        what=latency(64, 6_400, peers=("reput", "rocketmq"), **{"through": "producer", "linger-ms": 0}),
        short_round_count_max=SHORT_ROUND_COUNT,
    ),
    Scenario(
        name="read-1KiB",
        sentence="reads back, from the beginning, what was appended with bodies of 1 KiB",
        table="read",
        mode="async",
        what=Load(
            operation="read",
            arguments={},
            fill={"body": KIB, "batch": MIB, "producers": 1},
        ),
    ),
    Scenario(
        name="lookup-key",
        sentence="one message by its key, of those that were appended with bodies of 100 B",
        table="lookup",
        mode="async",
        what=Load(
            operation="lookup",
            arguments={"calls": 1_000, "callers": 1},
            fill={"body": 100, "batch": MIB, "producers": 1},
            own_fill={"keys": "distinct"},
            peers=("reput", "reput-go", "rocketmq"),
        ),
    ),
    Scenario(
        name="replicated",
        sentence="append-1KiB with three replicas, acknowledged by all that keep up; Reput's from their disks",
        table="replicated",
        mode="async",
        what=append(KIB, MIB, peers=CLUSTERS),
    ),
    Scenario(
        name="replicated-sync",
        sentence="the same, acknowledged from the disks of those that acknowledge",
        table="replicated",
        mode="sync",
        what=append(KIB, MIB, peers=CLUSTERS),
    ),
    *(
        Scenario(
            name=f"gateway-send-{callers}" + SUFFIXES[mode],
            sentence=f"{callers} callers, 1 KiB per call, by RocketMQ 5's client for Java; {ACKNOWLEDGED[mode]}",
            table="gateway",
            mode=mode,
            what=latency(callers, 500 * callers, peers=GATEWAYS),
        )
        for mode, callers in GATEWAY_CALLERS
    ),
    *(
        Scenario(
            name=f"gateway-receive-{callers}",
            sentence=f"{callers} callers of one group receive 32 messages of 1 KiB at once, and acknowledge each",
            table="gateway",
            mode="async",
            what=Load(
                operation="receive",
                arguments={"body": KIB, "callers": callers},
                fill={"body": KIB, "producers": 4, "times": 8},
                peers=("gateway", "rocketmq-proxy"),
            ),
        )
        for callers in (1, 16)
    ),
    *(
        Scenario(
            name=f"receive-ack-{callers}",
            sentence=f"a group with {callers} messages of 1 KiB in work at once, each acknowledged by itself",
            table="receive",
            mode="async",
            what=Load(
                operation="receive",
                arguments={"body": KIB, "callers": callers},
                fill={"body": KIB, "batch": MIB, "producers": 1},
                peers=SHARING,
            ),
        )
        for callers in (64, 512)
    ),
    Scenario(
        name="store-100B",
        sentence="the store in one process with its load: bodies of 100 B, batches of 1 MiB",
        table="store",
        mode="async",
        what=append(100, MIB, peers=STORES),
    ),
    Scenario(
        name="store-1KiB",
        sentence="the store in one process with its load: bodies of 1 KiB, batches of 1 MiB",
        table="store",
        mode="async",
        what=append(KIB, MIB, peers=STORES),
    ),
    Scenario(
        name="store-1KiB-sync",
        sentence="the same with synchronous flushing",
        table="store",
        mode="sync",
        what=append(KIB, MIB, peers=STORES),
    ),
)

OWN_SCENARIOS = (
    Scenario(
        name="one-replica",
        sentence="append-1KiB with one asynchronous replica beside the same without, and how late the replica has "
        "messages while half of the rate that both keep up with goes on",
        table="inside",
        mode="async",
        what=replicas.one_replica,
        short_round_count_max=1,
    ),
    Scenario(
        name="dispatch-lag",
        sentence="from the acknowledgement of a message to its answer from Pull, while half of the append rate goes on",
        table="inside",
        mode="async",
        what=catching_up.dispatch_lag,
        short_round_count_max=1,
    ),
    Scenario(
        name="lookup-1M",
        sentence="lookups by key and by time in 1 M messages, from memory and after the page cache was dropped",
        table="inside",
        mode="async",
        what=lookups.lookups(1_000_000),
        round_count_max=3,
    ),
    Scenario(
        name="lookup-20M",
        sentence="the same in 20 M messages",
        table="inside",
        mode="async",
        what=lookups.lookups(20_000_000),
        round_count_max=1,
        free_gib_min=16,
    ),
    Scenario(
        name="filter-1M",
        sentence="a new group has a filter by tag or by property that lets the last 1,000 of 1 M messages through",
        table="inside",
        mode="async",
        what=filters.rare(1_000_000),
        round_count_max=3,
    ),
    Scenario(
        name="recovery-scan",
        sentence="a start that scans all of a log of 2 GiB with its checksums, because the snapshot is gone",
        table="inside",
        mode="async",
        what=catching_up.recovery_scan,
        round_count_max=3,
    ),
    Scenario(
        name="index-rebuild",
        sentence="all indexes of 1 M messages dropped and built again from the log, by the running Indexer",
        table="inside",
        mode="async",
        what=catching_up.index_rebuild,
        round_count_max=3,
    ),
    Scenario(
        name="topics-10000",
        sentence="append of 1 KiB in batches of 1 MiB to 10,000 topics of 4 queues each, beside the same to one",
        table="inside",
        mode="async",
        what=growth.many_topics,
        round_count_max=3,
        free_gib_min=8,
    ),
    Scenario(
        name="start-50GiB",
        sentence="start of a store of 50 GiB after a clean stop, and lookups in it",
        table="inside",
        mode="async",
        what=growth.large_start,
        round_count_max=1,
        free_gib_min=70,
    ),
    Scenario(
        name="floor-unary-1",
        sentence="latency-1 against a server of the same build that answers at once and does nothing",
        table="floors",
        mode="async",
        what=floors.unary(1, 2_000),
    ),
    Scenario(
        name="floor-unary-16",
        sentence="latency-16 against the same",
        table="floors",
        mode="async",
        what=floors.unary(16, 6_400),
        short_round_count_max=SHORT_ROUND_COUNT,
    ),
    Scenario(
        name="floor-unary-64",
        sentence="latency-64 against the same",
        table="floors",
        mode="async",
        what=floors.unary(64, 12_800),
    ),
    Scenario(
        name="floor-sync-64",
        sentence="group-64-sync with the messages per sync counted, then a bare loop of such writes and fdatasync",
        table="floors",
        mode="sync",
        what=floors.sync(
            "latency", {"body": KIB, "callers": 64, "calls": 6_400, "through": "producer", "linger-ms": 0}
        ),
        short_round_count_max=1,
    ),
    Scenario(
        name="floor-sync-1MiB",
        sentence="append-1KiB-sync with the messages per sync counted, then a bare loop of such writes and fdatasync",
        table="floors",
        mode="sync",
        what=floors.sync("append", {"body": KIB, "batch": MIB, "producers": 1}),
    ),
    Scenario(
        name="kernel-100B",
        sentence="append and scan of bodies of 100 B in memory, beside copying the same bytes",
        table="floors",
        mode="async",
        what=kernel.kernel(100),
    ),
    Scenario(
        name="kernel-1KiB",
        sentence="append and scan of bodies of 1 KiB in memory, beside copying the same bytes",
        table="floors",
        mode="async",
        what=kernel.kernel(KIB),
        short_round_count_max=1,
    ),
    Scenario(
        name="answer-100B",
        sentence="the Indexer's answer to a pull of bodies of 100 B in memory, as messages and as records",
        table="floors",
        mode="async",
        what=answers.answers(100),
    ),
    Scenario(
        name="answer-1KiB",
        sentence="the Indexer's answer to a pull of bodies of 1 KiB in memory, as messages and as records",
        table="floors",
        mode="async",
        what=answers.answers(KIB),
        short_round_count_max=1,
    ),
    Scenario(
        name="key-walk-1",
        sentence="the Indexer's search for 1,000 keys in a call and for each alone, in an index file of a million keys",
        table="floors",
        mode="async",
        what=key_walk.key_walk(1),
    ),
    Scenario(
        name="key-walk-64",
        sentence="the same in 64 index files",
        table="floors",
        mode="async",
        what=key_walk.key_walk(64),
    ),
)

SCENARIOS = (*PEER_SCENARIOS, *OWN_SCENARIOS)


def of_size(size: Size) -> list[Scenario]:
    """Return the scenarios of a size."""
    return [scenario for scenario in SCENARIOS if size == "full" or scenario.short_round_count_max]
