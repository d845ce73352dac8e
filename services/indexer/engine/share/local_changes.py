# SPDX-License-Identifier: Apache-2.0
"""LocalChanges: offsets that were changed here, until they come back as records of the log.

Invariants: a change is unsent, or in the record with a certain number; only the last change of an offset is kept. A
local change is not overwritten by records that lie before its own record in the log. Pure.
"""

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TypeAlias

from libs.formats.records.delay_level import SCHEDULE_TOPIC
from libs.formats.records.state_record import GroupOffsets, StateRecord
from libs.formats.state.system_topics import LEVELS_GROUP

Place: TypeAlias = tuple[str, str, int]
"""Group, topic and queue id."""
Queue: TypeAlias = tuple[str, int]

CHANGE_COUNT_MAX = 1_000
"""Changes of a record: with the longest names they take half a megabyte."""


class LocalChanges:
    """The local changes by place. None is a deleted offset."""

    def __init__(self) -> None:
        self._unsent: dict[Place, int | None] = {}
        self._sent: dict[Place, int] = {}
        """Number of the record that has the last change of a place, for places without an unsent change."""

    def __contains__(self, place: Place) -> bool:
        return place in self._unsent or place in self._sent

    def __bool__(self) -> bool:
        return bool(self._unsent or self._sent)

    @property
    def unsent(self) -> Mapping[Place, int | None]:
        """Changes that are in no record."""
        return self._unsent

    @property
    def unsent_count(self) -> int:
        """Changes that are in no record."""
        return len(self._unsent)

    def note(self, group: str, offsets: Mapping[Queue, int | None]) -> None:
        """Record changes of a group."""
        for queue, queue_offset in offsets.items():
            self._unsent[group, *queue] = queue_offset
            self._sent.pop((group, *queue), None)

    def pop(self, number: int) -> dict[Place, int | None]:
        """Return the next changes, which the caller sends in the record of this number."""
        found = dict(islice(self._unsent.items(), CHANGE_COUNT_MAX))
        for place in found:
            del self._unsent[place]
            self._sent[place] = number
        return found

    def put_back(self, changes: Mapping[Place, int | None], number: int) -> None:
        """Make changes unsent again, because their record may not be in the log. Later changes of a place stay."""
        for place, queue_offset in changes.items():
            if self._sent.get(place) == number:
                del self._sent[place]
                self._unsent[place] = queue_offset

    def heard(self, number: int) -> None:
        """Drop the changes of the records up to this number: the log has them."""
        for place in [place for place, sent in self._sent.items() if sent <= number]:
            del self._sent[place]

    def clear(self) -> None:
        """Drop all changes, because nothing is shared."""
        self._unsent.clear()
        self._sent.clear()


def nested(changes: Mapping[Place, int | None]) -> GroupOffsets:
    """Return changes in the form of a record."""
    groups: GroupOffsets = {}
    for (group, topic, queue_id), queue_offset in changes.items():
        groups.setdefault(group, {}).setdefault(topic, {})[queue_id] = queue_offset
    return groups


def changes(record: StateRecord) -> Iterator[tuple[Place, int | None]]:
    """Yield the offsets of a record, by place. Older versions have the delay levels apart from the groups."""
    for queue_id, progress in record.delays.items():
        yield (LEVELS_GROUP, SCHEDULE_TOPIC, queue_id), progress.next_queue_offset
    yield from places(record.offsets)


def places(offsets: GroupOffsets) -> Iterator[tuple[Place, int | None]]:
    """Yield the offsets of a record, by place."""
    for group, topics in offsets.items():
        for topic, queues in topics.items():
            for queue_id, queue_offset in queues.items():
                yield (group, topic, queue_id), queue_offset
