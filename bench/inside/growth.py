# SPDX-License-Identifier: Apache-2.0
"""Costs that should not grow: appends with the number of topics, starts and lookups with the store's size.

`python -m bench.inside.growth` measures the cost of a record among 2,000 queues in the Indexer's engine (many_queues).
"""

import asyncio
import tempfile
import time
from pathlib import Path

import numpy as np

from bench.inside import filling, lookups
from bench.peers.peer import Durability
from bench.results import Figures
from bench.store import running
from libs.formats.records.dispatch_columns import DispatchBatch
from libs.formats.state.index_progress import IndexProgress
from libs.machine.posix_fs import PosixFs
from services.indexer.engine.follow.flush import sync_all
from services.indexer.engine.tables.queues import ConsumeQueueTable
from services.indexer.errors import SyncNeeded

TOPIC_COUNT = 10_000
QUEUE_FILE_SIZE_BYTES = 20_000
BODY_SIZE_BYTES = 1_024
LARGE_MESSAGE_COUNT = 43_000_000
"""About 50 GiB of records."""
ENGINE_QUEUE_COUNT = 2_000
ENGINE_RECORD_SIZE_BYTES = 200
ENGINE_RECORD_COUNT = 65_536
ENGINE_BATCH_RECORD_COUNT = 8_192
"""The default of `dispatch_record_count_max`."""
ROOMY_FILE_COUNT, NARROW_FILE_COUNT = 43_008, 1_000
"""The default of `queue_mapped_file_count_max`, and half of the queues."""


def many_topics(folder: Path, mode: Durability, seconds: float) -> Figures:
    """Append the same to many topics and to a single topic, each time in an own store that has the queues already.

    Files of queues are small here: 40,000 of the usual size would need 240 GB at once.
    """
    figures = {}
    for name, topic_count in (("one_topic", 1), ("many_topics", TOPIC_COUNT)):
        (folder / name).mkdir()
        settings = {
            "REPUT_INDEXER_QUEUE_FILE_SIZE_BYTES": str(QUEUE_FILE_SIZE_BYTES),
            "REPUT_COMMITLOG_NEW_QUEUES_PER_S_MAX": "0",  # all queues begin at once
        }
        with running(folder / name, mode, **settings) as store:
            words = {"body": BODY_SIZE_BYTES, "seconds": 0, "topics": topic_count, "indexer": store.indexer}
            making = filling.load(store, "append", words)
            done = filling.load(store, "append", words | {"seconds": seconds})
        figures[f"{name}_made_s"] = filling.number(making, "index_lag_s")
        figures[f"{name}_messages_per_s"] = filling.rate(done)
        figures[f"{name}_index_lag_s"] = filling.number(done, "index_lag_s")
    return figures | {"share": figures["many_topics_messages_per_s"] / figures["one_topic_messages_per_s"]}


def large_start(folder: Path, mode: Durability, seconds: float) -> Figures:
    """Fill 50 GiB, stop in order, start, and look up hot and cold."""
    del seconds
    with running(folder, mode) as store:
        empty_s = store.start_to_serving_s
        stored_count, filled_per_s = filling.fill(
            store, message_count=LARGE_MESSAGE_COUNT, body_size_bytes=BODY_SIZE_BYTES
        )
    filling.drop_page_cache(folder)
    with running(folder, mode) as store:
        started_s = store.start_to_serving_s
        figures = lookups.cold(store, stored_count) | lookups.hot(store, stored_count)
    return {
        "start_to_serving_s": started_s,
        "start_of_empty_store_s": empty_s,
        "indexed_messages_per_s": filled_per_s,
        **figures,
    }


def many_queues(folder: Path) -> Figures:
    """Enter records into the queues of the engine alone, with and without room to keep each queue's file mapped.

    In this process, over files in the given folder: processor time, so that a busy machine changes little.
    """
    figures = {}
    for name, mapped_file_count_max in (("roomy", ROOMY_FILE_COUNT), ("narrow", NARROW_FILE_COUNT)):
        cpu_s, sync_count = asyncio.run(_enter_all(folder / name, mapped_file_count_max))
        figures[f"{name}_us_per_record"] = cpu_s / ENGINE_RECORD_COUNT * 1e6
        figures[f"{name}_sync_count"] = sync_count
    return figures | {"ratio": figures["narrow_us_per_record"] / figures["roomy_us_per_record"]}


async def _enter_all(directory: Path, mapped_file_count_max: int) -> tuple[float, int]:
    """Enter all records into new queues. Returns the processor time behind the first batches, and the forced syncs."""
    table = ConsumeQueueTable(
        PosixFs(), directory, file_size_bytes=QUEUE_FILE_SIZE_BYTES, mapped_file_count_max=mapped_file_count_max
    )
    table.load(IndexProgress(queue_end_sum=0))
    names = [(f"topic-{number}", number % 4) for number in range(ENGINE_QUEUE_COUNT)]
    await _enter(table, _batch(names, 0, ENGINE_QUEUE_COUNT))
    begun_s, sync_count = time.process_time(), 0
    for start in range(ENGINE_QUEUE_COUNT, ENGINE_QUEUE_COUNT + ENGINE_RECORD_COUNT, ENGINE_BATCH_RECORD_COUNT):
        sync_count += await _enter(table, _batch(names, start, ENGINE_BATCH_RECORD_COUNT))
    await _sync(table)
    return time.process_time() - begun_s, sync_count


def _batch(names: list[tuple[str, int]], start: int, count: int) -> DispatchBatch:
    """Return a batch of consecutive records, each for the next queue in turn."""
    numbers = np.arange(start, start + count)
    return DispatchBatch(
        start_physical_offset=start * ENGINE_RECORD_SIZE_BYTES,
        end_physical_offset=(start + count) * ENGINE_RECORD_SIZE_BYTES,
        queues=names,
        physical_offsets=numbers * ENGINE_RECORD_SIZE_BYTES,
        record_sizes=np.full(count, ENGINE_RECORD_SIZE_BYTES, np.int32),
        queue_indexes=(numbers % len(names)).astype(np.int32),
        queue_offsets=numbers // len(names),
        tags_codes=np.zeros(count, np.int64),
        store_times_ms=numbers,
        key_counts=np.zeros(count, np.int32),
        key_hashes=np.zeros(0, np.int32),
    )


async def _enter(table: ConsumeQueueTable, batch: DispatchBatch) -> int:
    """Enter a batch as ReputLoop does. Returns the number of syncs that it needed."""
    sync_count = 0
    await table.prepare(batch)
    while True:
        try:
            table.append(batch)
        except SyncNeeded:
            await _sync(table)
            sync_count += 1
        else:
            return sync_count


async def _sync(table: ConsumeQueueTable) -> None:
    await sync_all(table.begin_sync(0), [])
    table.end_sync()


def main() -> None:
    """Print the figures of `many_queues`."""
    with tempfile.TemporaryDirectory() as folder:
        for name, figure in many_queues(Path(folder)).items():
            print(f"{name:22} {figure:10.1f}")


if __name__ == "__main__":
    main()
