# SPDX-License-Identifier: Apache-2.0
"""TopicChanges: creates, changes, purges and deletes topics, and answers once the in-sync set has the change.

A change is in the leader's own file first, and the stream carries it to each follower. A synchronous log answers when
every member of the in-sync set has the change on its disk, so no failover undoes an answered change. Other logs answer
at once. A change without a positive answer may have been made, so a caller may repeat the call: the repeated call
accepts the change that the first call made.
Callers: the loop that owns the log. Memory: UNANSWERED_COUNT_MAX names.
"""

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from libs.formats.config.topics_json import TopicConfig
from libs.requests.errors import TopicNotFound
from services.commitlog.engine.write.topics import TopicRegistry
from services.commitlog.errors import TopicExists

UNANSWERED_COUNT_MAX = 1_000
"""Most remembered changes without a positive answer to their callers."""


class InSync(Protocol):
    """The operations of the in-sync set that changes of topics need."""

    def check_enough(self) -> None:
        """Raise NotEnoughReplicas if too few members are connected for anything to become durable."""
        ...

    async def wait_topics(self, change_count: int) -> None:
        """Wait until the in-sync set has the topics as of this change count. Raises NotDurableYet."""
        ...


class TopicChanges:
    """The topic changes of a log. All calls raise NotEnoughReplicas, with nothing changed, NotDurableYet and LeaseOver.

    `in_sync` is None in a follower, where no calls arrive. `wake` makes the streams to the followers check for changed
    topics. `check` raises LeaseOver if another log may lead; then no change is acknowledged any more.
    """

    def __init__(
        self,
        topics: TopicRegistry,
        in_sync: InSync | None,
        wake: Callable[[], None],
        check: Callable[[], None],
    ) -> None:
        self._topics, self._leading, self._wake = topics, in_sync, wake
        self._check = check
        self._unanswered: OrderedDict[str, Any] = OrderedDict()
        """By topic name: the requested change that got no positive answer."""

    async def create(self, name: str, **given: Any) -> TopicConfig:
        """Create a topic. See TopicRegistry.create. TopicExists is raised after the in-sync set has the topic."""
        self._in_sync.check_enough()
        is_repeated = self._unanswered.get(name) == given
        try:
            topic = await self._topics.create(name, **given)
        except TopicExists:
            await self._done(name, given if is_repeated else None)
            if not is_repeated:
                raise
            topic = self._topics.get(name)
        else:
            await self._done(name, given)
        return topic

    async def update(self, name: str, **given: Any) -> TopicConfig:
        """Change a topic. See TopicRegistry.update."""
        self._in_sync.check_enough()
        topic = await self._topics.update(name, **given)
        await self._done(name, None)
        return topic

    async def delete(self, name: str) -> None:
        """Delete a topic. See TopicRegistry.delete."""
        self._in_sync.check_enough()
        try:
            await self._topics.delete(name)
        except TopicNotFound:
            if self._unanswered.get(name) != "deleted":
                raise
        await self._done(name, "deleted")

    async def purge(self, name: str) -> int:
        """Take a topic's messages away from readers. See TopicRegistry.purge."""
        self._in_sync.check_enough()
        begin = await self._topics.purge(name)
        await self._done(name, None)
        return begin

    async def expire(self, begins: Mapping[str, int]) -> int:
        """Take expired messages away from readers. See TopicRegistry.expire."""
        self._in_sync.check_enough()
        count = await self._topics.expire(begins)
        if count:
            await self._done("", None)
        return count

    @property
    def _in_sync(self) -> InSync:
        assert self._leading is not None
        return self._leading

    async def _done(self, name: str, wanted: Any) -> None:
        """Wait until the in-sync set has the current topics. If the wait fails, remember the requested change."""
        self._wake()
        try:
            await self._in_sync.wait_topics(self._topics.change_count)
            self._check()
        except BaseException:
            if wanted is not None:
                self._unanswered[name] = wanted
                self._unanswered.move_to_end(name)
            if len(self._unanswered) > UNANSWERED_COUNT_MAX:
                self._unanswered.popitem(last=False)
            raise
        self._unanswered.pop(name, None)
