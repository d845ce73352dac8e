# SPDX-License-Identifier: Apache-2.0
"""ShardedLog: sends messages to the shards of their queues: by the hash of their key, else to a queue with room.

The messages of a request that belong to several shards are a batch at each shard: all of a shard's messages are
stored, or none.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence

from reput.commitlog.v1.append_service_pb2 import AppendMessage
from reput.commitlog.v1.topic_service_pb2 import CreateTopicRequest

from libs.formats.config.topic_share import Place, TopicShare
from libs.machine.clock import Clock
from libs.requests.errors import PeerError
from libs.runtime.rpc.topic_shares import message_of
from libs.shards.change import change_of, first_shares
from libs.shards.route import Route
from services.gateway.engine.names import is_of_group
from services.gateway.engine.shards.choice import QueueChoice
from services.gateway.engine.shards.traffic import ShardTraffic
from services.gateway.rpc.store.log_client import LogClient, queue_count_of
from services.gateway.rpc.store.ports import Sent, TopicQueues
from services.gateway.rpc.store.shards.routes import Found, TopicRoutes

KEY, MESSAGE_ID = "__SHARDINGKEY", "UNIQ_KEY"
QUEUES_PER_SHARD = 4
"""Queues of a topic that is created when a client asks for it, for each shard."""
REPEATS = 3
"""How often a message is sent again when its queue was sealed meanwhile."""
OPENING_S, OPENING_LOOK_S = 3.0, 0.05
"""How long a message waits for the new queue of its key, and how often the shards are asked meanwhile."""


class ShardedLog:
    """The logs of the shards, by the names of the shards. All calls raise PeerError and Refused.

    With `is_once` a message without a key goes to the queue of its id, so that it comes to the same shard again. New
    topics get queues at the shards `new_topics_at`.
    """

    def __init__(
        self,
        logs: Mapping[str, LogClient],
        traffic: ShardTraffic,
        clock: Clock,
        *,
        creates_topics: bool,
        new_topics_at: Sequence[str],
        is_once: bool = False,
    ) -> None:
        self._logs, self.creates_topics, self._is_once = logs, creates_topics, is_once
        self._new_topics_at, self._traffic, self._clock = new_topics_at, traffic, clock
        self._routes = TopicRoutes(logs, clock)
        self._choice = QueueChoice(clock, random.Random())  # noqa: S311 - no secret

    async def send(self, messages: Sequence[AppendMessage]) -> Sequence[Sent]:
        """Append messages of a topic with the durability that the store promises. Returns where they are.

        Messages of keys whose queue is being changed wait for the new queue, for OPENING_S at most.
        """
        return await self._send(messages, repeats=REPEATS)

    async def queues(self, name: str) -> TopicQueues:
        """Return a topic with its queues by shard. A missing topic is created if the settings say so."""
        found = await self._find(name)
        if not found.shares:
            return TopicQueues(found.topic, dict.fromkeys(found.whole, range(queue_count_of(found.topic))))
        by_shard = {shard: [queue.queue_id for queue in share.queues] for shard, share in found.shares.items()}
        sealed = [queue.queue_id for share in found.shares.values() for queue in share.queues if queue.is_sealed]
        return TopicQueues(found.topic, by_shard, frozenset(sealed))

    async def _find(self, name: str) -> Found:
        try:
            return await self._routes.of(name)
        except PeerError as error:
            if error.reason != "TOPIC_NOT_FOUND" or not self.creates_topics or is_of_group(name):
                raise
        shares = first_shares(self._new_topics_at, QUEUES_PER_SHARD * len(self._new_topics_at))
        requests = {shard: _creation(name, share) for shard, share in shares.items()}
        await asyncio.gather(*(self._logs[shard].create(request) for shard, request in requests.items()))
        return await self._routes.of(name)

    async def _send(self, messages: Sequence[AppendMessage], *, repeats: int) -> Sequence[Sent]:
        """Send messages by the route. Messages whose shard does not have their queue any more are sent again."""
        topic = messages[0].topic
        found, places = await self._placed(topic, messages)
        if found.home:
            return await self._sent_home(found.home, messages, repeats)
        by_shard: dict[str, list[int]] = {}
        for at, place in enumerate(places):
            messages[at].queue_id = place.queue_id
            by_shard.setdefault(place.shard, []).append(at)
        sent: list[Sent] = [Sent("", 0)] * len(messages)

        async def send(shard: str, numbers: Sequence[int]) -> None:
            own = [messages[at] for at in numbers]
            try:
                offsets = await self._sent_to(shard, own, [places[at] for at in numbers])
                found_there: Sequence[Sent] = [Sent(shard, offset) for offset in offsets]
            except PeerError as error:
                if error.reason != "QUEUE_NOT_HERE" or not repeats:
                    raise
                self._routes.forget(topic)
                found_there = await self._send(own, repeats=repeats - 1)
            for at, one in zip(numbers, found_there, strict=True):
                sent[at] = one

        outcomes = await asyncio.gather(*(send(*one) for one in by_shard.items()), return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                raise outcome
        return sent

    async def _sent_home(self, home: str, messages: Sequence[AppendMessage], repeats: int) -> Sequence[Sent]:
        """Send messages to the single shard of their topic, which chooses the queues, unless it has a share now."""
        try:
            return [Sent(home, offset) for offset in await self._append(home, messages)]
        except PeerError as error:
            if error.reason != "QUEUE_NOT_HERE" or not repeats:
                raise
        self._routes.forget(messages[0].topic)
        return await self._send(messages, repeats=repeats - 1)

    async def _placed(self, topic: str, messages: Sequence[AppendMessage]) -> tuple[Found, list[Place]]:
        """Return the route of a topic, and the queue of each message. None for a topic at a single shard."""
        end_s = self._clock.monotonic_s() + OPENING_S
        while True:
            found = await self._find(topic)
            if found.home:
                return found, []
            places = self._places(found.route, messages)
            known = [place for place in places if place is not None]
            if len(known) == len(places):
                return found, known
            if change_of(found.shares) is None or self._clock.monotonic_s() > end_s:
                text = f"the shard that has the message's queue of topic {topic} did not say so yet"
                raise PeerError("the shards", "DEPENDENCY_UNAVAILABLE", text, "UNAVAILABLE")
            self._routes.forget(topic)
            await asyncio.sleep(OPENING_LOOK_S)

    async def _sent_to(self, shard: str, messages: Sequence[AppendMessage], places: Sequence[Place]) -> Sequence[int]:
        topic = messages[0].topic
        for place in places:
            self._choice.begin(topic, place, 1)
        try:
            return await self._append(shard, messages)
        finally:
            for place in places:
                self._choice.end(topic, place, 1)

    async def _append(self, shard: str, messages: Sequence[AppendMessage]) -> Sequence[int]:
        try:
            offsets = await self._logs[shard].append(messages)
        except PeerError as error:
            if error.code == "UNAVAILABLE" or not error.reason:
                self._choice.leave(shard)
                self._traffic.failed(shard, error)
            raise
        self._traffic.stored(shard, len(messages))
        return offsets

    def _places(self, route: Route, messages: Sequence[AppendMessage]) -> list[Place | None]:
        """Return the queue of each message, None if no queue is known. Messages without a key share a queue."""
        keys = [self._key(message) for message in messages]
        free = None if all(keys) or not route.places else self._choice.choose(messages[0].topic, route.places)
        return [route.place_of_key(key) if key else free for key in keys]

    def _key(self, message: AppendMessage) -> str:
        key = message.properties.get(KEY, "")
        return key or (message.properties.get(MESSAGE_ID, "") if self._is_once else "")


def _creation(name: str, share: TopicShare) -> CreateTopicRequest:
    count = share.queues[-1].queue_id + 1
    return CreateTopicRequest(name=name, read_queue_count=count, write_queue_count=count, share=message_of(share))
