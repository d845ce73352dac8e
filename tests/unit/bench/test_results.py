# SPDX-License-Identifier: Apache-2.0
"""Medians, spreads and ratios of measurements."""

import pytest

from bench.results import Results, Run, Spread


def runs_of(scenario: str, peer: str, figure: str, values: dict[int, float]) -> list[Run]:
    """A run for each round with a value."""
    return [Run(scenario, peer, number, {figure: value}) for number, value in values.items()]


@pytest.mark.parametrize(
    ("values", "spread"),
    [
        ([], None),
        ([3.0], Spread(3.0, 3.0, 3.0, 1)),
        ([1.0, 9.0, 2.0], Spread(2.0, 1.0, 9.0, 3)),
        ([4.0, 1.0, 2.0, 3.0], Spread(2.5, 1.0, 4.0, 4)),
    ],
)
def test_spread(values: list[float], spread: Spread | None) -> None:
    """A spread is median, lowest and highest; without values it is None."""
    assert Spread.of(values) == spread


def test_ratio_is_taken_round_by_round() -> None:
    """A slow round slows both sides: the ratio is the median of the rounds' ratios, not the ratio of the medians."""
    results = Results(
        [
            *runs_of("append", "reput", "rate", {1: 100.0, 2: 10.0, 3: 60.0}),
            *runs_of("append", "kafka", "rate", {1: 50.0, 2: 5.0, 3: 10.0}),
        ]
    )
    mine, other = ("append", "reput", "rate"), ("append", "kafka", "rate")
    assert results.ratio(mine, other) == Spread(2.0, 2.0, 6.0, 3)
    assert results.ratio(other, mine) == Spread(0.5, pytest.approx(1 / 6), 0.5, 3)


def test_ratio_needs_a_common_round() -> None:
    """A round that only one side has does not count, and a round with a zero as divisor does not count."""
    results = Results(
        [
            *runs_of("append", "reput", "rate", {1: 100.0, 2: 80.0}),
            *runs_of("append", "kafka", "rate", {2: 40.0, 3: 1.0}),
            *runs_of("append", "nats", "rate", {1: 0.0}),
        ]
    )
    mine = ("append", "reput", "rate")
    assert results.ratio(mine, ("append", "kafka", "rate")) == Spread(2.0, 2.0, 2.0, 1)
    assert results.ratio(mine, ("append", "nats", "rate")) is None
    assert results.ratio(mine, ("append", "redis", "rate")) is None


def test_failed_runs_are_kept_and_have_no_figures() -> None:
    """A failed run is in `errors` and `has_failed`, and has no figures."""
    results = Results([Run("append", "kafka", 1, {"rate": 5.0}), Run("append", "kafka", 2, {}, "LoadFailed: no")])
    assert results.has_failed
    assert results.errors("append", "kafka") == ["LoadFailed: no"]
    assert results.by_round("append", "kafka", "rate") == {1: 5.0}
    assert not Results(results.runs[:1]).has_failed


def test_figures_keep_their_order() -> None:
    """Figures have the order of the first runs that have them."""
    results = Results([Run("a", "reput", 1, {"second": 1.0, "first": 1.0}), Run("a", "reput", 2, {"third": 1.0})])
    assert results.figures("a", "reput") == ["second", "first", "third"]
