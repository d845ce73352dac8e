# SPDX-License-Identifier: Apache-2.0
"""Stills: since when the offsets of a group in a topic have not moved. A restart of the console forgets it.

Callers: the event loop. Memory: `PLACES_MAX` places, some 200 bytes each.
"""

from collections.abc import Mapping
from typing import NamedTuple

PLACES_MAX = 10_000
STILL_MS = 60_000
"""Offsets that have moved within so long are no stop: programs commit every few seconds."""

Place = tuple[str, str]
"""A group and a topic."""


class Still(NamedTuple):
    """Offsets that have not moved. The sums are over all queues of the topic."""

    position: int
    end: int
    """The end of the topic when the offsets moved last."""
    since_ms: int
    is_begin_known: bool
    """Whether the console saw them move. If not, they have stood for longer than it watches."""


class Stills:
    """The offsets of groups as of the last sample."""

    def __init__(self) -> None:
        self._known: dict[Place, Still] = {}
        self._has_sample = False

    def put(self, now_ms: int, positions: Mapping[Place, tuple[int, int]]) -> None:
        """Take a sample: for each group and topic the sum of the offsets and the sum of the ends."""
        found: dict[Place, Still] = {}
        for place, (position, end) in positions.items():
            if len(found) == PLACES_MAX:
                break
            before = self._known.get(place)
            if before is None or before.position != position or before.since_ms > now_ms:
                before = Still(position, end, now_ms, self._has_sample)
            found[place] = before
        self._known, self._has_sample = found, True

    def of(self, group: str, topic: str, position: int, now_ms: int) -> Still | None:
        """Return since when a group has had this position in a topic, None if it moved lately, or nothing is known."""
        still = self._known.get((group, topic))
        is_stopped = still is not None and still.position == position and now_ms - still.since_ms >= STILL_MS
        return still if is_stopped else None
