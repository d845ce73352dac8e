# SPDX-License-Identifier: Apache-2.0
"""Open tails of queues: entering through the kernel gives the same queues as entering each queue by itself."""

import random

import pytest

from libs.formats.state.set_apart import COMPACTED
from services.indexer.engine.tables.queue import ConsumeQueue
from services.indexer.engine.tables.unit_memory import MEMORY_BYTES_MAX
from tests.support.fake_log import FakeLog
from tests.support.queue_tables import enter, make_table, sync, units_of


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
