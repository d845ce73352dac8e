# SPDX-License-Identifier: Apache-2.0
"""The promises to producers and groups, compared with a history. Pure: no process, no clock.

Deliveries may come twice: when a receiver gave a message back, left it, or could not settle it in time. Each such case
is counted by its cause, and so are messages that a producer stored twice because it sent again. A case without a cause
is a broken promise. So is a message that came again although only a gateway died: if it died once, or if the client is
native and needs no gateway, however often it died.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise

from tests.crash.messaging.history import Delivery, History, Place, Sent

SHOWN_COUNT = 5
Rule = Callable[[History], Iterator[str]]


def check(history: History) -> tuple[list[str], Counter[str]]:
    """Return the faults, in words, and the counts of messages that were received or stored repeatedly, by cause."""
    wrong = broken(history, RULES)
    counts: Counter[str] = Counter()
    for judge in (redelivered, stored_twice):
        found = list(judge(history))
        counts.update(cause for cause, _ in found)
        wrong += _shown([what for _, what in found if what])
    return wrong, counts


def broken(history: History, rules: Sequence[Rule]) -> list[str]:
    """Return the faults by some of the rules, in words."""
    return [what for rule in rules for what in _shown(list(rule(history)))]


def lost(history: History) -> Iterator[str]:
    """Each group receives each message that was acknowledged, at the place of the producer's answer."""
    found = {(one.group, one.name) for one in history.deliveries}
    places = {(one.group, one.place) for one in history.deliveries}
    for sent in history.sent.values():
        for name in (name for name, group in history.groups.items() if group.topic == sent.topic):
            if sent.must_be_seen and (name, sent.name) not in found:
                yield f"{sent.name} was acknowledged at {sent.answered_ms}, and group {name} never received it"
            elif sent.must_be_seen and sent.place and (name, sent.place) not in places:
                yield f"{sent.name} was acknowledged at {sent.place}, and group {name} received it elsewhere alone"


def unasked(history: History) -> Iterator[str]:
    """Nothing is received that was not sent, or whose transaction is not committed, or before that, or too early."""
    for one in history.deliveries:
        sent, seen = history.sent.get(one.name), f"{one.name} came to group {one.group} at {one.arrived_ms}"
        if sent is None or sent.topic != one.place.topic:
            yield f"{seen} from {one.place}, and was never sent there"
        elif not sent.may_be_seen:
            yield f"{seen}, and its transaction is {sent.end or 'open'}"
        elif sent.end_began_ms is not None and one.arrived_ms < sent.end_began_ms:
            yield f"{seen}, before its transaction was committed at {sent.end_began_ms}"
        elif one.arrived_ms < sent.deliver_ms - history.early_ms(sent, one.arrived_ms):
            yield f"{seen}, before its time {sent.deliver_ms}"


def after_ack(history: History) -> Iterator[str]:
    """A message whose acknowledgement was answered does not come again: by no later call, and by no later attempt."""
    for (group, place), deliveries in _by_place(history).items():
        for done in (one for one in deliveries if one.verb == "ack" and one.settled_ms is not None):
            assert done.settled_ms is not None
            for one in deliveries:
                is_later = history.attempts_last and one.attempt > done.attempt
                if one is not done and (one.began_ms > done.settled_ms or is_later):
                    yield (
                        f"{one.name} at {place} came to group {group} at {one.arrived_ms} as attempt {one.attempt}, "
                        f"although the ack of attempt {done.attempt} was answered at {done.settled_ms}"
                    )


def out_of_order(history: History) -> Iterator[str]:
    """In an ordered group a message of a key comes once all before it are acknowledged, and they do not come again."""
    for group in (name for name, group in history.groups.items() if group.is_ordered):
        lanes: defaultdict[str, dict[Place, list[Delivery]]] = defaultdict(dict)
        for one in history.of_group(group):
            if one.name in history.sent:
                lanes[history.sent[one.name].key].setdefault(one.place, []).append(one)
        for key, places in lanes.items():
            if len({place.queue_id for place in places}) > 1:
                yield f"messages of key {key} are in several queues: {sorted(places)[:SHOWN_COUNT]}"
            for former, later in pairwise(sorted(places)):
                first_ms = min(one.arrived_ms for one in places[later])
                acks_ms = [one.settle_began_ms for one in places[former] if one.verb == "ack" and one.settle_began_ms]
                if first_ms < min(acks_ms, default=float("inf")):
                    yield f"group {group} got {later} of key {key} at {first_ms}, before {former} was acknowledged"
                if any(one.began_ms > first_ms for one in places[former]):
                    yield f"group {group} got {former} of key {key} again after {later}, which came at {first_ms}"


