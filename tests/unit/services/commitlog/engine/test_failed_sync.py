# SPDX-License-Identifier: Apache-2.0
"""A failed sync leaves pages in memory that the disk does not have: a start must not take them for durable."""

import pytest

from libs.machine.failpoints import armed
from libs.machine.testing.memory_fs import nothing_survives
from libs.segments.errors import SyncFailed
from services.commitlog.errors import StoreSealed
from tests.support.commitlog import Machine, append, bodies, message, records

BODIES = [b"%05d" % index * 1_000 for index in range(5)]
"""Each body is longer than a page, because a later write to a page takes all of that page to the disk."""


async def test_a_start_after_a_failed_sync_does_not_believe_the_page_cache() -> None:
    """After a failed sync the next start writes the pages that only memory has to the disk before it promises them."""
    machine = Machine()
    log = await machine.start()
    for body in BODIES[:3]:
        await append(log, message(body), durability=1)
    with armed("file.sync", "raise"), pytest.raises(StoreSealed):
        await append(log, message(BODIES[3]), durability=2)
    await machine.stop(log)
    log = await machine.start()
    await append(log, message(BODIES[4]), durability=2)
    await machine.kill(log, nothing_survives)
    async with machine.running() as log:
        assert bodies(log) == BODIES


async def test_a_tail_that_was_cut_does_not_come_back_after_a_failed_sync() -> None:
    """The next start writes the zeros of a cut whose sync failed again."""
    machine = Machine()
    log = await machine.start()
    for body in BODIES:
        await append(log, message(body), durability=2)
    last = records(log)[-1].physical_offset
    await machine.kill(log)
    machine.segment_bytes()[last + 50 : last + 60] = b"x" * 10
    with armed("file.sync", "raise"), pytest.raises(SyncFailed):
        await machine.start()
    async with machine.running() as log:
        assert bodies(log) == BODIES[:-1]
    machine.fs.crash(nothing_survives)
    assert not any(machine.segment_bytes()[last:])
