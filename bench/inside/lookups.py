# SPDX-License-Identifier: Apache-2.0
"""Lookups by key and by time in a store of known size, from memory and from the disk."""

import random
import time
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path

from reput_client import Client, connect

from bench import batches
from bench.inside import filling
from bench.load import reading
from bench.load.timing import percentiles_ms
from bench.peers.peer import Durability
from bench.results import Figures
from bench.store import Store, running

BODY_SIZE_BYTES = 100
HOT_CALL_COUNT = 2_000
COLD_CALL_COUNT = 300
WARM_UP_CALL_COUNT = 200
MANY_CALL_COUNT, KEY_COUNT = 50, 1_000
SEED = 7


def lookups(message_count: int) -> Callable[[Path, Durability, float], Figures]:
    """Fill a store with so many messages, then look up."""

    def measure(folder: Path, mode: Durability, seconds: float) -> Figures:
        del seconds  # numbers of calls, not a time: percentiles need the same count in each run
        with running(folder, mode) as store:
            stored_count, filled_per_s = filling.fill(
                store, message_count=message_count, body_size_bytes=BODY_SIZE_BYTES
            )
            figures = {"indexed_messages_per_s": filled_per_s, **hot(store, stored_count)}
        filling.drop_page_cache(folder)
        with running(folder, mode) as store:
            return figures | cold(store, stored_count)

    return measure


def hot(store: Store, stored_count: int) -> dict[str, float]:
    """Look up from memory: keys, queue offsets by time, and pages of messages by time."""
    reading.look_up(store.indexer, call_count=WARM_UP_CALL_COUNT, message_count=stored_count)
    done = reading.look_up(store.indexer, call_count=HOT_CALL_COUNT, message_count=stored_count)
    figures = {"key_per_s": done.messages_per_s, **named("key", percentiles_ms(done.latencies_s))}
    with connect(indexer=store.indexer) as client:
        figures["many_keys_per_s"] = many_keys_per_s(client, stored_count)
        figures |= named("time", offsets_by_time(client, HOT_CALL_COUNT))
        figures |= named("time_page", pages_by_time(client, HOT_CALL_COUNT // 10))
    return figures


def many_keys_per_s(client: Client, stored_count: int) -> float:
    """Look up keys by chance, KEY_COUNT of them in a call. Returns the keys per second."""
    chance = random.Random(SEED)
    start_s = time.perf_counter()
    for _ in range(MANY_CALL_COUNT):
        keys = [batches.order_key(chance.randrange(stored_count)) for _ in range(KEY_COUNT)]
        found = list(client.query.by_keys(batches.TOPIC, keys))
        assert all(len(one.messages) == 1 for one in found)
    return MANY_CALL_COUNT * KEY_COUNT / (time.perf_counter() - start_s)


def cold(store: Store, stored_count: int) -> dict[str, float]:
    """Look up keys from the disk: bytes that the start has read are forgotten, and no key was looked up before."""
    filling.drop_page_cache(store.folder)
    done = reading.look_up(store.indexer, call_count=COLD_CALL_COUNT, message_count=stored_count)
    return named("key_cold", percentiles_ms(done.latencies_s))


def offsets_by_time(client: Client, call_count: int) -> dict[str, float]:
    """Ask which queue offset a time has, for times by chance within the queue."""
    latencies_s = []
    for moment in _moments(client, call_count):
        start_s = time.perf_counter()
        client.queues.offset_by_time(batches.TOPIC, 0, moment)
        latencies_s.append(time.perf_counter() - start_s)
    return percentiles_ms(latencies_s)


def pages_by_time(client: Client, call_count: int) -> dict[str, float]:
    """Read the first 32 messages of a queue from a time on, for times by chance."""
    latencies_s = []
    for moment in _moments(client, call_count):
        start_s = time.perf_counter()
        next(client.query.by_time(batches.TOPIC, queue_id=0, start=moment, page_size=32), None)
        latencies_s.append(time.perf_counter() - start_s)
    return percentiles_ms(latencies_s)


def named(prefix: str, percentiles: dict[str, float]) -> dict[str, float]:
    """Return p50 and p99 as figures."""
    return {f"{prefix}_{name}_ms": percentiles[name] for name in ("p50", "p99")}


def _moments(client: Client, count: int) -> list[datetime]:
    queue = client.queues.range(batches.TOPIC, 0)
    first, last = queue.first_store_time, queue.last_store_time
    assert first is not None
    assert last is not None
    span_s = (last - first).total_seconds()
    chance = random.Random(SEED)
    return [first + timedelta(seconds=chance.uniform(0, span_s)) for _ in range(count)]
