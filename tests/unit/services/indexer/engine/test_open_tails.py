# SPDX-License-Identifier: Apache-2.0
"""Open tails of queues: entering through the kernel gives the same queues as entering each queue by itself."""

from typing import Any

import pytest

from libs.machine.failpoints import FailpointRaised, armed
from services.indexer.engine.tables.queue import ConsumeQueue
from services.indexer.errors import SyncNeeded
from tests.support.fake_log import FakeLog
from tests.support.queue_tables import enter, make_table, sync, units_of


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
