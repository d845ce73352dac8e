# SPDX-License-Identifier: Apache-2.0
"""Lease: until when a leader may think that nobody else leads.

Invariants: it ends, for its holder, before it ends for anybody else: counted from when a renewal was sent, not from
its answer, by a clock that goes on while the machine sleeps, with a fifth of it left for clocks that run differently.
Only what is acknowledged as less than REPLICATED rests on that.
Callers: the loop that owns the log.
"""

from dataclasses import dataclass, field

from libs.machine.clock import Clock
from libs.machine.loop import SupervisedLoop
from services.commitlog.engine.elect.coordinator import Coordinator, CoordinatorUnavailable, Lost

SHARE = 0.8
"""Of its time that the holder uses."""


@dataclass(slots=True, eq=False)
class Lease:
    """Of one reign. `sent_at_s` is when the request was sent that took it."""

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
        """How long it lasts for its holder, 0 if it is over."""
        return self.left_ms_since(self.sent_at_s)

    @property
    def now_s(self) -> float:
        """The time by its clock."""
        return self._clock.monotonic_s()

    def left_ms_since(self, asked_at_s: float) -> int:
        """Return how long something lasts that was asked for then, and would last as long as the lease."""
        end_s = asked_at_s + self.duration_ms / 1000 * SHARE
        return 0 if self.is_lost else max(round((end_s - self.now_s) * 1000), 0)

    def run_out(self) -> None:
        """Count it as over until it is renewed, which is tried now: the coordinator says that nobody holds it."""
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
