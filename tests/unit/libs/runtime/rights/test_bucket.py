# SPDX-License-Identifier: Apache-2.0
"""The bucket of a quota: what may be taken in which time, by a clock of the test."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from libs.runtime.trust.rights.bucket import Bucket

STEPS = st.lists(
    st.tuples(st.floats(min_value=-5, max_value=5, allow_nan=False), st.integers(min_value=0, max_value=500)),
    max_size=60,
)
"""Steps of the clock in seconds, each with the amount that is asked for then."""


def taken(bucket: Bucket, now_s: float, amount: int) -> bool:
    """Take an amount if there is room."""
    if not bucket.has_room(now_s):
        return False
    bucket.take(amount)
    return True


def test_the_amount_of_a_second_at_once_and_then_the_rate() -> None:
    """A full bucket gives a second's amount; then it gives as much as the time brings."""
    bucket = Bucket(10, 100.0)
    assert sum(taken(bucket, 100.0, 1) for _ in range(50)) == 10
    assert not bucket.has_room(100.0)
    assert sum(taken(bucket, 100.0 + step / 10, 1) for step in range(1, 51)) == 50
    assert sum(taken(bucket, 200.0, 1) for _ in range(50)) == 10, "a long rest gives no more than a second's amount"


def test_a_large_amount_is_taken_whole_and_paid_for() -> None:
    """An amount above the rate is taken, and the next waits until the rate has paid it."""
    bucket = Bucket(100, 0.0)
    assert taken(bucket, 0.0, 1_000)
    assert bucket.used == 1_000
    assert bucket.wait_s(0.0) == pytest.approx(9.0)
    assert bucket.wait_s(4.0) == pytest.approx(5.0)
    assert not taken(bucket, 8.99, 1)
    assert taken(bucket, 9.01, 1)


def test_what_is_given_back_may_be_taken_again() -> None:
    """Giving back never makes more room than a full bucket has."""
    bucket = Bucket(10, 0.0)
    assert taken(bucket, 0.0, 10)
    bucket.give_back(10)
    assert bucket.used == 0
    bucket.give_back(1_000)
    assert bucket.used == 0


@pytest.mark.parametrize("per_s", [1, 100, 10_000])
def test_a_changed_rate_keeps_the_wait(per_s: int) -> None:
    """A caller that was told to wait for nine seconds waits neither for hours nor not at all."""
    bucket = Bucket(100, 0.0)
    bucket.take(1_000)
    bucket.change(per_s, 1.0)
    assert bucket.wait_s(1.0) == pytest.approx(8.0)
    assert taken(bucket, 9.1, 1)


def test_a_clock_that_steps_back_gives_no_room_and_takes_none() -> None:
    """The time from the step on counts, as after any other moment."""
    bucket = Bucket(10, 1_000.0)
    assert taken(bucket, 1_000.0, 20)
    assert bucket.wait_s(10.0) == pytest.approx(1.0)
    assert not taken(bucket, 10.5, 1)
    assert taken(bucket, 11.1, 1)


@given(st.integers(min_value=1, max_value=200), STEPS)
def test_no_more_than_the_rate_and_a_second_and_the_last_amount(per_s: int, steps: list[tuple[float, int]]) -> None:
    """The bound holds from each moment to each later moment, also where the clock steps back."""
    bucket, now_s, passed_s = Bucket(per_s, 0.0), 0.0, 0.0
    takes: list[tuple[float, int]] = []
    for step_s, amount in steps:
        now_s += step_s
        passed_s += max(0.0, step_s)
        if taken(bucket, now_s, amount):
            takes.append((passed_s, amount))
    for first in range(len(takes)):
        total = 0
        for end_s, amount in takes[first:]:
            limit = per_s * (end_s - takes[first][0] + 1)
            assert total <= limit + 1e-6
            total += amount


@given(st.integers(min_value=1, max_value=200), STEPS)
def test_there_is_room_after_the_wait_that_was_told(per_s: int, steps: list[tuple[float, int]]) -> None:
    """A caller that waits as long as it was told finds room, unless another came before it."""
    bucket, now_s = Bucket(per_s, 0.0), 0.0
    for step_s, amount in steps:
        now_s += step_s
        taken(bucket, now_s, amount)
        wait_s = bucket.wait_s(now_s)
        assert (wait_s == 0) or not bucket.has_room(now_s)
    now_s += bucket.wait_s(now_s) + 1e-6
    assert bucket.has_room(now_s)
