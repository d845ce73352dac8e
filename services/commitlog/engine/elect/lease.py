# SPDX-License-Identifier: Apache-2.0
"""Lease: the time during which a leader may assume that no other log leads.

Invariants: the holder treats the lease as expired before the coordinator does. It counts 80 % of the duration from the
moment at which it sent the renewal, by a clock that runs during suspend; the rest is a margin for clock drift.
Only acknowledgements below REPLICATED depend on the lease.
Callers: the loop that owns the log.
"""

from dataclasses import dataclass, field

from libs.machine.clock import Clock
from libs.machine.loop import SupervisedLoop
from services.commitlog.engine.elect.coordinator import Coordinator, CoordinatorUnavailable, Lost

SHARE = 0.8
"""Share of the duration that the holder uses."""


@dataclass(slots=True, eq=False)
class Lease:
    """The lease of one elected term. `sent_at_s` is when the request that took the lease was sent."""

    _coordinator: Coordinator
    _clock: Clock
    duration_ms: int
    sent_at_s: float
    renew_ms: int
    is_lost: bool = False
    loop: SupervisedLoop = field(init=False)

    def __post_init__(self) -> None:
        self.loop = SupervisedLoop(
            "lease",
            self._renew,
            interval_ms=self.renew_ms,
            backoff_ms_max=self.renew_ms,
            expected_errors=(CoordinatorUnavailable,),
        )

    @property
    def left_ms(self) -> int:
        """Remaining milliseconds for the holder, 0 after expiry."""
        return self.left_ms_since(self.sent_at_s)

    @property
    def now_s(self) -> float:
        """Monotonic time in seconds."""
        return self._clock.monotonic_s()

    def left_ms_since(self, asked_at_s: float) -> int:
        """Return the remaining milliseconds of a grant of the lease's duration that was requested at this time."""
        end_s = asked_at_s + self.duration_ms / 1000 * SHARE
        return 0 if self.is_lost else max(round((end_s - self.now_s) * 1000), 0)

    def run_out(self) -> None:
        """Treat the lease as expired and renew it now: the coordinator reports no holder."""
        self.sent_at_s = self.now_s - self.duration_ms / 1000
        self.loop.hurry()

    async def _renew(self) -> None:
        sent_at_s = self.now_s
        try:
            await self._coordinator.renew()
        except Lost:
            self.is_lost = True
        else:
            self.sent_at_s = sent_at_s
