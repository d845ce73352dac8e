# SPDX-License-Identifier: Apache-2.0
"""ParentQueues: which parents of the queues of a topic a group has not finished, at any shards.

A queue that opened when others were sealed has the keys of those: its parents. An ordered group settles all messages of
the parents first. The shards are asked in the background, so that a shard that is away holds up its own keys alone.
Callers: the event loop's thread. Memory: a text for each parent that is not finished.
"""

import asyncio
from collections.abc import Mapping, Sequence

from msgspec import Struct, field

from libs.formats.config.topic_share import Place as QueuePlace
from libs.machine.clock import Clock
from libs.requests.errors import DependencyUnavailable, TopicNotFound
from services.delivery.engine.ports.log import TopicQueues
from services.delivery.engine.ports.messages import SealedQueue, SealedStage
from services.delivery.engine.ports.shards import Shards
from services.delivery.engine.receive.sealed_queues import SealedQueues

LOOK_S = 0.5
"""The interval between an answer of the shards and the next question."""

Unfinished = Mapping[QueuePlace, str]
"""Parents that a group has not finished, and why."""


class _Looks(Struct):
    """The looks at the parents of the queues of a topic for a group."""

    queue_ids: frozenset[int] = frozenset()
    """The queues whose parents are looked at."""
    unfinished: Mapping[int, Unfinished] = field(default_factory=dict)
    looked_s: float = float("-inf")
    task: "asyncio.Task[None] | None" = None


class ParentQueues:
    """The parents of the queues for the groups of an ownership. `stop` them in the end."""

    def __init__(self, sealed: SealedQueues, shards: Shards, clock: Clock) -> None:
        self._sealed, self._shards, self._clock = sealed, shards, clock
        self._looks: dict[tuple[str, str], _Looks] = {}

    def look(self, group: str, topic: str, queues: TopicQueues, queue_ids: Sequence[int]) -> list[int]:
        """Return those of the queues whose parents are all finished, as of the last look, and look again in time."""
        looks = self._looks.setdefault((group, topic), _Looks())
        looks.queue_ids = frozenset(queue_ids)
        is_time = self._clock.monotonic_s() - looks.looked_s >= LOOK_S
        if looks.task is None and (is_time or not looks.queue_ids <= looks.unfinished.keys()):
            looks.task = asyncio.create_task(self._ask(group, topic, queues, looks), name="parents of queues")
        return [queue_id for queue_id in queue_ids if looks.unfinished.get(queue_id) == {}]

    def unfinished(self, group: str, topic: str, queue_id: int) -> Unfinished:
        """Return the parents of a queue that a group has not finished, as of the last look."""
        looks = self._looks.get((group, topic))
        return {} if looks is None else looks.unfinished.get(queue_id, {})

    def forget(self, group: str) -> None:
        """Forget a deleted group."""
        for key in [key for key in self._looks if key[0] == group]:
            self.end(*key)

    def end(self, group: str, topic: str) -> None:
        """End the looks for a group and a topic: no queue is held any more."""
        if (looks := self._looks.pop((group, topic), None)) is not None and looks.task is not None:
            looks.task.cancel()

    async def stop(self) -> None:
        """End all looks."""
        tasks = [looks.task for looks in self._looks.values() if looks.task is not None]
        for key in list(self._looks):
            self.end(*key)
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _ask(self, group: str, topic: str, queues: TopicQueues, looks: _Looks) -> None:
        """Ask for all parents of the queues, each shard once."""
        try:
            wanted = {queue_id: queues.parents[queue_id] for queue_id in looks.queue_ids}
            places = {place for parents in wanted.values() for place in parents}
            here = {place for place in places if place.queue_id in queues.ids}
            by_shard: dict[str, list[int]] = {"": sorted(place.queue_id for place in here)} if here else {}
            for place in sorted(places - here):
                by_shard.setdefault(place.shard, []).append(place.queue_id)
            answers = await asyncio.gather(
                *(self._reasons(shard, group, topic, queue_ids) for shard, queue_ids in by_shard.items())
            )
            reasons = {number: text for answer in answers for number, text in answer.items() if text}
            looks.unfinished = {
                queue_id: {place: reasons[place.queue_id] for place in parents if place.queue_id in reasons}
                for queue_id, parents in wanted.items()
            }
        finally:
            looks.looked_s, looks.task = self._clock.monotonic_s(), None

    async def _reasons(self, shard: str, group: str, topic: str, queue_ids: Sequence[int]) -> dict[int, str]:
        """Return for each queue of a shard, "" for this shard, why a group has not finished it; "" if it has."""
        where = f" of shard {shard}" if shard else ""
        try:
            found = await (
                self._shards.sealed_queues(shard, group, topic, queue_ids)
                if shard
                else self._sealed.of(group, topic, queue_ids)
            )
        except (DependencyUnavailable, TopicNotFound) as error:
            return {queue_id: f"queue {queue_id}{where}: {error}" for queue_id in queue_ids}
        by_id = {one.queue_id: one for one in found}
        return {queue_id: _reason(by_id.get(queue_id), f"queue {queue_id}{where}") for queue_id in queue_ids}


def _reason(queue: SealedQueue | None, name: str) -> str:
    """Return why a queue is not finished, "" if it is."""
    if queue is None:
        return f"{name} is not in the answer"
    match queue.stage:
        case SealedStage.SETTLED:
            return ""
        case SealedStage.UNSETTLED:
            return f"{name} has {queue.unsettled_count} messages that are not settled"
        case SealedStage.NO_POSITION:
            return f"the group did not receive from {name} yet"
        case SealedStage.NOT_INDEXED:
            return f"{name} is not indexed to its end yet"
        case SealedStage.NOT_SEALED:
            return f"{name} is not sealed yet"
