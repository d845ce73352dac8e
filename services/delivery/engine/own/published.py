# SPDX-License-Identifier: Apache-2.0
"""PublishedState: the positions and policies of groups as the Indexer has them, for RocketMQ and other tools.

The journal stays the truth: the Indexer's copy may be late. Callers: the event loop's thread.
Memory: a number for each queue of each group.
"""

import contextlib
from collections.abc import Iterator

from libs.formats.records.delivery_record import Place, Policy
from libs.formats.state.system_topics import LEVELS_GROUP
from libs.requests.errors import DependencyUnavailable
from services.delivery.engine.dead_letters.writer import DeadLetterWriter
from services.delivery.engine.ports.index import Index
from services.delivery.engine.state.groups import Groups


class PublishedState:
    """The positions and policies that the Indexer has of the groups of an ownership."""

    def __init__(self, groups: Groups, index: Index, dead_letter_writer: DeadLetterWriter) -> None:
        self._groups, self._index, self._dead_letter_writer = groups, index, dead_letter_writer
        self._offsets: dict[Place, int] = {}
        self._policies: dict[str, Policy] = {}

    @property
    def is_complete(self) -> bool:
        """Whether the Indexer has the positions of all groups, as of the last record of the journal."""
        return not self._dead_letter_writer.is_busy and all(
            self._offsets.get(place) == position for place, position in self._positions()
        )

    async def publish(self) -> None:
        """Send positions and policies that have changed. An Indexer that is away gets them next time."""
        await self._publish_policies()
        changed: dict[str, dict[tuple[str, int], int]] = {}
        for place, position in self._positions():
            if self._offsets.get(place) != position:
                changed.setdefault(place.group, {})[place.topic, place.queue_id] = position
        for group, offsets in changed.items():
            with contextlib.suppress(DependencyUnavailable):
                await self._index.store_offsets(group, offsets)
                stored = {Place(group, *queue): offset for queue, offset in offsets.items()}
                self._offsets |= {place: offset for place, offset in stored.items() if self._is_there(place)}

    def _positions(self) -> Iterator[tuple[Place, int]]:
        """Yield the positions of groups and delay levels. Queues may be added and removed meanwhile."""
        yield from self._groups.level_positions().items()
        yield from ((queue.place, queue.committed) for queue in self._groups.all_queues())

    def _is_there(self, place: Place) -> bool:
        return place.group == LEVELS_GROUP or self._groups.find(place) is not None

    def forget(self, group: str) -> None:
        """Forget the positions of a deleted group."""
        self._offsets = {place: offset for place, offset in self._offsets.items() if place.group != group}

    async def _publish_policies(self) -> None:
        policies: dict[str, Policy | None] = dict.fromkeys(self._policies.keys() - self._groups.policies.keys())
        policies |= self._groups.policies.items() - self._policies.items()
        if policies:
            sent = dict(self._groups.policies)
            with contextlib.suppress(DependencyUnavailable):
                await self._index.store_policies(policies)
                self._policies = sent
