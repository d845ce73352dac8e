# SPDX-License-Identifier: Apache-2.0
"""Positions: where groups begin in the queues of their topics.

A group that never received from a topic begins in all queues that exist: at the offset that it committed, or at the
beginning or the end of the queue, as its policy says. A queue that the topic gets later begins with its first message,
independently of the policy.
A queue that opened when others were sealed, on the same shard or others, begins with its first message, too.
Invariants: a later queue of an ordered group gets its position once all messages are settled that other queues had
before its first message, so that the messages of a key stay in their order; a queue with parents gets it once all
messages of the parents are settled. Until then the queue is held. Holds are derived from stored messages and offsets,
so the next owner holds the same queues.
Callers: the event loop's thread. Memory: for each queue that is held a number for each queue that it waits for.
"""

import asyncio
from collections.abc import Mapping
from weakref import WeakValueDictionary

from msgspec import Struct, field

from libs.formats.records.delivery_record import Event, Moved, Place, PolicySet
from libs.machine.clock import Clock
from libs.requests.errors import WindowFull
from services.delivery.config import DeliveryConfig
from services.delivery.engine.journal.journal import Journal
from services.delivery.engine.ports.index import Index
from services.delivery.engine.ports.log import Log, TopicQueues
from services.delivery.engine.ports.messages import Wanted
from services.delivery.engine.receive.parents import ParentQueues
from services.delivery.engine.state.dead_letter_topic import dead_letter_topic
from services.delivery.engine.state.groups import Groups
from services.delivery.errors import MessageDamaged

TOPIC_LOOK_S = 5.0
"""For how long a topic's number of queues is cached."""
HOLD_LOOK_S = 1.0
"""The interval of checks whether a held queue has its first message."""

Bounds = Mapping[int, tuple[int, int]]


class Hold(Struct):
    """Why a queue is not delivered yet."""

    begin: int = 0
    first_ms: int | None = None
    """Store time of the first message; None while the queue has no message."""
    ends: dict[int, int] | None = None
    """Queues with unsettled messages from before that time, and the end of these. None before the first look."""


class _Holds(Struct):
    """The queues of a topic that are held for a group."""

    looked_s: float = float("-inf")
    queues: dict[int, Hold] = field(default_factory=dict)


