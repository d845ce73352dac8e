# SPDX-License-Identifier: Apache-2.0
"""Removal of expired queues and of unused topics, in random orders of appends, trims, removals and crashes."""

import random

import pytest

from libs.machine.testing.memory_fs import MemoryFs, everything_survives, nothing_survives
from services.indexer.engine.follow.reput_state import ReputState
from services.indexer.engine.indexer import Indexer
from tests.support.fake_log import FakeLog
from tests.support.indexer import make_indexer, removed_names
from tests.support.patience import eventually


@pytest.mark.parametrize("seed", range(40))
async def test_any_order_of_things(seed: int) -> None:
    """After random appends, trims, removals and crashes only records of unused topics are missing."""
    chance = random.Random(seed)
    log, fs = FakeLog(segment_size_bytes=1 << 14), MemoryFs()
    removed_below: dict[str, int] = {}
    for _ in range(8):
        indexer = make_indexer(log, fs)
        indexer.start()
        for _ in range(6):
            await _act(chance, log, indexer, removed_below)
        await eventually(lambda: indexer.indexes.reached.indexed_physical_offset == log.end_physical_offset)  # noqa: B023
        assert indexer.follow.reput.state is not ReputState.STOPPED
        _check(log, indexer, removed_below)
        if chance.random() < 0.5:
            await indexer.close()
            continue
        await indexer.abandon()
        fs.crash(chance.choice((nothing_survives, everything_survives)))
    assert log.failures == []


async def _act(chance: random.Random, log: FakeLog, indexer: Indexer, removed_below: dict[str, int]) -> None:
    kind = chance.choice(("append", "append", "append", "trim", "expired", "unused"))
    if kind == "append":
        for _ in range(chance.randrange(1, 60)):
            topic = chance.choice("ABCDE")
            log.deleted_topics.discard(topic)
            log.append(topic, chance.randrange(2))
    elif kind == "trim" and log.records:
        kept = chance.choice(log.records).physical_offset
        log.trim(max(kept, log.min_physical_offset))
        await eventually(lambda: indexer.indexes.queues.min_physical_offset == log.min_physical_offset)
    elif kind == "expired":
        await eventually(lambda: indexer.follow.completeness.is_complete)
        await indexer.upkeep.removal.remove_expired(dry_run=False)
    elif kind == "unused":
        log.deleted_topics.add(chance.choice("ABCDE"))
        await eventually(lambda: indexer.follow.completeness.is_complete)
        end = log.end_physical_offset
        for topic, _ in removed_names(await indexer.upkeep.removal.remove_unused(dry_run=False)):
            removed_below[topic] = end


def _check(log: FakeLog, indexer: Indexer, removed_below: dict[str, int]) -> None:
    wanted: dict[tuple[str, int], list[tuple[int, int]]] = {}
    for made in log.records:
        if made.physical_offset >= max(log.min_physical_offset, removed_below.get(made.topic, 0)):
            wanted.setdefault((made.topic, made.queue_id), []).append((made.queue_offset, made.physical_offset))
    for (topic, queue_id), places in wanted.items():
        queue = indexer.indexes.queues.find(topic, queue_id)
        assert queue is not None
        units = queue.read(places[0][0], len(places) + 1)
        assert units.physical_offsets.tolist() == [physical_offset for _, physical_offset in places]
