# SPDX-License-Identifier: Apache-2.0
"""Queues that another program began again at any record: the visible messages after random losses and stops."""

import random

import pytest

from libs.formats.state.index_progress import Stepped
from libs.machine.testing.memory_fs import MemoryFs, everything_survives, nothing_survives
from tests.support.fake_log import FakeLog
from tests.support.indexer import feed, make_indexer, running
from tests.support.patience import eventually
from tests.support.queue_views import Survives, followed, killed, views, wanted


@pytest.mark.parametrize("seed", range(40))
async def test_any_queue_may_begin_again_at_any_record(seed: int) -> None:
    """With odd records, lost tails, kills, power cuts and flushes the result is always as by the rules."""
    chance = random.Random(seed)
    log, fs = FakeLog(segment_size_bytes=1 << 14), MemoryFs()
    for _ in range(6):
        indexer = make_indexer(log, fs)
        indexer.start()
        for _ in range(3):
            for _ in range(chance.randrange(40)):
                _append(chance, log)
            if chance.random() < 0.2 and log.records:
                log.lose_tail(chance.choice(log.records[-30:]).physical_offset)
            await eventually(lambda: indexer.indexes.reached.epoch == log.epoch)  # noqa: B023
            await followed(indexer, log)
            assert views(indexer) == wanted(log), seed
            if chance.random() < 0.3:
                await indexer.follow.flush.flush(is_thorough=True)
        if chance.random() < 0.3:
            await indexer.close()
            continue
        await killed(indexer, fs, chance.choice((nothing_survives, everything_survives, _some(chance))))
        if chance.random() < 0.3 and log.records:
            log.lose_tail(chance.choice(log.records[-30:]).physical_offset)
    async with running(log, fs) as indexer:
        await eventually(lambda: indexer.indexes.reached.epoch == log.epoch)
        await followed(indexer, log)
        notes = indexer.indexes.queues.stepped_over.notes()
        assert views(indexer) == wanted(log)
    clean = make_indexer(log, MemoryFs())
    feed(clean, log)
    assert {_place(note) for note in notes} >= {_place(note) for note in clean.indexes.queues.stepped_over.notes()}
    assert log.failures == []


def _append(chance: random.Random, log: FakeLog) -> None:
    topic, queue_id = chance.choice("AB"), chance.randrange(2)
    usual = log.append(topic, queue_id, keys="all").queue_offset + 1
    kind = chance.random()
    if kind < 0.04:
        log.set_next_queue_offset(topic, queue_id, 0)
    elif kind < 0.08:
        log.append(topic, queue_id, queue_offset=usual + chance.choice((-3, 7, 10**15)))
        log.set_next_queue_offset(topic, queue_id, usual)


def _some(chance: random.Random) -> Survives:
    return lambda _path, _page: chance.random() < 0.5


def _place(note: Stepped) -> tuple[str, int, int]:
    return note.topic, note.queue_id, note.first_physical_offset
