# SPDX-License-Identifier: Apache-2.0
"""QueueChoice: the queue of a message without a key: of two queues at random the queue with fewer messages.

So a slow shard gets fewer messages by itself. A shard that could not be reached gets none for a second, as long as
another has a queue: its calls fail fast, and so would draw all messages.
Callers: the event loop's thread. Memory: a number for each queue that has messages under way.
"""

import random
from collections import Counter
from collections.abc import Sequence

from libs.formats.config.topic_share import Place
from libs.machine.clock import Clock

AWAY_S = 1.0


class QueueChoice:
    """The messages under way by queue, and the shards that are away."""

    def __init__(self, clock: Clock, chance: random.Random) -> None:
        self._clock, self._random = clock, chance
        self._under_way: Counter[tuple[str, Place]] = Counter()
        self._away_until_s: dict[str, float] = {}

    def choose(self, topic: str, places: Sequence[Place]) -> Place:
        """Return the queue for a message. There is at least one."""
        now_s = self._clock.monotonic_s()
        here = [place for place in places if self._away_until_s.get(place.shard, now_s) <= now_s] or places
        drawn = self._random.sample(here, min(2, len(here)))
        return min(drawn, key=lambda place: self._under_way[topic, place])

    def begin(self, topic: str, place: Place, count: int) -> None:
        """Record that messages are on their way to a queue."""
        self._under_way[topic, place] += count

    def end(self, topic: str, place: Place, count: int) -> None:
        """Record that messages have arrived, or failed."""
        self._under_way[topic, place] -= count
        if self._under_way[topic, place] <= 0:
            del self._under_way[topic, place]

    def leave(self, shard: str) -> None:
        """Record that a shard could not be reached."""
        self._away_until_s[shard] = self._clock.monotonic_s() + AWAY_S
