# SPDX-License-Identifier: Apache-2.0
"""Topics that were there lately, so that not every message asks whether its topic is there.

Callers: the event loop's thread. Memory: COUNT_MAX names.
"""

from collections import OrderedDict

from libs.machine.clock import Clock

KEPT_S = 10.0
"""So long after it was deleted a topic may be taken for one that is there."""
COUNT_MAX = 10_000


class KnownTopics:
    """See the module."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen_s: OrderedDict[str, float] = OrderedDict()

    def note(self, name: str) -> None:
        """Take note that a topic is there."""
        self._seen_s[name] = self._clock.monotonic_s()
        self._seen_s.move_to_end(name)
        if len(self._seen_s) > COUNT_MAX:
            self._seen_s.popitem(last=False)

    def is_known(self, name: str) -> bool:
        """Return whether a topic was there lately."""
        seen_s = self._seen_s.get(name)
        return seen_s is not None and self._clock.monotonic_s() - seen_s <= KEPT_S
