# SPDX-License-Identifier: Apache-2.0
"""Damage of queues and index files: every kind is found and named, and a rebuild makes the store sound again."""

import asyncio
from pathlib import Path

import pytest

from tests.support.damage import Case, Target
from tests.support.index_damage import INDEX, QUEUES
from tests.support.made_store import index, verified


@pytest.mark.parametrize("case", QUEUES + INDEX, ids=lambda case: case.id)
def test_damage_is_found_named_and_repaired(store: Path, case: Case) -> None:
    """Each kind of damage is found under its code, and no sound part is reported.

    After a rebuild nothing is found.
    """
    case.damage(Target(store))
    _, found, report = verified(store)
    assert set(report.counts) == {case.code, *case.others}, found
    counts = report.counts[case.code]
    assert (counts.notes if case.is_note else counts.faults) > 0, found
    if case.is_rebuilt:
        asyncio.run(index(store))
        assert verified(store)[1] == []
