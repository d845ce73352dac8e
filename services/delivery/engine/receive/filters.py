# SPDX-License-Identifier: Apache-2.0
"""Filters: the filters of the members of a group for a topic, and which members a message is for.

A filter is in use while a member receives with it, LIVE_S longer, and while a message that it let through is in flight.
A message is for each member whose filter it passes. A message that passes no filter in use is for no member, and is
settled. For RETURN_S after a takeover each message is for some member, because the former members may still come back.
Invariants: at most FILTER_COUNT_MAX filters are in use; a change is logged once. Callers: the event loop's thread.
Memory: the expressions, GIVEN_COUNT deliveries of each, and the queue offsets that a filter did not let through.
"""

import logging
from collections import OrderedDict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from libs.filters.tag_expression import EVERY_TAG, EXPRESSION_SIZE_BYTES_MAX, SEPARATOR, TAG_COUNT_MAX
from libs.formats.records.delivery_record import Flight
from libs.machine.clock import Clock
from libs.requests.errors import WindowFull
from services.delivery.engine.ports.index import Index
from services.delivery.engine.ports.messages import Found, Wanted
from services.delivery.engine.state.groups import Groups
from services.delivery.engine.state.queue import QueueState

LIVE_S = 30.0
"""How long a filter is in use after the last receive with it."""
RETURN_S = 10.0
"""How long members have to come back after a takeover."""
FILTER_COUNT_MAX = 32
GIVEN_COUNT = 64
REPORTED_COUNT_MAX = 1_000
"""Groups and topics whose filters are reported as metrics."""
SHOWN_SIZE = 200
"""Characters of an expression in the log."""
EVERYTHING = Wanted()

_log = logging.getLogger(__name__)


class _Use:
    """The use of a filter."""

    def __init__(self) -> None:
        self.asked_s = 0.0
        """Monotonic time of the last receive with this filter."""
        self.given: OrderedDict[tuple[QueueState, int], int] = OrderedDict()
        """Stamps of the last deliveries, by queue and queue offset."""
        self.misfits: dict[QueueState, set[int]] = {}
        """Open messages that are known to be for other members."""

    def is_live(self, now_s: float, now_ms: int) -> bool:
        if now_s - self.asked_s <= LIVE_S:
            return True
        flights = ((stamp, queue.flight(offset)) for (queue, offset), stamp in self.given.items())
        return any(
            flight is not None and flight.stamp == stamp and flight.until_ms > now_ms for stamp, flight in flights
        )


class Filters:
    """The filters in use of a group and topic."""

    def __init__(self, group: str, topic: str, index: Index, clock: Clock, *, return_s: float) -> None:
        self.group, self.topic = group, topic
        self.union = EVERYTHING
        """The filter for reading: each message that passes a filter in use passes it, and maybe further messages."""
        self._index, self._clock = index, clock
        self._return_until_s = clock.monotonic_s() + return_s
        self._is_return_over = return_s <= 0
        self._uses: dict[Wanted, _Use] = {}
        self._did_differ = False

    @property
    def live(self) -> Sequence[Wanted]:
        """The filters in use, sorted."""
        return sorted(self._uses)

    @property
    def count(self) -> int:
        """How many filters are in use. From any thread."""
        return len(self._uses)

    @property
    def differ(self) -> bool:
        """Whether members ask for different messages."""
        return len(self._uses) > 1

    @property
    def awaits_return(self) -> bool:
        """Whether the members from before a takeover may still come back."""
        return not self._is_return_over

    def ask(self, wanted: Wanted, now_ms: int) -> None:
        """Record a receive with this filter. Raises WindowFull if members use too many different filters."""
        use = self._uses.get(wanted)
        if use is None:
            self.look(now_ms)
            if len(self._uses) >= FILTER_COUNT_MAX:
                raise WindowFull("different filters of the members of one group", limit=FILTER_COUNT_MAX)
            use = self._uses[wanted] = _Use()
            self._changed()
        use.asked_s = self._clock.monotonic_s()

    def gave(self, wanted: Wanted, queue: QueueState, flights: Iterable[Flight]) -> None:
        """Record deliveries to a member with this filter."""
        use = self._uses.get(wanted)
        if use is None:
            return
        for flight in flights:
            use.given[queue, flight.offset] = flight.stamp
            use.given.move_to_end((queue, flight.offset))
            if len(use.given) > GIVEN_COUNT:
                use.given.popitem(last=False)

    def extended(self, queue: QueueState, former: Flight, flight: Flight) -> None:
        """Record that a member keeps a message for longer."""
        for use in self._uses.values():
            if use.given.get((queue, flight.offset)) == former.stamp:
                use.given[queue, flight.offset] = flight.stamp

    def look(self, now_ms: int) -> bool:
        """Drop filters that are not in use any more. Returns whether the filter for reading may have changed."""
        now_s = self._clock.monotonic_s()
        gone = [wanted for wanted, use in self._uses.items() if not use.is_live(now_s, now_ms)]
        for wanted in gone:
            del self._uses[wanted]
        is_over = not self._is_return_over and now_s >= self._return_until_s
        self._is_return_over = self._is_return_over or is_over
        if gone or is_over:
            self._changed(is_quiet=not gone)
        return bool(gone or is_over)

    def passes(self, found: Found, wanted: Wanted) -> bool:
        """Return whether a message passes a filter."""
        return wanted == EVERYTHING or self._index.passes(found, wanted)

    def is_for_others(self, found: Found, wanted: Wanted) -> bool:
        """Return whether a message that does not pass this filter is for other members."""
        return self.awaits_return or self.is_for_known(found, but_not=wanted)

    def is_for_known(self, found: Found, *, but_not: Wanted) -> bool:
        """Return whether a message passes another filter in use than `but_not`."""
        return any(self.passes(found, other) for other in self._uses if other != but_not)

    def misfits(self, wanted: Wanted, queue: QueueState) -> set[int]:
        """Return queue offsets of open messages that are known not to pass a filter. The caller may add to the set."""
        use = self._uses.get(wanted)
        if use is None:
            return set()
        found = use.misfits.setdefault(queue, set())
        if len(found) > 2 * queue.open_count + GIVEN_COUNT:
            found.intersection_update(queue.open_offsets())
        return found

    def _changed(self, *, is_quiet: bool = False) -> None:
        self.union = EVERYTHING if self.awaits_return else _union(self._uses)
        for use in self._uses.values():
            use.misfits.clear()  # messages for a member that is gone are looked at again
        if is_quiet or not (self.differ or self._did_differ):
            return
        self._did_differ = self.differ
        shown = ", ".join(map(_shown, self.live)) or "nothing at the moment"
        if self.differ:
            text = (
                "members of group %s ask for different messages of %s: %s. Each gets what its own filter lets through"
            )
            _log.warning(text, self.group, self.topic, shown)
        else:
            _log.info("members of group %s ask for the same messages of %s again: %s", self.group, self.topic, shown)