class Positions:
    """The positions of the groups of an ownership, and the queues that are held."""

    def __init__(
        self,
        groups: Groups,
        journal: Journal,
        log: Log,
        index: Index,
        parents: ParentQueues,
        clock: Clock,
        config: DeliveryConfig,
    ) -> None:
        self._groups, self._journal, self._log, self._index = groups, journal, log, index
        self._clock, self._config = clock, config
        self.parents = parents
        self._queues: dict[str, tuple[float, TopicQueues]] = {}
        self._opening: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        """Locks by group: a slow answer of the index for a group delays no other group."""
        self._holds: dict[tuple[str, str], _Holds] = {}

    async def begin(self, group: str, topic: str) -> None:
        """Give a group a position in each queue in which it has none and that is not held.

        Raises TopicNotFound, DependencyUnavailable, WindowFull, and the journal's failure.
        """
        queues = await self.queues(topic)
        if not (missing := self._missing(group, topic, queues)):
            self._end_holds(group, topic)
            return
        self.check_room(len(missing))
        async with self._opening.setdefault(group, asyncio.Lock()):
            if not (missing := self._missing(group, topic, queues)):
                return
            policy = None if self._groups.is_known(group) else await self._index.stored_policy(group)
            positions = await self._positions(group, topic, queues, missing)
            events: list[Event] = [Moved(Place(group, topic, one), position) for one, position in positions.items()]
            if policy is not None and not self._groups.is_known(group):  # otherwise it was given a policy meanwhile
                events.append(PolicySet(group, policy))
            for event in events:
                self._groups.apply(event)
            if events:
                await self._journal.write(events, is_safe=False)

    async def begun(self, group: str, topic: str) -> list[int]:
        """Return the queues in which a group has a position. Raises TopicNotFound and DependencyUnavailable."""
        ids = (await self.queues(topic)).ids
        return [queue_id for queue_id in ids if self._groups.find(Place(group, topic, queue_id)) is not None]

    def held(self, group: str, topic: str) -> Mapping[int, Hold]:
        """Return the queues that are held for a group."""
        holds = self._holds.get((group, topic))
        return {} if holds is None else holds.queues

    def held_topics(self, group: str) -> set[str]:
        """Return the topics of which queues are held for a group."""
        return {topic for (name, topic), holds in self._holds.items() if name == group and holds.queues}

    def forget(self, group: str) -> None:
        """Drop the holds of a deleted group."""
        self._holds = {key: holds for key, holds in self._holds.items() if key[0] != group}
        self.parents.forget(group)

    def _end_holds(self, group: str, topic: str) -> None:
        if self._holds.pop((group, topic), None) is not None:
            self.parents.end(group, topic)

    def waits_for(self, group: str, topic: str, hold: Hold) -> dict[int, int]:
        """Return the queues that a held queue waits for, and up to which queue offset."""
        return {
            queue_id: end
            for queue_id, end in (hold.ends or {}).items()
            if (queue := self._groups.find(Place(group, topic, queue_id))) is None or queue.committed < end
        }

    def check_room(self, count: int) -> None:
        """Return if there is room for `count` more queues of groups. Raises WindowFull."""
        if self._groups.size + count > self._config.group_queue_count_max:
            raise WindowFull("queues of groups", limit=self._config.group_queue_count_max)

    async def queues(self, topic: str) -> TopicQueues:
        """Return the queues of a topic that are read. Raises TopicNotFound and DependencyUnavailable."""
        now_s = self._clock.monotonic_s()
        known = self._queues.get(topic)
        if known is None or now_s - known[0] > TOPIC_LOOK_S:
            if len(self._queues) > self._config.subscription_count_max:
                self._queues.clear()
            known = self._queues[topic] = (now_s, await self._log.topic_queues(topic))
        return known[1]

    def _missing(self, group: str, topic: str, queues: TopicQueues) -> list[int]:
        return [queue_id for queue_id in queues.ids if self._groups.find(Place(group, topic, queue_id)) is None]

    async def _positions(self, group: str, topic: str, queues: TopicQueues, missing: list[int]) -> dict[int, int]:
        """Return where a group begins in the missing queues that are not held."""
        holds = self._holds.setdefault((group, topic), _Holds())
        policy, is_ordinary = self._groups.policy(group), topic != dead_letter_topic(group)
        keeps_order = policy.is_ordered and is_ordinary
        has_begun = len(missing) < len(queues.ids)
        is_held = holds.queues.keys() >= set(missing) and (has_begun or queues.parents.keys() >= set(missing))
        if keeps_order and is_held:
            return await self._freed(group, topic, holds, queues, missing)
        bounds = await self._index.bounds(topic)
        committed = {one: await self._index.stored_offset(group, topic, one) for one in missing}
        has_begun = has_begun or any(one is not None for one in committed.values())
        positions: dict[int, int] = {}
        for queue_id in missing:
            least, most = bounds.get(queue_id, (0, 0))
            is_later = has_begun or bool(queues.parents.get(queue_id))
            if (position := committed[queue_id]) is not None:
                positions[queue_id] = min(max(position, least), most)
            elif is_later and keeps_order:
                holds.queues.setdefault(queue_id, Hold())
            else:
                positions[queue_id] = most if policy.from_end and is_ordinary and not is_later else least
        if holds.queues:
            left = [one for one in missing if one not in positions]
            positions |= await self._freed(group, topic, holds, queues, left)
        return positions

    async def _freed(
        self, group: str, topic: str, holds: _Holds, queues: TopicQueues, missing: list[int]
    ) -> dict[int, int]:
        """Return which queues are held no more, and where they begin."""
        holds.queues = {one: holds.queues[one] for one in missing}
        freed = await self._freed_by_parents(group, topic, queues, missing)
        later = {queue_id: hold for queue_id, hold in holds.queues.items() if not queues.parents.get(queue_id)}
        now_s = self._clock.monotonic_s()
        if any(hold.ends is None for hold in later.values()) and now_s - holds.looked_s >= HOLD_LOOK_S:
            holds.looked_s = now_s
            await self._look(group, topic, later, queues)
        freed |= {
            queue_id: hold.begin
            for queue_id, hold in later.items()
            if hold.ends is not None and not self.waits_for(group, topic, hold)
        }
        for queue_id in freed:
            del holds.queues[queue_id]
        return freed

    async def _freed_by_parents(
        self, group: str, topic: str, queues: TopicQueues, missing: list[int]
    ) -> dict[int, int]:
        """Return the queues with parents that the group has finished, and where they begin."""
        children = [queue_id for queue_id in missing if queues.parents.get(queue_id)]
        if not children or not (freed := self.parents.look(group, topic, queues, children)):
            return {}
        bounds = await self._index.bounds(topic)
        return {queue_id: bounds.get(queue_id, (0, 0))[0] for queue_id in freed}

    async def _look(self, group: str, topic: str, held: dict[int, Hold], queues: TopicQueues) -> None:
        """Find the first messages of held queues, and the queues that they wait for."""
        bounds = await self._index.bounds(topic)
        for queue_id, hold in held.items():
            least, most = bounds.get(queue_id, (0, 0))
            if hold.first_ms is None and most > least:
                await self._find_first(topic, queue_id, least, hold)
        bounds = await self._index.bounds(topic)  # again, with all messages stored before the first messages
        for queue_id, hold in held.items():
            if hold.first_ms is not None and hold.ends is None:
                others = [one for one in queues.ids if one != queue_id and one in bounds]
                hold.ends = {
                    other: end
                    for other in others
                    if (end := await self._end(group, topic, other, hold.first_ms, held, bounds)) is not None
                }

    async def _find_first(self, topic: str, queue_id: int, least: int, hold: Hold) -> None:
        try:
            pulled = await self._index.pull(topic, queue_id, least, wanted=Wanted(), count=1, size_bytes=1, wait_s=0)
        except MessageDamaged:  # its store time is unknown, and at the latest now
            hold.begin, hold.first_ms = least, self._clock.now_ms()
            return
        if pulled.found:
            hold.begin, hold.first_ms = pulled.found[0].queue_offset, pulled.found[0].store_time_ms

    async def _end(
        self, group: str, topic: str, queue_id: int, first_ms: int, queues: Mapping[int, Hold], bounds: Bounds
    ) -> int | None:
        """Return up to where a queue has messages from before a time that are not settled, None if it has none."""
        least, most = bounds[queue_id]
        queue, other = self._groups.find(Place(group, topic, queue_id)), queues.get(queue_id)
        if queue is None:  # queues that begin in the same millisecond do not wait for each other
            is_later = other is None or other.first_ms is None or other.first_ms >= first_ms
            committed, before_ms = most if is_later else least, first_ms
        else:
            committed, before_ms = max(queue.committed, least), first_ms + 1
        if committed >= most:
            return None
        end = await self._index.offset_at(topic, queue_id, before_ms)
        return end if end > committed else None
