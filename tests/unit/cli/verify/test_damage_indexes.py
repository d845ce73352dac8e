# SPDX-License-Identifier: Apache-2.0
"""Damage of queues and index files is found and named, and a rebuild makes the store sound again.

Every kind of damage is in `tests/exhaustive/cli`.
"""

import asyncio
from pathlib import Path

from tests.support.damage import Target
from tests.support.index_damage import filter_of
from tests.support.made_store import index, verified


def test_a_store_with_filters_is_sound(store: Path) -> None:
    """Filters of index files are no damage."""
    assert filter_of(Target(store)).exists()
    assert verified(store)[1] == []


def test_a_damaged_unit_is_found_and_repaired(store: Path) -> None:
    """A unit with the place of another record is the only fault that is found. After a rebuild nothing is found."""
    target = Target(store)
    target.write_unit(3, target.records[0].physical_offset.to_bytes(8, "big"))
    _, found, report = verified(store)
    assert set(report.counts) == {"QUEUE_UNIT_OTHER_RECORD"}, found
    asyncio.run(index(store))
    assert verified(store)[1] == []
