# SPDX-License-Identifier: Apache-2.0
"""Some seeds of the simulated cluster, and that a seed repeats exactly."""

import pytest

from tests.crash.cluster.simulate import make_plan, run_plan
from tests.crash.part import repeat_command
from tests.crash.seeds import run_seeds, shortest, silence

pytestmark = [pytest.mark.crash, pytest.mark.slow]
FIRST_SEED, SEED_COUNT = 700_000, 25
"""Always the same: `make crash` takes others each time."""


def test_no_seed_breaks_a_promise() -> None:
    """Under all faults nothing replicated is lost or doubled, nothing shown is taken back, and all become the same."""
    _, counts, broken = run_seeds("cluster", range(FIRST_SEED, FIRST_SEED + SEED_COUNT))
    for seed in broken[:1]:
        pytest.fail(f"{repeat_command('cluster', seed)}\n{shortest('cluster', seed)}")
    assert counts["replicated batches"] + counts["batches of writers"] > 10 * SEED_COUNT
    assert counts["elections"] > 2 * SEED_COUNT
    of_groups = ("ack answered", "bury answered", "dead letters replayed", "groups set", "groups moved")
    of_services = (*of_groups, "produced", "cancelled", "transactions ended", "changes of topics answered")
    of_levels = ("scheduled", "alarms", "positions of levels compared")
    of_logs = ("changes of the set", "tails cut off", "replicated amid faults", "batches repeated", "handovers")
    for reached in (*of_services, *of_levels, *of_logs):
        assert counts[reached] > 0, reached


def test_a_seed_repeats_exactly() -> None:
    """The same plan has the same steps and the same outcome, independent of earlier runs in the process."""
    plans = [make_plan(seed) for seed in range(8)]
    with silence():
        once = [run_plan(plan) for plan in plans]
        again = [run_plan(plan) for plan in reversed(plans)]
    assert once == again[::-1]
