# SPDX-License-Identifier: Apache-2.0
"""Durations are counted in the buckets whose edges they do not exceed."""

from libs.machine.durations import BUCKETS_S, Durations


def test_buckets_add_up() -> None:
    """A duration counts in the bucket of its edge, and in all larger buckets."""
    durations = Durations()
    durations.count_none()
    for edge in BUCKETS_S:
        durations.count(edge)
    durations.count(BUCKETS_S[-1] * 2)
    expected = [*range(2, len(BUCKETS_S) + 2), len(BUCKETS_S) + 2]
    assert durations.buckets() == list(zip([*map(str, BUCKETS_S), "+Inf"], expected, strict=True))
    assert durations.sum_s == sum(BUCKETS_S) + BUCKETS_S[-1] * 2


def test_an_end_before_the_begin_is_a_duration_of_zero() -> None:
    """The clocks of two machines may differ."""
    durations = Durations()
    durations.count_since_ms([1_000, 5_000, 6_000], 5_000)
    assert (durations.sum_s, durations.buckets()[0][1], durations.buckets()[-1][1]) == (4.0, 2, 3)
