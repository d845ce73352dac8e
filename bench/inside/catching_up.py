# SPDX-License-Identifier: Apache-2.0
"""How quickly appended messages can be read, scanned and indexed again."""

import asyncio
import time
from pathlib import Path

import uvloop
from reput_client import connect
from reput_client.aio import AsyncClient
from reput_client.aio import connect as connect_async

from bench.inside import filling
from bench.inside.kernel import copy_with_crc_gigabytes_per_s
from bench.load.timing import percentiles_ms
from bench.peers.peer import Durability
from bench.results import Figures
from bench.store import Store, running
from libs.runtime.trust.tokens import find_local_token

PROBE_TOPIC = "probe"
PROBE_INTERVAL_S = 0.004
PROBE_WAIT_S = 10.0
BACKGROUND_WARM_UP_S = 2.5
BODY_SIZE_BYTES = 1_024
SCAN_MESSAGE_COUNT = 1_750_000
"""About 2 GiB of records."""
REBUILD_MESSAGE_COUNT = 1_000_000
SNAPSHOT = Path("store") / "reput" / "queue_offsets"


def dispatch_lag(folder: Path, mode: Durability, seconds: float) -> Figures:
    """Find the append rate, then send half of it and watch when single messages between it become visible."""
    with running(folder, mode) as store:
        words = {"body": BODY_SIZE_BYTES, "batch": 1 << 18, "seconds": seconds, "indexer": store.indexer}
        full_per_s = filling.rate(filling.load(store, "append", words))
        background = filling.background_load(
            store,
            messages_per_s=full_per_s / 2,
            body_size_bytes=BODY_SIZE_BYTES,
            seconds=seconds + BACKGROUND_WARM_UP_S,
        )
        try:
            time.sleep(BACKGROUND_WARM_UP_S)
            lags_s = uvloop.run(_probe(store, seconds))
        finally:
            background_per_s = filling.finished(background)
    percentiles = percentiles_ms(lags_s)
    return {
        "lag_p50_ms": percentiles["p50"],
        "lag_p99_ms": percentiles["p99"],
        "probes": len(lags_s),
        "background_messages_per_s": background_per_s,
        "background_share": background_per_s / full_per_s,
    }


async def _probe(store: Store, seconds: float) -> list[float]:
    """Return times from acknowledgement to visibility. A consumer waits for each message before it is sent."""
    lags_s = []
    async with connect_async(commitlog=store.commitlog, indexer=store.indexer) as client:
        producer = client.producer()
        await (await producer.send(PROBE_TOPIC, b"first", queue_id=0))
        await producer.flush()
        position = await _visible_end(client)
        until_s = time.perf_counter() + seconds
        while time.perf_counter() < until_s:
            visible = asyncio.create_task(_visible_at(client, position))
            await asyncio.sleep(PROBE_INTERVAL_S)
            await producer.send(PROBE_TOPIC, b"probe", queue_id=0)
            await producer.flush()
            acknowledged_s = time.perf_counter()
            lags_s.append(max(0.0, await visible - acknowledged_s))
            position += 1
    return lags_s


async def _visible_end(client: AsyncClient) -> int:
    result = await client.queues.pull(PROBE_TOPIC, 0, 0, wait_s=PROBE_WAIT_S)
    return result.next_queue_offset


async def _visible_at(client: AsyncClient, queue_offset: int) -> float:
    """Return the moment when Pull answers the message at a queue offset."""
    result = await client.queues.pull(PROBE_TOPIC, 0, queue_offset, wait_s=PROBE_WAIT_S)
    assert result.messages, f"nothing at queue offset {queue_offset} within {PROBE_WAIT_S} s"
    return time.perf_counter()


def recovery_scan(folder: Path, mode: Durability, seconds: float) -> Figures:
    """Fill a log, stop in order, remove the snapshot of the queue offsets: the start scans everything."""
    del seconds
    with running(folder, mode) as store:
        filling.fill(store, message_count=SCAN_MESSAGE_COUNT, body_size_bytes=BODY_SIZE_BYTES)
    (folder / SNAPSHOT).unlink()
    with running(folder, mode) as store, connect(commitlog=store.commitlog) as client:
        status = client.admin.commitlog_status()
    scanned_bytes, duration_s = status.recovery_progress.scanned_bytes, status.recovery.duration_ms / 1e3
    assert status.recovery.scanned_record_count >= SCAN_MESSAGE_COUNT
    floor = copy_with_crc_gigabytes_per_s()
    return {
        "gigabytes_per_s": scanned_bytes / duration_s / 1e9,
        "messages_per_s": status.recovery.scanned_record_count / duration_s,
        "copy_with_crc_gigabytes_per_s": floor,
        "share_of_copy_with_crc": scanned_bytes / duration_s / 1e9 / floor,
    }


def index_rebuild(folder: Path, mode: Durability, seconds: float) -> Figures:
    """Fill a log, have the running Indexer build everything anew."""
    del seconds
    with running(folder, mode) as store:
        count, _ = filling.fill(store, message_count=REBUILD_MESSAGE_COUNT, body_size_bytes=100)
        with connect(indexer=store.indexer, token=find_local_token([store.indexer])) as client:
            start_s = time.perf_counter()
            for state in client.admin.rebuild_indexes():
                last = state
            duration_s = time.perf_counter() - start_s
    assert last.is_done
    assert last.applied_record_count == count
    return {
        "messages_per_s": count / duration_s,
        "megabytes_per_s": last.rebuilt_physical_offset / duration_s / 1e6,
    }
