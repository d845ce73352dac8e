# SPDX-License-Identifier: Apache-2.0
"""Units in memory: readers find them, a sync writes them, and no file has to stay mapped for them."""

import errno
from pathlib import Path

import pytest

from libs.formats.indexes.consume_queue import UNIT_SIZE_BYTES
from libs.formats.state.index_progress import IndexProgress
from libs.machine.failpoints import armed
from libs.machine.testing.faulty_fs import Fault, FaultyFs
from libs.machine.testing.memory_fs import MemoryFs
from libs.segments.errors import SyncFailed
from services.indexer.engine.tables.queues import ConsumeQueueTable
from services.indexer.engine.tables.unit_memory import UNIT_COUNT_MIN
from tests.support.fake_log import FakeLog
from tests.support.queue_tables import DIRECTORY, enter, sync, units_of

QUEUE_COUNT = 12
FILE_UNIT_COUNT = 1_000


def make_table(fs: MemoryFs | FaultyFs, *, bound: int = 0) -> ConsumeQueueTable:
    """Return a table with a single unsynced file, so all queues but the first are in memory."""
    table = ConsumeQueueTable(fs, DIRECTORY, file_size_bytes=20 * FILE_UNIT_COUNT, mapped_file_count_max=2)
    table.load(IndexProgress(queue_physical_offset=bound, queue_end_sum=-1))
    return table


def filled(count: int) -> FakeLog:
    log = FakeLog()
    for number in range(count):
        log.append("T", number % QUEUE_COUNT)
    return log


async def feed(table: ConsumeQueueTable, log: FakeLog, *, record_count_max: int = 24) -> None:
    for batch in log.batches(record_count_max=record_count_max):
        await enter(table, batch)


def all_physical_offsets(log: FakeLog) -> dict[tuple[str, int], list[int]]:
    wanted: dict[tuple[str, int], list[int]] = {}
    for record in log.records:
        wanted.setdefault((record.topic, record.queue_id), []).append(record.physical_offset)
    return wanted


def physical_offsets(table: ConsumeQueueTable) -> dict[tuple[str, int], list[int]]:
    return {name: [unit[0] for unit in units] for name, units in units_of(table).items()}


@pytest.mark.parametrize("is_synced", [False, True])
async def test_a_power_cut_loses_units_in_memory_until_a_sync(is_synced: bool) -> None:
    """Readers find all units at once; a power cut before the sync loses them, after it none."""
    fs, log = MemoryFs(), filled(20 * QUEUE_COUNT)
    table = make_table(fs)
    await feed(table, log)
    assert sum(table.find("T", number).is_in_memory for number in range(QUEUE_COUNT)) == QUEUE_COUNT - 1  # type: ignore[union-attr]
    assert physical_offsets(table) == all_physical_offsets(log)
    if is_synced:
        queues, new = table.begin_sync(0), table.unsynced.take_new()
        assert await table.together.sync(queues, new)
        table.end_sync()
        assert table.unsynced.memories.used_bytes == 0
        assert physical_offsets(table) == all_physical_offsets(log)
    fs.crash()
    again = make_table(fs, bound=log.end_physical_offset)
    assert physical_offsets(again) == (all_physical_offsets(log) if is_synced else {})


@pytest.mark.parametrize("is_together", [False, True])
async def test_units_that_come_during_a_sync_stay_in_memory(is_together: bool) -> None:
    """A sync drops the units that it wrote, and no later unit."""
    fs, log = MemoryFs(), filled(9 * QUEUE_COUNT)
    table = make_table(fs)
    first, second, third = log.batches(record_count_max=3 * QUEUE_COUNT)
    await enter(table, first)
    queues = table.begin_sync(0)
    await enter(table, second)
    assert len(physical_offsets(table)["T", 5]) == 6
    if is_together:
        assert await table.together.sync(queues, [])
    else:
        for queue in queues:
            queue.sync()
    table.end_sync()
    await enter(table, third)
    assert physical_offsets(table) == all_physical_offsets(log)
    sync(table)
    table.together.sync_names(table.unsynced.take_new())
    assert table.unsynced.memories.used_bytes == 0
    fs.crash()
    assert physical_offsets(make_table(fs, bound=log.end_physical_offset)) == all_physical_offsets(log)


