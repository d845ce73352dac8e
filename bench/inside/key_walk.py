# SPDX-License-Identifier: Apache-2.0
"""Processor time of the search for keys in index files, without records: for 1,000 keys in a call, and for one."""

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from bench import batches
from bench.inside.kernel import STORE_TIME_MS, best_s
from bench.peers.peer import Durability
from bench.results import Figures
from libs.formats.records.dispatch_columns import DispatchBatch
from libs.formats.state.index_progress import IndexProgress
from libs.machine.clock import SystemClock
from libs.machine.posix_fs import PosixFs
from services.indexer.engine.answer.many_keys import ROOM
from services.indexer.engine.tables.index import IndexTable
from services.indexer.engine.upkeep.filter_loop import FilterLoop

STORED_KEY_COUNT = 1_000_000
CALL_KEY_COUNT = 1_000
BATCH_KEY_COUNT = 10_000
RECORD_SIZE_BYTES = 300
TIME_MAX_MS = 2**62
SEED = 7


def key_walk(file_count: int) -> Callable[[Path, Durability, float], Figures]:
    """Enter a million keys into so many index files, and search for keys that are there, and for others."""

    def measure(folder: Path, mode: Durability, seconds: float) -> Figures:
        del mode, seconds  # no log, and as long as it takes to be steady
        table = filled(folder / "index", file_count)
        chance = random.Random(SEED)
        stored = [batches.order_key(chance.randrange(STORED_KEY_COUNT)) for _ in range(CALL_KEY_COUNT)]
        others = [f"none-{number}" for number in range(CALL_KEY_COUNT)]
        figures = {"files": float(table.file_count)}
        for name, keys in (("found", stored), ("missed", others)):
            hashes = table.hashes(batches.TOPIC, [key.encode() for key in keys])
            figures[f"{name}_ns_per_key"] = best_s(lambda: many(table, hashes)) / CALL_KEY_COUNT * 1e9  # noqa: B023 - called at once
            figures[f"{name}_alone_us"] = best_s(lambda: alone(table, hashes)) / CALL_KEY_COUNT * 1e6  # noqa: B023 - called at once
        table.close()
        return figures

    return measure


def filled(directory: Path, file_count: int) -> IndexTable:
    """Return a table of so many files, of RocketMQ's proportions, in which all keys are entered.

    All files but the newest are finished and have filters.
    """
    capacity = -(-STORED_KEY_COUNT // file_count) + 1
    slot_count = capacity // 4 + 1  # not a multiple of 31, the factor of Java's hash
    table = IndexTable(PosixFs(), directory, SystemClock(), slot_count=slot_count, entry_capacity=capacity)
    table.load(IndexProgress())
    for first in range(0, STORED_KEY_COUNT, BATCH_KEY_COUNT):
        numbers = np.arange(first, first + BATCH_KEY_COUNT, dtype=np.int64)
        keys = [batches.order_key(number).encode() for number in numbers.tolist()]
        table.put(
            DispatchBatch(
                start_physical_offset=first * RECORD_SIZE_BYTES,
                end_physical_offset=(first + BATCH_KEY_COUNT) * RECORD_SIZE_BYTES,
                queues=[(batches.TOPIC, 0)],
                physical_offsets=numbers * RECORD_SIZE_BYTES,
                record_sizes=np.full(BATCH_KEY_COUNT, RECORD_SIZE_BYTES, np.int32),
                queue_indexes=np.zeros(BATCH_KEY_COUNT, np.int32),
                queue_offsets=numbers,
                tags_codes=np.zeros(BATCH_KEY_COUNT, np.int64),
                store_times_ms=numbers + STORE_TIME_MS,
                key_counts=np.ones(BATCH_KEY_COUNT, np.int32),
                key_hashes=table.hashes(batches.TOPIC, keys),
            )
        )
    table.mark_finished(table.unfinished()[:-1])
    filters = FilterLoop(table, interval_ms=1)
    while table.without_filter():
        asyncio.run(filters.give())
    return table


def many(table: IndexTable, hashes: NDArray[np.int32]) -> None:
    """Search for all keys, in as few calls as possible."""
    found, counts = np.empty((len(hashes), ROOM), np.int64), np.zeros(len(hashes), np.int32)
    next_key = 0
    while next_key < len(hashes):
        next_key = table.search_many(hashes, next_key, 0, TIME_MAX_MS, found, counts)


def alone(table: IndexTable, hashes: NDArray[np.int32]) -> None:
    """Search for each key by itself."""
    for key_hash in hashes.tolist():
        table.search(
            key_hash,
            start_time_ms=0,
            end_time_ms=TIME_MAX_MS,
            below_physical_offset=TIME_MAX_MS,
            cursor=None,
            limit=ROOM,
        )
