# SPDX-License-Identifier: Apache-2.0
"""Numbers in the form that people use."""

import pytest

from libs.figures import counted, duration_text, many, rate_text, size_rate_text, size_text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (1_234_567, "1.2 MiB"),
        (100 << 20, "100 MiB"),
        (1023.9 * 1024, "1.0 MiB"),
        (1 << 30, "1.0 GiB"),
        (270_553_174_016, "252 GiB"),
        ((1 << 63) - 1, "8.0 EiB"),
        (1 << 72, "4096 EiB"),
    ],
)
def test_sizes(size_bytes: float, text: str) -> None:
    """A size has the unit that gives at least 1, and at most four digits."""
    assert size_text(size_bytes) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-1, "0 ms"),
        (0.0074, "7 ms"),
        (1, "1 s"),
        (3.25, "3.2 s"),
        (9.96, "10 s"),
        (59.6, "1 min"),
        (125, "2 min 5 s"),
        (3600, "1 h"),
        (3601, "1 h"),
        (7500, "2 h 5 min"),
        (187_200, "2 d 4 h"),
        (86_400, "1 d"),
    ],
)
def test_durations(seconds: float, text: str) -> None:
    """A duration has at most two units."""
    assert duration_text(seconds) == text


def test_counts_and_rates() -> None:
    """A count of 1 has no plural, and slow rates keep a decimal place."""
    assert (counted(1, "message"), counted(60_046, "message")) == ("1 message", "60046 messages")
    assert (many(1, "message"), many(60_046, "message")) == ("1 message", "60,046 messages")
    assert (rate_text(0.25, "messages"), rate_text(1234.4, "messages")) == ("0.2 messages/s", "1,234 messages/s")
    assert (rate_text(0, "messages"), size_rate_text(1 << 20)) == ("0 messages/s", "1.0 MiB/s")
