# SPDX-License-Identifier: Apache-2.0
"""A call that a client makes long works in steps: what is done between two turns of the loop does not grow with it."""

from pathlib import Path

from libs.machine.clock import ManualClock
from libs.machine.memory_fs import MemoryFs
from services.indexer.engine.consumer_group_pages import GroupPosition, page_of_groups
from services.indexer.engine.consumer_offsets import ConsumerOffsets
from tests.cost.turns import Turns, turns

STEP_INSTRUCTION_COUNT_MAX = 120_000
"""About 5 ms of the interpreter on a machine of today."""


def check(found: Turns) -> None:
    """The bound of all steps."""
    assert 0 < found.longest_instruction_count <= STEP_INSTRUCTION_COUNT_MAX


def committed(*, group_count: int, queue_count: int) -> ConsumerOffsets:
    """Offsets of as many groups in as many queues each, not saved yet."""
    offsets = ConsumerOffsets(MemoryFs(), Path("/data/offsets"), ManualClock(), count_max=10**6)
    for group in range(group_count):
        offsets.commit(f"g{group}", {(f"T{queue % 7}", queue): group for queue in range(queue_count)})
    return offsets


async def test_consumer_offsets_are_saved_in_steps() -> None:
    """Many groups, and one group with many queues, of one topic or of several."""
    for offsets in (committed(group_count=20_000, queue_count=1), committed(group_count=1, queue_count=20_000)):
        async with turns() as found:
            await offsets.save()
        check(found)


async def test_consumer_groups_are_listed_in_steps() -> None:
    """A page of them walks over all; so does one of a large group."""
    for offsets in (committed(group_count=20_000, queue_count=1), committed(group_count=1, queue_count=20_000)):
        async with turns() as found:
            await page_of_groups(offsets, GroupPosition(), group_count_max=100, offset_count_max=1_000)
        check(found)
