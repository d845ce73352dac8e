# SPDX-License-Identifier: Apache-2.0
"""A CommitLog and an Indexer keep their promises through any events in any order.

Hypothesis reduces a history that breaks a promise. The world, the model and the actions belong to the simulation
(`tests.crash.sim`). Here hypothesis chooses, so that it can leave out steps and choose smaller steps. Most seeds are
run there, where they cost less.
"""

import contextlib
import random
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, note, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from tests.crash.seeds import silence
from tests.crash.sim.simulate import begin, end, make_setup, take_step
from tests.crash.sim.world import World

CHANCES = st.randoms(use_true_random=False)
OFTEN = ("append", "pass_time", "catch_up", "query", "cut_power", "kill", "stop", "start")
SELDOM = ("delete", "trim", "look", "rebuild", "die_later", "fail_later", "meet_failpoint", "fill_disk", "step_clock")


def step(*kinds: str) -> Callable[..., None]:
    """A rule for actions of some kinds."""

    @rule(kind=st.sampled_from(kinds), chance=CHANCES)
    def take(self: "StoreMachine", kind: str, chance: random.Random) -> None:
        with silence():
            note(self.world.run(take_step(self.world, kind, chance)))

    return take


class StoreMachine(RuleBasedStateMachine):
    """Both services, their disks and their expected answers."""

    @initialize(chance=CHANCES, seed=st.integers(0, 7))
    def begin(self, chance: random.Random, seed: int) -> None:
        """Two services that have just been started on empty disks."""
        self.world = World(make_setup(chance), random.Random(seed))
        with silence():
            self.world.run(begin(self.world))

    append = step("append")
    often = step(*OFTEN)
    seldom = step(*SELDOM)

    def teardown(self) -> None:
        """Without further faults the store keeps all its promises."""
        if hasattr(self, "world"):
            with silence(), contextlib.closing(self.world):
                self.world.run(end(self.world))


StoreMachine.TestCase.settings = settings(
    max_examples=10, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
TestStore: Any = pytest.mark.slow(StoreMachine.TestCase)
