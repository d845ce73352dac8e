# SPDX-License-Identifier: Apache-2.0
"""KnownTopics: topics that existed lately, so that the gateway need not ask the CommitLog for each message.

Callers: the event loop's thread. Memory: COUNT_MAX names.
"""

from collections import OrderedDict

from libs.machine.clock import Clock

KEPT_S = 10.0
"""For so long a deleted topic may still be taken for an existing topic."""
COUNT_MAX = 10_000


class KnownTopics:
    """The topics that existed lately."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seen_s: OrderedDict[str, float] = OrderedDict()

    def note(self, name: str) -> None:
        """Record that a topic exists."""
        self._seen_s[name] = self._clock.monotonic_s()
        self._seen_s.move_to_end(name)
        if len(self._seen_s) > COUNT_MAX:
            self._seen_s.popitem(last=False)

    def is_known(self, name: str) -> bool:
        """Return whether a topic existed lately."""
        seen_s = self._seen_s.get(name)
        return seen_s is not None and self._clock.monotonic_s() - seen_s <= KEPT_S
