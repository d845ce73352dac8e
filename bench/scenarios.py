# SPDX-License-Identifier: Apache-2.0
"""What is measured. A scenario is one function from seconds to figures; each run has a store of its own.

Figures of one run share the machine and the hour, so their ratios mean more than themselves.
"""

import asyncio
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from reput.common.v1 import message_pb2
from reput_client import Client, connect

from bench import batches, load
from bench.batches import Batch
from bench.store import running

MIB = 1 << 20
BATCH_VARIANTS = 8
INDEX_TIMEOUT_S = 120
LOOKUP_COUNT = 300
UNARY_CALLS = 2000

Figures = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A name, a sentence, and how to measure it for some seconds."""

    name: str
    sentence: str
    measure: Callable[[float], Figures]


def append(body_size_bytes: int, batch_size_bytes: int, durability: str) -> Callable[[float], Figures]:
    """Append on one stream while the Indexer follows; then read back."""

    def measure(seconds: float) -> Figures:
        with running() as store, connect(commitlog=store.commitlog, indexer=store.indexer) as client:
            done = asyncio.run(
                load.append_stream(store.commitlog, _batches(body_size_bytes, batch_size_bytes, durability), seconds)
            )
            start_s = time.perf_counter()
            _wait_indexed(client)
            lag_s = time.perf_counter() - start_s
            return {
                "append_messages_per_s": done.messages_per_s,
                "append_megabytes_per_s": done.size_bytes / done.duration_s / 1e6,
                "indexed_messages_per_s": done.message_count / (done.duration_s + lag_s),
                "index_lag_after_append_s": lag_s,
            }

    return measure


def unary(caller_count: int, durability: str) -> Callable[[float], Figures]:
    """One message of 1 KiB per call."""

    def measure(seconds: float) -> Figures:
        del seconds  # a number of calls, not a time: percentiles need the same count in each run
        batch = batches.build(
            body_size_bytes=1024, batch_size_bytes=1, durability=message_pb2.Durability.Value(durability), variant=0
        )
        with running() as store:
            start_s = time.perf_counter()
            latencies = asyncio.run(
                load.append_unary(store.commitlog, batch, caller_count=caller_count, call_count=UNARY_CALLS)
            )
            return {"calls_per_s": len(latencies) / (time.perf_counter() - start_s), **_percentiles(latencies)}

    return measure


def read(seconds: float) -> Figures:
    """Pull a queue and look up keys in a store that was just filled."""
    with running() as store, connect(commitlog=store.commitlog, indexer=store.indexer) as client:
        filling = _batches(1024, MIB, "DURABILITY_MEMORY")
        done = asyncio.run(load.append_stream(store.commitlog, filling, seconds))
        _wait_indexed(client)
        start_s = time.perf_counter()
        pulled = position = 0
        while time.perf_counter() - start_s < seconds:
            result = client.queues.pull(batches.TOPIC, 0, position, count=4096, size_bytes=4 * MIB)
            pulled += len(result.messages)
            position = result.next_queue_offset if result.messages else 0
        pulled_per_s = pulled / (time.perf_counter() - start_s)
        latencies = []
        for number in range(LOOKUP_COUNT):
            start_s = time.perf_counter()
            key = batches.order_key(
                number % BATCH_VARIANTS * batches.VARIANT_STRIDE + number % filling[0].message_count
            )
            assert next(iter(client.query.by_key(batches.TOPIC, key)), None) is not None
            latencies.append(time.perf_counter() - start_s)
        return {"stored_messages": done.message_count, "pull_messages_per_s": pulled_per_s, **_percentiles(latencies)}


SCENARIOS = (
    Scenario(
        "append-1KiB", "1 KiB bodies, 1 MiB batches, MEMORY, Indexer follows", append(1024, MIB, "DURABILITY_MEMORY")
    ),
    Scenario(
        "append-100B", "100 B bodies, 1 MiB batches, MEMORY, Indexer follows", append(100, MIB, "DURABILITY_MEMORY")
    ),
    Scenario("append-1KiB-64K", "1 KiB bodies, 64 KiB batches, MEMORY", append(1024, 1 << 16, "DURABILITY_MEMORY")),
    Scenario("append-1KiB-sync", "1 KiB bodies, 1 MiB batches, LOCAL_DISK", append(1024, MIB, "DURABILITY_LOCAL_DISK")),
    Scenario("unary-16", "one 1 KiB message per call, 16 callers, MEMORY", unary(16, "DURABILITY_MEMORY")),
    Scenario("unary-16-sync", "one 1 KiB message per call, 16 callers, LOCAL_DISK", unary(16, "DURABILITY_LOCAL_DISK")),
    Scenario("read", "pull of 4 MiB, and lookups by key, 1 KiB bodies", read),
)


def _batches(body_size_bytes: int, batch_size_bytes: int, durability: str) -> list[Batch]:
    return [
        batches.build(
            body_size_bytes=body_size_bytes,
            batch_size_bytes=batch_size_bytes,
            durability=message_pb2.Durability.Value(durability),
            variant=variant,
        )
        for variant in range(BATCH_VARIANTS)
    ]


def _wait_indexed(client: Client) -> None:
    end = client.admin.commitlog_status().max_physical_offset
    deadline_s = time.monotonic() + INDEX_TIMEOUT_S
    while client.admin.indexer_status().indexed_physical_offset < end:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"the Indexer did not reach {end} within {INDEX_TIMEOUT_S} s")
        time.sleep(0.01)


def _percentiles(latencies: list[float]) -> Figures:
    cuts = statistics.quantiles(latencies, n=1000)
    return {"p50_ms": cuts[499] * 1e3, "p99_ms": cuts[989] * 1e3}
