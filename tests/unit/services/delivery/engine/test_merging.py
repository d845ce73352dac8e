# SPDX-License-Identifier: Apache-2.0
"""Merged events have the effect of the events as they were, and a record has few of them."""

import random

import pytest

from libs.formats.records.delivery_record import (
    Copied,
    CopyEdge,
    DeliveryRecord,
    Event,
    Flight,
    Moved,
    Place,
    Policy,
    PolicySet,
    Postponed,
    Settled,
    Took,
)
from services.delivery.engine.journal.merging import merged, weight
from services.delivery.engine.state.groups import Groups

PLACES = [Place(group, topic, queue_id) for group in "gh" for topic in "tu" for queue_id in (0, 1)]


def state(groups: Groups) -> object:
    queues = [
        (queue.copied(), queue.due_ms(), queue.ready(10**9, 100), queue.committed) for queue in groups.all_queues()
    ]
    return queues, groups.policies, groups.open_count, groups.behind_ms


def random_event(chance: random.Random) -> Event:
    place, base = chance.choice(PLACES), chance.randrange(20)
    flights = tuple(
        Flight(offset, chance.randrange(1, 4), chance.randrange(100), chance.randrange(100), chance.choice([0, 0, 7]))
        for offset in sorted(chance.sample(range(30), chance.randrange(4)))
    )
    offsets = tuple(chance.sample(range(30), chance.randrange(1, 4)))
    kinds: list[Event] = [
        Settled(place, offsets),
        Postponed(place, flights),
        Took(place, base, flights, ()),
        Moved(place, base),
        Copied(place, base, flights, ()),
        PolicySet(place.group, chance.choice([None, Policy(attempts_max=2)])),
        CopyEdge(1, is_end=chance.random() < 0.5),
    ]
    return chance.choices(kinds, [12, 6, 4, 1, 1, 1, 1])[0]


@pytest.mark.parametrize("seed", range(300))
def test_merged_events_have_the_same_effect(seed: int) -> None:
    """The state after any events is the state after the merged events, and these are no more than before."""
    chance = random.Random(seed)
    events = [random_event(chance) for _ in range(chance.randrange(60))]
    plain, short = Groups(), Groups()
    for event in events:
        plain.apply(event)
    found = DeliveryRecord.decode(DeliveryRecord(owner="o", events=merged(events)).encode()).events
    for event in found:
        short.apply(event)
    assert state(short) == state(plain)
    assert len(found) <= len(events)


def test_settlements_of_a_queue_become_a_single_event() -> None:
    """Also if other queues' events lie between them. Any other event of the queue separates them."""
    one, other = PLACES[:2]
    took = Took(one, 9, ())
    events = [Settled(one, (1,)), Settled(other, (1,)), Settled(one, (2,)), took, Settled(one, (3,))]
    assert merged(events) == (Settled(one, (1, 2)), Settled(other, (1,)), took, Settled(one, (3,)))


def test_a_weight_counts_the_messages_in_flight() -> None:
    """They take most of a record's bytes."""
    flights = tuple(Flight(offset, 1, 1, 1) for offset in range(10))
    assert weight([Took(PLACES[0], 1, flights), Settled(PLACES[0], (1,)), CopyEdge(1, is_end=True)]) == 13
