# SPDX-License-Identifier: Apache-2.0
"""TopicRoutes: which shards have a topic, and which queues. Each shard tells its own share, when it is asked.

A topic without a share lies on a single shard: a store that became a shard keeps its topics as they are. The topics of
groups, with dead letters and retries, are at every shard.
Callers: the event loop's thread. Memory: COUNT_MAX topics.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

from reput.commitlog.v1.topic_service_pb2 import Topic

from libs.formats.config.topic_share import TopicShare
from libs.machine.clock import Clock
from libs.requests.errors import PeerError
from libs.runtime.rpc.topic_shares import share_of
from libs.shards.route import Route
from services.gateway.engine.names import is_of_group
from services.gateway.errors import Refused
from services.gateway.rpc.store.log_client import LogClient

KEPT_S = 10.0
"""After so long the shards are asked again. A message for a queue that is elsewhere asks them at once."""
COUNT_MAX = 10_000


class Found(NamedTuple):
    """A topic: its description at a shard that has it, its queues by the shares, and the shards that have it whole."""

    topic: Topic
    route: Route
    whole: frozenset[str]
    seen_s: float

    @property
    def shares(self) -> Mapping[str, TopicShare]:
        """The shares by shard."""
        return self.route.shares

    @property
    def home(self) -> str:
        """The single shard that has the topic. Empty if it has shares, or is at several shards."""
        return next(iter(self.whole)) if len(self.whole) == 1 and not self.shares else ""


class TopicRoutes:
    """The routes of topics. All calls raise PeerError and Refused."""

    def __init__(self, logs: Mapping[str, LogClient], clock: Clock) -> None:
        self._logs, self._clock = logs, clock
        self._known: OrderedDict[str, Found] = OrderedDict()
        self._asking: dict[str, asyncio.Task[Found]] = {}

    async def of(self, name: str) -> Found:
        """Return where a topic is. Callers at the same time share the questions to the shards."""
        found = self._known.get(name)
        if found is not None and self._clock.monotonic_s() - found.seen_s <= KEPT_S:
            return found
        if name not in self._asking:
            self._asking[name] = asyncio.create_task(self._ask(name), name="route of a topic")
            self._asking[name].add_done_callback(lambda done: self._answered(name, done))
        return await asyncio.shield(self._asking[name])

    def forget(self, name: str) -> None:
        """Ask the shards again before the next answer: a shard has refused a queue."""
        if (found := self._known.get(name)) is not None:
            self._known[name] = found._replace(seen_s=float("-inf"))

    def _answered(self, name: str, done: "asyncio.Task[Found]") -> None:
        del self._asking[name]
        if not done.cancelled():
            done.exception()  # its callers may all be gone

    async def _ask(self, name: str) -> Found:
        """Ask all shards. A shard that is away keeps the share that it had."""
        answers = await asyncio.gather(*(log.get(name) for log in self._logs.values()), return_exceptions=True)
        known, shares, whole, topics, away = self._known.get(name), {}, set[str](), list[Topic](), list[PeerError]()
        for shard, answer in zip(self._logs, answers, strict=True):
            if isinstance(answer, Topic):
                topics.append(answer)
                if answer.HasField("share"):
                    shares[shard] = share_of(answer.share)
                else:
                    whole.add(shard)
            elif not isinstance(answer, PeerError):
                raise answer
            elif answer.reason != "TOPIC_NOT_FOUND":
                away.append(answer)
                if known is not None and shard in known.shares:
                    shares[shard] = known.shares[shard]
                elif known is not None and shard in known.whole:
                    whole.add(shard)
        if not topics:
            raise away[0] if away else next(answer for answer in answers if isinstance(answer, PeerError))
        return self._note(name, Found(topics[0], Route(shares), frozenset(whole), self._clock.monotonic_s()))

    def _note(self, name: str, found: Found) -> Found:
        if len(found.whole) > 1 and not found.shares and not is_of_group(name):
            shards = ", ".join(sorted(found.whole))
            text = f"topic {name} is whole at the shards {shards}: it must be at one of them, or have shares"
            raise Refused("INTERNAL_SERVER_ERROR", text)
        self._known[name] = found
        self._known.move_to_end(name)
        if len(self._known) > COUNT_MAX:
            self._known.popitem(last=False)
        return found
