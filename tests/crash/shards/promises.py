# SPDX-License-Identifier: Apache-2.0
"""The promises to producers of keys and to an ordered group, compared with a history. Pure: no process, no clock."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from tests.crash.shards.history import Delivery, History

SHOWN_COUNT = 5


def check(history: History) -> tuple[list[str], Counter[str]]:
    """Return the faults, in words, and the counts of messages that came or were stored repeatedly, by cause."""
    wrong: list[str] = []
    for rule in (taken_when_sealed, opened_again, lost, unasked, after_ack, out_of_order, internal_errors):
        found = list(rule(history))
        wrong += found[:SHOWN_COUNT]
        if len(found) > SHOWN_COUNT:
            wrong.append(f"... and {len(found) - SHOWN_COUNT} more like this")
    counts: Counter[str] = Counter()
    for what, is_explained in doubled(history):
        if is_explained:
            counts["messages stored twice, sent again after an error"] += 1
        else:
            wrong.append(what)
    return wrong, counts


def lost(history: History) -> Iterator[str]:
    """The group receives each message that was acknowledged to its producer."""
    received = {one.name for one in history.deliveries}
    for sent in history.sent.values():
        if sent.answered_ms is not None and sent.name not in received:
            yield f"{sent.name} was acknowledged at {sent.answered_ms:.0f}, and never received"


def unasked(history: History) -> Iterator[str]:
    """Nothing is received that was not sent."""
    for one in history.deliveries:
        if one.name not in history.sent:
            yield f"{one.name} came from {one.place}, and was never sent"


def after_ack(history: History) -> Iterator[str]:
    """A message whose acknowledgement was answered does not come again by a later call."""
    settled: dict[tuple[str, int, int], float] = {}
    for one in sorted(history.deliveries, key=lambda one: one.began_ms):
        settled_ms = settled.get((one.name, *one.place))
        if settled_ms is not None and one.began_ms > settled_ms:
            yield f"{one.name} at {one.place} came at {one.arrived_ms:.0f}, and was settled at {settled_ms:.0f}"
        if one.settled_ms is not None:
            settled[one.name, *one.place] = min(one.settled_ms, settled_ms or one.settled_ms)


def out_of_order(history: History) -> Iterator[str]:
    """A message of a key comes once all before it are being settled, and no earlier message comes after it."""
    lanes: defaultdict[str, defaultdict[int, list[Delivery]]] = defaultdict(lambda: defaultdict(list))
    for one in history.deliveries:
        if (sent := history.sent.get(one.name)) is not None:
            lanes[sent.key][sent.number].append(one)
    for key, lane in lanes.items():
        for former, later in pairwise(sorted(lane)):
            first = min(lane[later], key=lambda one: one.arrived_ms)
            acks_ms = [one.settle_began_ms for one in lane[former] if one.settle_began_ms is not None]
            if first.arrived_ms < min(acks_ms, default=float("inf")):
                places = [one.place for one in lane[former]]
                yield f"{key}:{later} came from {first.place} before {key}:{former}, at {places}, was settled"
            for again in lane[former]:
                if again.began_ms > first.arrived_ms:
                    yield (
                        f"{key}:{former} came from {again.place} (attempt {again.attempt}) after {key}:{later} from "
                        f"{first.place}"
                    )


def opened_again(history: History) -> Iterator[str]:
    """A queue that is sealed stays sealed."""
    sealed: set[int] = set()
    for states in history.states:
        for queue_id, state in states.items():
            if state != "sealed" and queue_id in sealed:
                yield f"queue {queue_id} was sealed, and is {state} later"
        sealed |= {queue_id for queue_id, state in states.items() if state == "sealed"}


def taken_when_sealed(history: History) -> Iterator[str]:
    """A sealed queue takes no message, whatever its sender knows."""
    yield from history.taken


def internal_errors(history: History) -> Iterator[str]:
    """No command meets an internal error of a shard."""
    for change in history.changes:
        if "INTERNAL" in change:
            yield change


def doubled(history: History) -> Iterator[tuple[str, bool]]:
    """Yield messages at several places, and whether their producer sent them again after an error."""
    places: defaultdict[str, set[tuple[int, int]]] = defaultdict(set)
    for one in history.deliveries:
        places[one.name].add(one.place)
    for name, found in places.items():
        if len(found) > 1 and (sent := history.sent.get(name)) is not None:
            yield f"{name} is at {sorted(found)}, and was sent {sent.tries} times", sent.tries >= len(found)
