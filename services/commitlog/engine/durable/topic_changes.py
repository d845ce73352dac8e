# SPDX-License-Identifier: Apache-2.0
"""TopicChanges: makes, changes and deletes topics, and answers once the in-sync set has the change.

A change is in the leader's own file first, and travels with the stream to each that follows. A synchronous log answers
when every member of the in-sync set has it on its disk, so that no failover undoes what was answered; another log
answers at once. A change that was not answered as done may be there all the same, so the call may be repeated: what
it finds done by itself is no error.
Callers: the loop that owns the log. Memory: UNANSWERED_COUNT_MAX names.
"""

from collections.abc import Callable
from typing import Any, Protocol

from libs.formats.config.topics_json import TopicConfig
from services.commitlog.engine.write.topics import TopicRegistry
from services.commitlog.errors import TopicExists, TopicNotFound

UNANSWERED_COUNT_MAX = 1_000
"""Changes that are remembered because their caller was told that they may be there."""


class InSync(Protocol):
    """What is asked of the in-sync set."""

    def check_enough(self) -> None:
        """Raise NotEnoughReplicas where so few are connected that nothing would become durable."""
        ...

    async def wait_topics(self, change_count: int) -> None:
        """Wait until it has the topics as they were after so many changes. Raises NotDurableYet."""
        ...


class TopicChanges:
    """Of one log. All calls raise NotEnoughReplicas, with nothing changed, NotDurableYet and LeaseOver.

    `in_sync` is None in a log that follows, where nobody makes a call. `wake` lets those that send the log look at the
    topics. `check` raises LeaseOver where another log may lead, and nothing is told as done any more.
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
        self._unanswered: dict[str, Any] = {}
        """By name: what a caller wanted that was not told that it is done."""

    async def create(self, name: str, **given: Any) -> TopicConfig:
        """Make a topic. See TopicRegistry.create. One that exists is in sync when TopicExists tells of it."""
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
        """Forget a topic. See TopicRegistry.delete."""
        self._in_sync.check_enough()
        try:
            await self._topics.delete(name)
        except TopicNotFound:
            if self._unanswered.get(name) != "deleted":
                raise
        await self._done(name, "deleted")

    @property
    def _in_sync(self) -> InSync:
        assert self._leading is not None
        return self._leading

    async def _done(self, name: str, wanted: Any) -> None:
        """Wait until the topics as they are now are in sync. If they are not in time, remember what was wanted."""
        self._wake()
        try:
            await self._in_sync.wait_topics(self._topics.change_count)
            self._check()
        except BaseException:
            if wanted is not None:
                self._unanswered.pop(name, None)
                self._unanswered[name] = wanted
            if len(self._unanswered) > UNANSWERED_COUNT_MAX:
                del self._unanswered[next(iter(self._unanswered))]
            raise
        self._unanswered.pop(name, None)