async def test_the_memory_is_bounded() -> None:
    """When the memory is full, a sync makes room, and the records go on."""
    table, log = make_table(MemoryFs()), filled(200 * QUEUE_COUNT)
    table.unsynced.memories.bytes_max = 4 * UNIT_COUNT_MIN * UNIT_SIZE_BYTES
    most = 0
    for batch in log.batches(record_count_max=QUEUE_COUNT):
        await enter(table, batch)
        most = max(most, table.unsynced.memories.used_bytes)
    assert 0 < most <= 8 * UNIT_COUNT_MIN * UNIT_SIZE_BYTES
    assert physical_offsets(table) == all_physical_offsets(log)


async def test_a_cut_keeps_the_units_below_it() -> None:
    """A cut of the log drops later units also from memory; a removed queue gives its memory back."""
    fs, log = MemoryFs(), filled(6 * QUEUE_COUNT)
    table = make_table(fs)
    await feed(table, log)
    bound = log.records[3 * QUEUE_COUNT].physical_offset
    table.truncate(bound)
    assert {len(offsets) for offsets in physical_offsets(table).values()} == {3}
    assert table.unsynced.memories.used_bytes == 0
    for batch in log.batches(bound):
        await enter(table, batch)
    assert physical_offsets(table) == all_physical_offsets(log)
    table.detach_queues([("T", number) for number in range(QUEUE_COUNT)])
    assert table.unsynced.memories.used_bytes == 0


@pytest.mark.parametrize("operation", ["check_written", "write_back"])
async def test_a_write_that_failed_is_a_failed_sync(operation: str) -> None:
    """A lost page of a single file and a file system that fails are seen; no later sync of the queue succeeds."""
    fs, log = FaultyFs(MemoryFs()), filled(3 * QUEUE_COUNT)
    table = make_table(fs)
    await feed(table, log)
    fs.plan = lambda name, path: Fault(errno.EIO) if name == operation and path.parent.name in ("7", "data") else None
    queues = table.begin_sync(0)
    with pytest.raises(SyncFailed):
        await table.together.sync(queues, [])
    if operation == "check_written":
        with pytest.raises(SyncFailed):
            queues[7].sync()


async def test_few_queues_are_synced_by_themselves() -> None:
    """A group smaller than the number of mapped files, and a file system that promises nothing, need single syncs."""
    table = ConsumeQueueTable(MemoryFs(), Path("/data/q"), file_size_bytes=20_000, mapped_file_count_max=1_000)
    table.load(IndexProgress(queue_end_sum=0))
    await feed(table, filled(QUEUE_COUNT))
    queues = table.begin_sync(0)
    assert not await table.together.sync(queues, [])
    small = make_table(MemoryFs())
    await feed(small, filled(QUEUE_COUNT))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryFs, "write_back", lambda *_: False)
        assert not await small.together.sync(small.begin_sync(0), [])


async def test_a_restart_of_all_queues_waits_for_one_sync_of_the_disk() -> None:
    """Removal of many queues syncs no directory by itself; a power cut brings none of them back."""
    fs, log = MemoryFs(), FakeLog()
    for number in range(300):
        log.append(f"T{number}", 0)
    table = make_table(fs)
    await feed(table, log)
    await table.together.sync(table.begin_sync(0), table.unsynced.take_new())
    table.end_sync()
    table.detach()
    with armed("queue.before_names_sync", "raise"):
        table.remove_files()
    fs.crash()
    assert units_of(make_table(fs, bound=log.end_physical_offset)) == {}
