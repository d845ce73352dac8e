# SPDX-License-Identifier: Apache-2.0
"""AllFilters: what the members of all groups ask for, for as long as a filter is in use.

It outlives what is read ahead, so that a group that pauses for a moment is known when it comes back. Callers: the event
loop's thread; `counts` from any. Memory: that of the filters in use, and for RETURN_S the names of what was taken over.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from libs.machine.clock import Clock
from services.delivery.engine.ports import Index
from services.delivery.engine.receiving.filters import RETURN_S, Filters
from services.delivery.engine.state.groups import Groups

COUNT_MAX = 1_000
"""Groups and topics whose filters are reported as metrics."""


@dataclass(frozen=True, slots=True)
class FilterCount:
    """How many filters the members of a group use for a topic."""

    count: int


class AllFilters:
    """Of the groups as they are at a takeover, and from then on."""

    def __init__(self, groups: Groups, index: Index, clock: Clock) -> None:
        self._index, self._clock = index, clock
        self._began_s = clock.monotonic_s()
        self._returning = {(queue.place.group, queue.place.topic) for queue in groups.all_queues()}
        """Groups and topics whose members of before may come back."""
        self._filters: dict[tuple[str, str], Filters] = {}

    def of(self, group: str, topic: str) -> Filters:
        """Return what the members of a group ask for of a topic."""
        if (found := self._filters.get((group, topic))) is None:
            age_s = self._clock.monotonic_s() - self._began_s
            return_s = RETURN_S - age_s if (group, topic) in self._returning else 0
            found = self._filters[group, topic] = Filters(group, topic, self._index, self._clock, return_s=return_s)
        return found

    def find(self, group: str, topic: str) -> Filters | None:
        """Return what members ask for, None if none has received lately."""
        return self._filters.get((group, topic))

    def of_group(self, group: str) -> list[Filters]:
        """Return what the members of a group ask for, by topic."""
        return [filters for (name, _), filters in sorted(self._filters.items()) if name == group]

    def forget(self, group: str) -> None:
        """Forget a group."""
        for key in [key for key in self._filters if key[0] == group]:
            del self._filters[key]

    def look(self, now_ms: int, used: Collection[tuple[str, str]]) -> list[tuple[str, str]]:
        """Let go of what is not in use any more, and is none of `used`. Returns groups and topics that changed."""
        if self._returning and self._clock.monotonic_s() - self._began_s > RETURN_S:
            self._returning.clear()
        changed = [key for key, filters in self._filters.items() if filters.look(now_ms)]
        for key in [key for key, filters in self._filters.items() if not filters.live and key not in used]:
            del self._filters[key]
        return changed

    def counts(self) -> Mapping[tuple[str, ...], FilterCount]:
        """Return how many filters are in use, by group and topic. From any thread."""
        return {key: FilterCount(filters.count) for key, filters in list(self._filters.items())[:COUNT_MAX]}
