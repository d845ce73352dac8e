# SPDX-License-Identifier: Apache-2.0
"""Some seeds of the simulation, and that a seed repeats exactly."""

import pytest

from tests.crash.part import repeat_command
from tests.crash.seeds import run_seeds, shortest
from tests.crash.sim.simulate import make_plan, run_plan

pytestmark = [pytest.mark.crash, pytest.mark.slow]
FIRST_SEED, SEED_COUNT = 700_000, 60
"""Always the same: `make crash` takes others each time."""


def test_no_seed_breaks_a_promise() -> None:
    """In any order of events acknowledged messages are there, nothing else is, and the indexes are right."""
    _, counts, broken = run_seeds("sim", range(FIRST_SEED, FIRST_SEED + SEED_COUNT))
    for seed in broken[:1]:
        pytest.fail(f"{repeat_command('sim', seed)}\n{shortest('sim', seed)}")
    assert counts["rebuilds compared"] == SEED_COUNT
    assert counts["acknowledged messages"] > 20 * SEED_COUNT


def test_a_seed_repeats_exactly() -> None:
    """The same plan has the same steps and the same outcome, independent of earlier runs in the process."""
    plans = [make_plan(seed) for seed in range(20)]
    once = [run_plan(plan) for plan in plans]
    again = [run_plan(plan) for plan in reversed(plans)]
    assert once == again[::-1]
