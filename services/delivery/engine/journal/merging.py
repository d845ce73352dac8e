# SPDX-License-Identifier: Apache-2.0
"""Merging: fewer events with the same effect, for a record.

Members settle messages one by one, and each settlement is an event. A record has the settlements of a queue as a single
event, so that a message costs the record its queue offset, not the names of its group and topic.
"""

from collections.abc import Iterable

from libs.formats.records.delivery_record import Copied, Event, Flight, Moved, Place, Postponed, Settled, Took

_WITH_PLACE = Took | Moved | Copied


def merged(events: Iterable[Event]) -> tuple[Event, ...]:
    """Return events with the same effect. Neighbouring settlements, and neighbouring delays, of a queue become one.

    Events of different queues do not depend on each other. All other events keep their places: a policy, a deleted
    group, the edges of a copy. Pure.
    """
    found: list[Event | None] = []
    settled: dict[Place, tuple[int, list[int]]] = {}
    postponed: dict[Place, tuple[int, list[Flight]]] = {}
    """By queue: the place in `found`, and the messages of the event that is not complete yet."""

    def complete(places: Iterable[Place]) -> None:
        for place in places:
            if (one := settled.pop(place, None)) is not None:
                found[one[0]] = Settled(place, tuple(one[1]))
            if (other := postponed.pop(place, None)) is not None:
                found[other[0]] = Postponed(place, tuple(other[1]))

    for event in events:
        if isinstance(event, Settled):
            if event.place not in settled:
                complete([event.place])
                settled[event.place] = len(found), []
                found.append(None)
            settled[event.place][1].extend(event.offsets)
        elif isinstance(event, Postponed):
            if event.place not in postponed:
                complete([event.place])
                postponed[event.place] = len(found), []
                found.append(None)
            postponed[event.place][1].extend(event.flights)
        else:
            complete([event.place] if isinstance(event, _WITH_PLACE) else [*settled, *postponed])
            found.append(event)
    complete([*settled, *postponed])
    return tuple(event for event in found if event is not None)


def count(events: Iterable[Event]) -> int:
    """Return how many events these are, if each settled message is an event."""
    return sum(len(event.offsets) if isinstance(event, Settled) else 1 for event in events)


def weight(events: Iterable[Event]) -> int:
    """Return how many events and messages a record would have."""
    return sum(1 + len(getattr(event, "flights", ())) for event in events)
