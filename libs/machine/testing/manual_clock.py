# SPDX-License-Identifier: Apache-2.0
"""ManualClock: a clock that a test controls."""


class ManualClock:
    """A clock that does not move until a test moves it. Wall time may also be set back, like a real clock."""

    def __init__(self, now_ms: int = 1_700_000_000_000) -> None:
        self._now_ms = now_ms
        self._monotonic_s = 0.0

    def now_ms(self) -> int:
        """See `Clock.now_ms`."""
        return self._now_ms

    def monotonic_s(self) -> float:
        """See `Clock.monotonic_s`."""
        return self._monotonic_s

    def advance(self, duration_ms: int) -> None:
        """Let time pass on both clocks."""
        assert duration_ms >= 0
        self._now_ms += duration_ms
        self._monotonic_s += duration_ms / 1000

    def set_now_ms(self, now_ms: int) -> None:
        """Step the wall clock, forwards or backwards. Monotonic time does not move."""
        self._now_ms = now_ms
