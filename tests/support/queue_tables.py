# SPDX-License-Identifier: Apache-2.0
"""Tables of queues of an empty store, and batches that are entered in them."""

from pathlib import Path

from libs.formats.records.dispatch_columns import DispatchBatch
from libs.formats.state.index_progress import IndexProgress
from libs.machine.testing.memory_fs import MemoryFs
from services.indexer.engine.tables.queues import ConsumeQueueTable
from services.indexer.engine.tables.unit_memory import MEMORY_BYTES_MAX
from services.indexer.errors import SyncNeeded

DIRECTORY = Path("/data/consumequeue")
Units = dict[tuple[str, int], list[tuple[int, int, int]]]


def make_table(*, mapped: int = 1_024, memory_bytes: int = MEMORY_BYTES_MAX) -> ConsumeQueueTable:
    """Return the table of an empty store, with so much memory for units that are in no file."""
    table = ConsumeQueueTable(MemoryFs(), DIRECTORY, file_size_bytes=20 * 16, mapped_file_count_max=mapped)
    table.load(IndexProgress(queue_end_sum=0))
    table.unsynced.memories.bytes_max = memory_bytes
    return table


def sync(table: ConsumeQueueTable, page_count_min: int = 0) -> None:
    """Sync queues as a round of the flush does."""
    for queue in table.begin_sync(page_count_min):
        queue.sync()
    table.end_sync()


async def enter(table: ConsumeQueueTable, batch: DispatchBatch) -> list[tuple[str, int]]:
    """Enter a batch as the Indexer does. Returns the queues that grew."""
    await table.prepare(batch)
    while True:
        try:
            return table.append(batch)
        except SyncNeeded:
            sync(table)


def units_of(table: ConsumeQueueTable) -> Units:
    """Return all units of all queues."""
    found = {}
    for topic in table.topics():
        for queue_id in table.queue_ids(topic):
            queue = table.find(topic, queue_id)
            assert queue is not None
            units = queue.read(queue.min_queue_offset, 1 << 20)
            assert len(units.physical_offsets) == queue.max_queue_offset - queue.min_queue_offset
            columns = (units.physical_offsets, units.record_sizes, units.tags_codes)
            found[topic, queue_id] = list(zip(*(column.tolist() for column in columns), strict=True))
    return found
