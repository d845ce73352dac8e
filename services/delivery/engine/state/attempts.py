# SPDX-License-Identifier: Apache-2.0
"""Attempts: the handles that receives with an id returned, so that a repeated receive gets the same messages again.

A receive is repeated because its answer was lost. Only the handles are kept: the state of the group tells whether a
message is still the consumer's. The journal has none of this, so a repetition at the next process waits until the
messages' time is over, as a receive without an id does.
Callers: the event loop's thread. Memory: COUNT_MAX receives of the last KEPT_S seconds, HANDLE_COUNT_MAX messages.
"""

from collections import OrderedDict
from collections.abc import Sequence
from typing import NamedTuple

from libs.machine.clock import Clock

KEPT_S = 120.0
"""Longer than a receive waits and a consumer takes to repeat it."""
COUNT_MAX, HANDLE_COUNT_MAX = 10_000, 50_000


class Attempt(NamedTuple):
    """A receive that may be repeated."""

    group: str
    topic: str
    id: str


class _Given(NamedTuple):
    at_s: float
    handles: Sequence[str]


class Attempts:
    """The receives of the last KEPT_S seconds that may be repeated."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._given: OrderedDict[Attempt, _Given] = OrderedDict()
        self._handle_count = 0

    def note(self, attempt: Attempt, handles: Sequence[str]) -> None:
        """Record the handles that a receive returns."""
        self._forget(attempt)
        now_s = self._clock.monotonic_s()
        self._given[attempt] = _Given(now_s, handles)
        self._handle_count += len(handles)
        while self._given and self._has_too_much(now_s):
            self._forget(next(iter(self._given)))

    def handles(self, attempt: Attempt) -> Sequence[str]:
        """Return the handles that a receive returned, an empty sequence for an unknown receive."""
        given = self._given.get(attempt)
        return () if given is None else given.handles

    def _has_too_much(self, now_s: float) -> bool:
        oldest = next(iter(self._given.values()))
        is_full = len(self._given) > COUNT_MAX or self._handle_count > HANDLE_COUNT_MAX
        return is_full or now_s - oldest.at_s > KEPT_S

    def _forget(self, attempt: Attempt) -> None:
        given = self._given.pop(attempt, None)
        if given is not None:
            self._handle_count -= len(given.handles)
