# SPDX-License-Identifier: Apache-2.0
"""Open tails of queues: entering through the kernel gives the same queues as entering each queue by itself."""

import random
from pathlib import Path
from typing import Any

import pytest

from libs.formats.records.dispatch_columns import DispatchBatch
from libs.formats.state.index_progress import IndexProgress
from libs.formats.state.set_apart import COMPACTED
from libs.machine.failpoints import FailpointRaised, armed
from libs.machine.testing.memory_fs import MemoryFs
from services.indexer.engine.tables.queue import ConsumeQueue
from services.indexer.engine.tables.queues import ConsumeQueueTable
from services.indexer.engine.tables.unit_memory import MEMORY_BYTES_MAX
from services.indexer.errors import SyncNeeded
from tests.support.fake_log import FakeLog

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


def random_log(chance: random.Random) -> FakeLog:
    """Return a log with queues that continue, leave gaps, begin again, and are set apart."""
    log = FakeLog()
    for _ in range(chance.randint(50, 400)):
        topic, queue_id = chance.choice("ABCD"), chance.randint(0, 4)
        match chance.random():
            case draw if draw < 0.01:
                log.set_next_queue_offset(topic, queue_id, 0)
            case draw if draw < 0.02:
                log.append(topic, queue_id, queue_offset=chance.randint(0, 90))
                continue
        log.append(topic, queue_id, tag=chance.choice(("", "a", "b")))
    return log


@pytest.mark.parametrize("seed", range(30))
async def test_the_same_queues_without_tails(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """With syncs, cuts and set-apart topics between batches, queues and sums equal those of a table without tails."""
    chance = random.Random(seed)
    log = random_log(chance)
    mapped, memory_bytes = chance.choice((2, 5, 1_024)), chance.choice((0, 3_000, MEMORY_BYTES_MAX))
    with_tails = make_table(mapped=mapped, memory_bytes=memory_bytes)
    without = make_table(mapped=mapped, memory_bytes=memory_bytes)
    for batch in log.batches(record_count_max=chance.choice((1, 7, 40))):
        if chance.random() < 0.1:
            sync(with_tails, chance.choice((0, 1)))
        if chance.random() < 0.05:
            with_tails.set_apart.learn({"D": COMPACTED} if chance.random() < 0.5 else {})
            without.set_apart.learn(dict(with_tails.set_apart.reasons))
        if chance.random() < 0.05:
            first = int(log.records[chance.randrange(len(log.records))].physical_offset)
            first = min(first, batch.start_physical_offset)
            assert with_tails.trim(first) == without.trim(first)
        if chance.random() < 0.3:
            assert units_of(with_tails) == units_of(without)
        grown = await enter(with_tails, batch)
        with monkeypatch.context() as patch:
            patch.setattr(ConsumeQueue, "open_tail", lambda _: None)
            assert sorted(set(grown)) == sorted(set(await enter(without, batch)))
        assert (with_tails.sums.start, with_tails.sums.end) == (without.sums.start, without.sums.end)
    assert units_of(with_tails) == units_of(without)
    assert with_tails.stepped_over.notes() == without.stepped_over.notes()
    assert with_tails.tails.entered_count > 0 or mapped < 1_024
    assert without.tails.entered_count == 0


async def test_a_truncated_queue_continues() -> None:
    """After lost records the tails are closed, and the records that come instead get the units."""
    log, table = FakeLog(), make_table()
    for _ in range(6):
        log.append("T", 0)
    for batch in log.batches(record_count_max=2):
        await enter(table, batch)
    bound = log.records[3].physical_offset
    table.truncate(bound)
    log.lose_tail(bound)
    log.append("T", 0, tag="other")
    for batch in log.batches(bound):
        await enter(table, batch)
    assert [unit[0] for unit in units_of(table)["T", 0]] == [record.physical_offset for record in log.records]


async def test_a_removed_queue_begins_again() -> None:
    """The tail of a queue that is removed takes no unit."""
    log, table = FakeLog(), make_table()
    for _ in range(2):
        log.append("T", 0)
        log.append("U", 0)
    first, second = log.batches(record_count_max=2)
    await enter(table, first)
    table.detach_queues([("T", 0)])
    table.remove_queues([("T", 0)])
    await enter(table, second)
    assert {name: len(units) for name, units in units_of(table).items()} == {("T", 0): 1, ("U", 0): 2}


@pytest.mark.parametrize("mapped", [2, 16, 40])
async def test_a_batch_of_more_queues_than_may_be_mapped_is_entered_queue_by_queue(
    mapped: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue is decided about and written once for each batch, and a sync comes for each 7/8 of the files at most."""
    log, narrow, roomy = FakeLog(), make_table(mapped=mapped, memory_bytes=0), make_table()
    for number in range(800):
        log.append("T", number * 7 % 40)
    sync_count, append, written = 0, ConsumeQueue.append, list[ConsumeQueue]()

    def noted(queue: ConsumeQueue, *arguments: Any) -> None:
        written.append(queue)
        append(queue, *arguments)

    monkeypatch.setattr(ConsumeQueue, "append", noted)
    for batch in log.batches(record_count_max=200):
        await enter(roomy, batch)
        await narrow.prepare(batch)
        written.clear()
        while True:
            try:
                grown = narrow.append(batch)
                break
            except SyncNeeded:
                sync(narrow)
                sync_count += 1
        assert len(written) == len(set(written))
        assert set(grown) == set(batch.queues)
    assert sync_count <= 4 * -(-2 * 40 // max(1, mapped * 7 // 8))
    assert units_of(narrow) == units_of(roomy)
    assert narrow.sums.end == roomy.sums.end


async def test_a_flush_between_two_attempts_changes_no_decision() -> None:
    """A batch that was entered in part goes on behind any sync, and behind an error it is decided about again."""
    log, table = FakeLog(), make_table(mapped=2, memory_bytes=0)
    for number in range(30):
        log.append("T", number % 6)
    (batch,) = log.batches()
    await table.prepare(batch)
    with pytest.raises(SyncNeeded):
        table.append(batch)
    sync(table)
    with armed("queue.before_append", "raise"), pytest.raises(FailpointRaised):
        table.append(batch)
    while True:
        try:
            table.append(batch)
            break
        except SyncNeeded:
            sync(table)
    assert [len(units) for units in units_of(table).values()] == [5] * 6
