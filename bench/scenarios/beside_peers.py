# SPDX-License-Identifier: Apache-2.0
"""The loads on systems side by side. A scenario here is a row with a column for each system."""

from collections.abc import Mapping, Sequence

from bench.peers.peer import Durability
from bench.scenarios.model import (
    CLUSTERS,
    COMPILED,
    GATEWAYS,
    KIB,
    LANGUAGES,
    MIB,
    SHARED,
    SHARING,
    SHORT_ROUND_COUNT,
    STORES,
    SYSTEMS,
    Load,
    Scenario,
    Table,
)


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
    *(
        Scenario(
            name=f"read-{_size(body).replace(' ', '')}",
            sentence=f"reads back, from the beginning, what was appended with bodies of {_size(body)}",
            table="read",
            mode="async",
            what=Load(
                operation="read",
                arguments={},
                fill={"body": body, "batch": MIB, "producers": 1},
            ),
        )
        for body in (100, KIB)
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
