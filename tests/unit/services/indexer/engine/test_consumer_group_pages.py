# SPDX-License-Identifier: Apache-2.0
"""Pages of consumer groups: together they have all groups, once and in order, with any bounds."""

import random
from pathlib import Path

import pytest

from libs.machine.testing.manual_clock import ManualClock
from libs.machine.testing.memory_fs import MemoryFs
from services.indexer.engine.groups.consumer_offsets import ConsumerOffsets, GroupOffset
from services.indexer.engine.groups.pages import GroupPosition, page_of_groups


def some_offsets(chance: random.Random, count: int) -> tuple[ConsumerOffsets, list[GroupOffset]]:
    """Offsets of a few groups, of which one is large; and the same offsets sorted."""
    offsets = ConsumerOffsets(MemoryFs(), Path("/data/offsets"), ManualClock(), count_max=10**6)
    expected = {}
    for _ in range(count):
        group = chance.choice(["large", f"g{chance.randrange(40)}"])
        queue = (f"T{chance.randrange(5)}", chance.randrange(50))
        expected[group, *queue] = queue_offset = chance.randrange(1_000)
        offsets.commit(group, {queue: queue_offset})
    return offsets, sorted(GroupOffset(*name, queue_offset) for name, queue_offset in expected.items())


@pytest.mark.parametrize("seed", range(10))
async def test_pages_are_everything_in_order(seed: int) -> None:
    """Bounds hold on each page; only a group that is larger than a page is cut."""
    chance = random.Random(seed)
    offsets, expected = some_offsets(chance, 400)
    group_count_max, offset_count_max = chance.randint(1, 10), chance.randint(1, 100)
    found: list[GroupOffset] = []
    position: GroupPosition | None = GroupPosition()
    while position is not None:
        page = await page_of_groups(
            offsets, position, group_count_max=group_count_max, offset_count_max=offset_count_max
        )
        assert 1 <= len(page.groups) <= group_count_max
        assert sum(len(part) for _, part in page.groups) <= offset_count_max
        if page.position is not None and page.position.queue is not None:
            assert len(page.groups) == 1
        found += [one for _, part in page.groups for one in part]
        position = page.position
    assert found == expected


async def test_no_groups_are_one_empty_page() -> None:
    """Without groups, and behind the last group, a single empty page is returned."""
    offsets, _ = some_offsets(random.Random(0), 5)
    behind = GroupPosition("zzz", ("T", 0))
    for position in (behind, GroupPosition("zzz")):
        page = await page_of_groups(offsets, position, group_count_max=5, offset_count_max=5)
        assert (page.groups, page.position) == ([], None)
