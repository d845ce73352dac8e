# SPDX-License-Identifier: Apache-2.0
"""Counters of queues that another program began again: they follow the rules through random histories."""

import random

import pytest

from libs.formats import store_layout
from libs.formats.indexes.consume_queue import end_after
from tests.support.commitlog import DATA_DIR, Machine, append, message
from tests.support.foreign_records import append_offset, next_of, write_foreign


@pytest.mark.parametrize("seed", range(30))
async def test_any_queue_may_begin_again_at_any_record(seed: int) -> None:
    """The numbers follow the rules through appends, foreign records, stops, kills and lost snapshots."""
    chance, machine = random.Random(seed), Machine()
    wanted = [0, 0, 0]
    async with machine.running() as log:
        await append(log, message(topic="other"))
    for _ in range(8):
        placed = []
        for _ in range(chance.randrange(12)):
            queue_id = chance.randrange(3)
            usual = [wanted[queue_id]] * 6
            queue_offset = chance.choice([*usual, 0, wanted[queue_id] + 5, max(0, wanted[queue_id] - 2)])
            placed.append((queue_id, queue_offset))
            wanted[queue_id] = end_after([queue_offset], end=wanted[queue_id])
        write_foreign(machine, placed)
        if chance.random() < 0.3 and machine.exists(store_layout.QUEUE_SNAPSHOT):
            machine.fs.remove(DATA_DIR / store_layout.QUEUE_SNAPSHOT)
        log = await machine.start()
        assert [next_of(log, queue_id) for queue_id in range(3)] == wanted, (seed, placed)
        for _ in range(chance.randrange(5)):
            queue_id = chance.randrange(3)
            assert await append_offset(log, queue_id) == wanted[queue_id]
            wanted[queue_id] += 1
        if chance.random() < 0.5:
            await machine.kill(log)
        else:
            await machine.stop(log)