def stored_out_of_order(history: History) -> Iterator[str]:
    """A message of a key that a producer sent after an answer is stored behind the answered message."""
    firsts: dict[str, Place] = {}
    for one in history.deliveries:
        firsts[one.name] = min(firsts.get(one.name, one.place), one.place)
    lanes: defaultdict[str, list[Sent]] = defaultdict(list)
    for sent in sorted(history.sent.values(), key=lambda sent: sent.began_ms):
        if sent.key and sent.name in firsts:
            lanes[sent.key].append(sent)
    for key, lane in lanes.items():
        for former, later in pairwise(lane):
            answered_ms = former.answered_ms or float("inf")
            if answered_ms <= later.began_ms and firsts[former.name] > firsts[later.name]:
                yield f"{later.name} of key {key} is stored before {former.name}, which was answered before it was sent"


def redelivered(history: History) -> Iterator[tuple[str, str]]:
    """Yield the cause of each delivery that is not a message's first, and its fault, if any."""
    for (group, place), deliveries in _by_place(history).items():
        ordered = sorted(deliveries, key=lambda one: (one.attempt, one.arrived_ms))
        for former, again in pairwise(ordered):
            cause, wrong = _cause(history, former, again)
            what = (
                f"{again.name} at {place} came to group {group} at {former.arrived_ms} and {again.arrived_ms}: {wrong}"
            )
            yield f"came again: {cause}", what if wrong else ""


def _cause(history: History, former: Delivery, again: Delivery) -> tuple[str, str]:
    """Return why a message was delivered again, and the fault in it, if any."""
    over_ms = former.began_ms + former.invisible_ms
    began_ms = former.settle_began_ms
    if former.verb == "nack" and began_ms is not None and again.arrived_ms >= began_ms + former.delay_ms:
        return "its receiver gave it back", ""
    has_restarted = "delivery" in history.died_within(former.began_ms, again.arrived_ms)
    if again.arrived_ms < over_ms and has_restarted and history.set_ahead_ms(former.began_ms, again.arrived_ms):
        return "Delivery died, and the log's clock was set ahead", ""
    if again.arrived_ms < over_ms:
        return "before its time was over", f"it was the receiver's until {over_ms}"
    if not former.verb:
        return "its receiver left it", ""
    deaths = history.deaths_within(former.began_ms, again.arrived_ms)
    died = sorted({one.service for one in deaths})
    who = " and ".join(died) or "nobody"
    if began_ms is None or began_ms >= over_ms:
        return f"its receiver came to it too late, {who} had died", ""
    is_once = len({one.killed_ms for one in deaths}) == 1
    is_unexplained = not died or (died == ["gateway"] and (is_once or history.groups[former.group].is_native))
    return f"could not be settled in time, {who} had died", f"{who} had died meanwhile" if is_unexplained else ""


def stored_twice(history: History) -> Iterator[tuple[str, str]]:
    """Yield the cause of each place of a message but its first, and its fault, if any."""
    places: defaultdict[str, set[Place]] = defaultdict(set)
    for one in history.deliveries:
        places[one.name].add(one.place)
    for sent in history.sent.values():
        for _ in range(len(places[sent.name]) - 1):
            ways = {"commitlog"} if sent.is_native else {"commitlog", "gateway"}
            died = [service for service in history.died_within(sent.began_ms, sent.until_ms) if service in ways]
            may_be = died and sent.kind != "transaction"
            cause = f"stored twice: sent again, {' and '.join(died) or 'nobody'} had died"
            yield cause, "" if may_be else f"{sent.name} ({sent.kind}) is at {sorted(places[sent.name])}: {cause}"


def _by_place(history: History) -> dict[tuple[str, Place], list[Delivery]]:
    found: defaultdict[tuple[str, Place], list[Delivery]] = defaultdict(list)
    for one in history.deliveries:
        found[one.group, one.place].append(one)
    return found


def _shown(found: list[str]) -> list[str]:
    more = len(found) - SHOWN_COUNT
    return [*found[:SHOWN_COUNT], *([f"… and {more} more like this"] if more > 0 else [])]


RULES: tuple[Rule, ...] = (lost, unasked, after_ack, out_of_order, stored_out_of_order)
