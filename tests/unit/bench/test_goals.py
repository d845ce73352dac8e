# SPDX-License-Identifier: Apache-2.0
"""Goals: bounds of figures and of their ratios."""

import pytest

from bench.goals import GOALS, Goal
from bench.peers.registry import ROOMS
from bench.results import Results, Run
from bench.scenarios import SCENARIOS

RESULTS = Results(
    [
        Run("a", "reput", 1, {"rate": 30.0, "p99_ms": 3.0}),
        Run("a", "reput", 2, {"rate": 40.0, "p99_ms": 5.0}),
        Run("a", "kafka", 1, {"rate": 10.0}),
        Run("a", "kafka", 2, {"rate": 10.0}),
    ]
)
RATE, LATENCY, OTHER = ("a", "reput", "rate"), ("a", "reput", "p99_ms"), ("a", "kafka", "rate")


@pytest.mark.parametrize(
    ("goal", "verdict"),
    [
        (Goal(sentence="", value=RATE, at_least=35), "met"),
        (Goal(sentence="", value=RATE, at_least=36), "missed"),
        (Goal(sentence="", value=LATENCY, at_most=4), "met"),
        (Goal(sentence="", value=LATENCY, at_most=3.9), "missed"),
        (Goal(sentence="", value=RATE, through=OTHER, at_least=3.5), "met"),
        (Goal(sentence="", value=RATE, through=OTHER, at_least=3.6), "missed"),
        (Goal(sentence="", value=("b", "reput", "rate"), at_least=1), "not measured"),
        (Goal(sentence="", value=RATE, through=("a", "nats", "rate"), at_least=1), "not measured"),
    ],
)
def test_verdicts(goal: Goal, verdict: str) -> None:
    """The median decides, and a goal without a measurement is not met."""
    assert goal.verdict(RESULTS) == verdict


@pytest.mark.parametrize("goal", GOALS, ids=lambda goal: goal.sentence)
def test_goals_speak_of_scenarios_and_systems_that_exist(goal: Goal) -> None:
    """Each goal refers to a cell that is measured; a goal without a measured cell would stay unmeasured for ever."""
    scenarios = {scenario.name: scenario for scenario in SCENARIOS}
    for scenario, peer, _ in [goal.value, *([goal.through] if goal.through else [])]:
        assert peer in ROOMS
        assert peer in scenarios[scenario].peers
