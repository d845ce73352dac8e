# SPDX-License-Identifier: Apache-2.0
"""CPU time of the last seconds of a load, from samples."""

import pytest

from bench.usage import Sample, cpu_at

SAMPLES = [Sample(10.0, 1.0, 0, 0), Sample(11.0, 3.0, 0, 0), Sample(12.0, 3.5, 0, 0)]


@pytest.mark.parametrize(("at_s", "cpu_s"), [(9.0, 1.0), (10.0, 1.0), (10.5, 2.0), (11.5, 3.25), (12.0, 3.5)])
def test_cpu_between_samples_lies_on_a_line(at_s: float, cpu_s: float) -> None:
    """Between two samples CPU time is interpolated; before the first sample it is the first sample's CPU time."""
    assert cpu_at(SAMPLES, at_s) == pytest.approx(cpu_s)
