# SPDX-License-Identifier: Apache-2.0
"""Damage of the log and of the small files: every kind is found, and named by its code."""

from pathlib import Path

import pytest

from tests.support.damage import Case, Target
from tests.support.log_damage import FILES, LOG
from tests.support.made_store import verified


@pytest.mark.parametrize("case", LOG + FILES, ids=lambda case: case.id)
def test_damage_is_found_and_named(store: Path, case: Case) -> None:
    """Each kind of damage is found under its code, as fault or note, and no sound part is reported."""
    case.damage(Target(store))
    _, found, report = verified(store)
    assert set(report.counts) == {case.code, *case.others}, found
    counts = report.counts[case.code]
    assert (counts.notes if case.is_note else counts.faults) > 0, found
