# SPDX-License-Identifier: Apache-2.0
"""Queries over all shards: each shard is asked at the same time, and the answers are merged by store time."""

from collections.abc import AsyncIterator, Mapping
from functools import partial
from typing import Any, TypeAlias

from reput_client.aio.client import AsyncClient
from reput_client.aio.shards.works import Asked, together
from reput_client.core.errors import NotFoundError, ReputError
from reput_client.core.shards.merging import Merge
from reput_client.core.shards.names import at_shard
from reput_client.core.types import Message, TimeLike

Source: TypeAlias = AsyncIterator[Message]
Begun: TypeAlias = list[tuple[Message, Source]]
"""The first message of each source of a shard, and the messages after it."""


class AsyncFound:
    """The messages of a query over all shards, in the order of their store times. Each iteration asks the shards.

    `missing` has the shards without whose messages the last iteration went on, with their errors: empty unless the
    query was made with `allow_incomplete`.
    """

    def __init__(
        self,
        sources: Mapping[str, Asked[list[Source]]],
        *,
        newest_first: bool,
        allow_incomplete: bool,
    ) -> None:
        self._sources, self._newest_first, self._allow_incomplete = sources, newest_first, allow_incomplete
        self.missing: dict[str, ReputError] = {}

    async def __aiter__(self) -> AsyncIterator[Message]:
        """Yield the messages. Raises the ReputError of a shard, and NotFoundError if no shard has the topic."""
        merge = await self._begin()
        while (popped := merge.pop()) is not None:
            number, message = popped
            yield message
            shard, source = merge.source(number)
            try:
                merge.put(number, await anext(source, None))
            except ReputError as error:
                self._miss(shard, error)
                merge.drop(shard)

    async def _begin(self) -> Merge[Source]:
        """Return the first messages of all shards."""
        self.missing = {}
        merge: Merge[Source] = Merge(newest_first=self._newest_first)
        answers = await together({shard: partial(_begin, sources) for shard, sources in self._sources.items()})
        unknown: list[NotFoundError] = []
        for shard, answer in answers.items():
            if isinstance(answer, NotFoundError):
                unknown.append(answer)
            elif isinstance(answer, ReputError):
                self._miss(shard, answer)
            else:
                for message, source in answer:
                    merge.add(shard, source, message)
        if len(unknown) == len(answers):
            raise unknown[0]
        return merge

    def _miss(self, shard: str, error: ReputError) -> None:
        if not self._allow_incomplete:
            raise at_shard(shard, error) from None
        self.missing[shard] = error


class AsyncShardedQueries:
    """Queries over all shards: messages by key, time or id."""

    def __init__(self, clients: Mapping[str, AsyncClient]) -> None:
        self._clients = clients

    def by_key(
        self,
        topic: str,
        key: str,
        *,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        where: str = "",
        page_size: int = 0,
        allow_incomplete: bool = False,
    ) -> AsyncFound:
        """Find the messages with a key, newest first, stored in [start, end), as the query of a single store does.

        A shard that does not answer is an error that names it, or with `allow_incomplete` in `missing` of the result.
        """
        wanted = {"start": start, "end": end, "where": where, "page_size": page_size}
        sources = {shard: partial(_by_key, client, topic, key, wanted) for shard, client in self._clients.items()}
        return AsyncFound(sources, newest_first=True, allow_incomplete=allow_incomplete)

    def by_time(
        self,
        topic: str,
        *,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        queue_id: int | None = None,
        where: str = "",
        page_size: int = 0,
        allow_incomplete: bool = False,
    ) -> AsyncFound:
        """Find the messages stored in [start, end), by store time, over all queues. See `by_key`.

        The messages of a queue keep their order.
        """
        wanted = {"start": start, "end": end, "where": where, "page_size": page_size}
        sources = {shard: partial(_by_time, client, topic, queue_id, wanted) for shard, client in self._clients.items()}
        return AsyncFound(sources, newest_first=False, allow_incomplete=allow_incomplete)

    async def by_id(self, message_id: str, *, topic: str = "") -> Message:
        """Return the message with an offset message id, or a unique id if a topic is given. Raises NotFoundError.

        A shard that does not answer is an error that names it, unless another shard has the message.
        """
        answers = await together(
            {shard: partial(client.query.by_id, message_id, topic=topic) for shard, client in self._clients.items()}
        )
        found = [answer for answer in answers.values() if isinstance(answer, Message)]
        if not topic:  # each log has a message at many offsets: the id of the right message has its store, too
            found = [message for message in found if message.offset_message_id == message_id.upper()]
        if found:
            return max(found, key=lambda message: message.store_time_ms)
        unknown: list[NotFoundError] = []
        for shard, answer in answers.items():
            if isinstance(answer, NotFoundError):
                unknown.append(answer)
            elif isinstance(answer, ReputError):
                raise at_shard(shard, answer)
        raise unknown[0] if unknown else NotFoundError(f"no shard has a message with the id {message_id}")


async def _by_key(client: AsyncClient, topic: str, key: str, wanted: dict[str, Any]) -> list[Source]:
    return [client.query.by_key(topic, key, **wanted)]


async def _by_time(client: AsyncClient, topic: str, queue_id: int | None, wanted: dict[str, Any]) -> list[Source]:
    """Return the messages of each queue: those of a queue have the order of their store times."""
    ids: list[int | None] = [queue_id]
    if queue_id is None:
        ids = [queue.queue_id async for queue in client.queues.list(topic)] or ids
    return [client.query.by_time(topic, queue_id=one, **wanted) for one in ids]


async def _begin(sources: Asked[list[Source]]) -> Begun:
    begun: Begun = []
    for source in await sources():
        first = await anext(source, None)
        if first is not None:
            begun.append((first, source))
    return begun