@dataclass(frozen=True, slots=True)
class FilterCount:
    """How many filters the members of a group use for a topic."""

    count: int = field(default=0, metadata={"metric": "filters", "former": "filter_count"})
    """Filters that the members of the group use for the topic."""


class AllFilters:
    """The filters of all groups of an ownership, by group and topic.

    They stay while they are in use, also when the subscription is closed, so a group that pauses keeps its filters.
    """

    def __init__(self, groups: Groups, index: Index, clock: Clock) -> None:
        self._index, self._clock = index, clock
        self._began_s = clock.monotonic_s()
        self._returning = {(queue.place.group, queue.place.topic) for queue in groups.all_queues()}
        """Groups and topics whose former members may come back."""
        self._filters: dict[tuple[str, str], Filters] = {}

    def of(self, group: str, topic: str) -> Filters:
        """Return the filters of the members of a group for a topic."""
        if (found := self._filters.get((group, topic))) is None:
            age_s = self._clock.monotonic_s() - self._began_s
            return_s = RETURN_S - age_s if (group, topic) in self._returning else 0
            found = self._filters[group, topic] = Filters(group, topic, self._index, self._clock, return_s=return_s)
        return found

    def find(self, group: str, topic: str) -> Filters | None:
        """Return the filters of a group and topic, None if no member has received lately."""
        return self._filters.get((group, topic))

    def of_group(self, group: str) -> list[Filters]:
        """Return the filters of a group, sorted by topic."""
        return [filters for (name, _), filters in sorted(self._filters.items()) if name == group]

    def forget(self, group: str) -> None:
        """Drop the filters of a deleted group."""
        for key in [key for key in self._filters if key[0] == group]:
            del self._filters[key]

    def look(self, now_ms: int, used: Collection[tuple[str, str]]) -> list[tuple[str, str]]:
        """Drop filters that are not in use, except for `used`. Returns the groups and topics whose filters changed."""
        if self._returning and self._clock.monotonic_s() - self._began_s > RETURN_S:
            self._returning.clear()
        changed = [key for key, filters in self._filters.items() if filters.look(now_ms)]
        for key in [key for key, filters in self._filters.items() if not filters.live and key not in used]:
            del self._filters[key]
        return changed

    def counts(self) -> Mapping[tuple[str, ...], FilterCount]:
        """Return how many filters are in use, by group and topic. From any thread."""
        return {key: FilterCount(filters.count) for key, filters in list(self._filters.items())[:REPORTED_COUNT_MAX]}


def _union(filters: Iterable[Wanted]) -> Wanted:
    """Return a filter that lets through all messages of these filters, and as few others as a filter can express."""
    all_filters = list(filters)
    if len(all_filters) == 1:
        return all_filters[0]
    if any(one.tags == EVERY_TAG for one in all_filters):
        tags = EVERY_TAG
    else:
        found = sorted({tag for one in all_filters for tag in one.tags.split(SEPARATOR)})
        tags = SEPARATOR.join(found)
        if len(found) > TAG_COUNT_MAX or len(tags.encode()) > EXPRESSION_SIZE_BYTES_MAX:
            tags = EVERY_TAG
    conditions = {one.where for one in all_filters}
    return Wanted(tags or EVERY_TAG, conditions.pop() if len(conditions) == 1 else "")


def _shown(wanted: Wanted) -> str:
    where = f" where {wanted.where}" if wanted.where else ""
    return repr(f"{wanted.tags}{where}"[:SHOWN_SIZE])
