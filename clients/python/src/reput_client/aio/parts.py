# SPDX-License-Identifier: Apache-2.0
"""The parts of a client by subject: topics, queries, queues and groups."""

from collections.abc import AsyncIterator, Iterable
from typing import Any, Literal

from google.protobuf.duration_pb2 import Duration
from reput.commitlog.v1 import topic_service_pb2
from reput.indexer.v1 import (
    consumer_offset_service_pb2,
    index_service_pb2,
    query_service_pb2,
    queue_service_pb2,
)

from reput_client.aio.channels import AsyncPart
from reput_client.core.answers import (
    group_of,
    key_messages_of,
    offset_of,
    pulled,
    queue_of,
    topic_in,
    topic_of,
)
from reput_client.core.call import PAGE_SIZE, Call, done
from reput_client.core.errors import ServerError
from reput_client.core.records import are_wanted, messages_in
from reput_client.core.types import (
    ConsumerGroup,
    ConsumerOffset,
    KeyMessages,
    Message,
    Place,
    PullResult,
    Queue,
    QueuePlace,
    SendResult,
    ShareChange,
    TimeLike,
    Topic,
    TopicShare,
    check_place,
    to_timestamp,
)

KEY_COUNT_MAX = 1024
"""As in query_service.proto."""

COMMIT_COUNT_MAX = 1000
"""As in consumer_offset_service.proto."""


class AsyncTopics(AsyncPart):
    """Topics of the CommitLog."""

    async def create(
        self,
        name: str,
        *,
        read_queue_count: int | None = None,
        write_queue_count: int | None = None,
        is_readable: bool | None = None,
        is_writable: bool | None = None,
        retention_hours: int | None = None,
        retention_bytes: int | None = None,
        share: TopicShare | None = None,
    ) -> Topic:
        """Create a topic. An argument that is None has the store's default. Raises AlreadyExistsError.

        With a `share` the topic lies on several shards, and this store is one of them.
        """
        request = topic_service_pb2.CreateTopicRequest(
            name=name,
            read_queue_count=read_queue_count or 0,
            write_queue_count=write_queue_count or 0,
            is_readable=is_readable,
            is_writable=is_writable,
            retention_hours=retention_hours or 0,
            retention_bytes=retention_bytes or 0,
            share=_share_message(share),
        )
        return await self._channels.run(Call(request, topic_in, is_repeatable=False))

    async def update(
        self,
        name: str,
        *,
        read_queue_count: int | None = None,
        write_queue_count: int | None = None,
        is_readable: bool | None = None,
        is_writable: bool | None = None,
        retention_hours: int | None = None,
        retention_bytes: int | None = None,
        share: TopicShare | None = None,
    ) -> Topic:
        """Change a topic. An argument that is None leaves its value unchanged. Raises NotFoundError.

        A rule of retention hides messages within a minute, also those that groups have not read:
        `admin.unread_that_expire` tells before.
        """
        request = topic_service_pb2.UpdateTopicRequest(
            name=name,
            read_queue_count=read_queue_count,
            write_queue_count=write_queue_count,
            is_readable=is_readable,
            is_writable=is_writable,
            retention_hours=retention_hours,
            retention_bytes=retention_bytes,
            share=_share_message(share),
        )
        return await self._channels.run(Call(request, topic_in))

    async def get(self, name: str) -> Topic:
        """Return a topic. Raises NotFoundError."""
        return await self._channels.run(Call(topic_service_pb2.GetTopicRequest(name=name), topic_in))

    def list(self, *, include_system: bool = False) -> AsyncIterator[Topic]:
        """Yield all topics by name."""
        request = topic_service_pb2.ListTopicsRequest(include_system=include_system, page_size=PAGE_SIZE)
        return self._channels.pages(request, lambda page: map(topic_of, page.topics))

    async def delete(self, name: str) -> None:
        """Delete a topic. No reader gets its messages again, even if it is created anew. Raises NotFoundError."""
        await self._channels.run(Call(topic_service_pb2.DeleteTopicRequest(name=name), done, is_repeatable=False))

    async def purge(self, name: str) -> None:
        """Take all messages of a topic away from readers. The topic and its offsets stay. Raises NotFoundError."""
        await self._channels.run(Call(topic_service_pb2.PurgeTopicRequest(name=name), done, is_repeatable=False))


def _share_message(share: TopicShare | None) -> topic_service_pb2.TopicShare | None:
    if share is None:
        return None
    queues = [
        topic_service_pb2.QueueShare(**queue._asdict() | {"parents": map(_place_message, queue.parents)})
        for queue in share.queues
    ]
    change = None if share.change is None else _change_message(share.change)
    return topic_service_pb2.TopicShare(version=share.version, queues=queues, change=change)


def _change_message(change: ShareChange) -> topic_service_pb2.ShareChange:
    children = [
        topic_service_pb2.ChildQueue(**child._asdict() | {"place": _place_message(child.place)})
        for child in change.children
    ]
    parents = map(_place_message, change.parents)
    return topic_service_pb2.ShareChange(version=change.version, parents=parents, children=children)


def _place_message(place: QueuePlace) -> topic_service_pb2.QueuePlace:
    return topic_service_pb2.QueuePlace(**place._asdict())


class AsyncQueries(AsyncPart):
    """Queries of the Indexer: messages by key, time or id."""

    def by_key(
        self,
        topic: str,
        key: str,
        *,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        where: str = "",
        page_size: int = 0,
    ) -> AsyncIterator[Message]:
        """Yield the messages with a key, newest first, stored in [start, end). Fetches pages as needed.

        `where` is a condition on their properties (docs/filters.md).
        """
        request = query_service_pb2.QueryByKeyRequest(
            topic=topic,
            key=key,
            start_time=to_timestamp(start),
            end_time=to_timestamp(end),
            where=where,
            page_size=page_size,
            wants_records=are_wanted(),
        )
        return self._channels.pages(request, messages_in)

    async def by_keys(
        self,
        topic: str,
        keys: Iterable[str],
        *,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        where: str = "",
    ) -> AsyncIterator[KeyMessages]:
        """Yield each of many keys once, in their order, with its messages, stored in [start, end), newest first.

        A call asks for KEY_COUNT_MAX keys. A key of no message has no messages; a key whose messages can't be read has
        an `error`, and the others are not affected. For `where` see `by_key`.
        """
        wanted, times = list(dict.fromkeys(keys)), (to_timestamp(start), to_timestamp(end))
        done_count = 0
        while done_count < len(wanted):
            asked = wanted[done_count : done_count + KEY_COUNT_MAX]
            request = query_service_pb2.QueryByKeysRequest(
                topic=topic,
                keys=asked,
                start_time=times[0],
                end_time=times[1],
                where=where,
                wants_records=are_wanted(),
            )
            answer: Any = await self._channels.run(Call(request))
            if not answer.matches:
                raise ServerError("the answer has none of the keys")
            for key, matches in zip(asked, answer.matches, strict=False):
                found = key_messages_of(key, matches)
                if matches.next_page_token:
                    page = query_service_pb2.QueryByKeyRequest(
                        topic=topic,
                        key=key,
                        start_time=times[0],
                        end_time=times[1],
                        where=where,
                        wants_records=are_wanted(),
                        page_token=matches.next_page_token,
                    )
                    async for message in self._channels.pages(page, messages_in):
                        found.messages.append(message)
                yield found
            done_count += len(answer.matches)

    def by_time(
        self,
        topic: str,
        *,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        queue_id: int | None = None,
        where: str = "",
        page_size: int = 0,
    ) -> AsyncIterator[Message]:
        """Yield the messages stored in [start, end), by queue id and queue offset. For `where` see `by_key`."""
        request = query_service_pb2.QueryByTimeRequest(
            topic=topic,
            queue_id=queue_id,
            start_time=to_timestamp(start),
            end_time=to_timestamp(end),
            where=where,
            page_size=page_size,
            wants_records=are_wanted(),
        )
        return self._channels.pages(request, messages_in)

    async def by_id(self, message_id: str, *, topic: str = "") -> Message:
        """Return the message with an offset message id, or a unique id if a topic is given. Raises NotFoundError."""
        request = query_service_pb2.QueryByIdRequest(message_id=message_id, topic=topic)
        return await self._channels.run(Call(request, lambda answer: Message(answer.message)))

    async def wait_indexed(self, sent: SendResult) -> None:
        """Return when this message is indexed, so that queries find it: some milliseconds after it was stored.

        After that a delayed message still waits for its time. For several messages, wait for the message with the
        largest physical offset. Raises UnavailableError with RECOVERING if the indexes do not reach it within the
        client's time-out.
        """
        await self._channels.run(Call(index_service_pb2.WaitIndexedRequest(physical_offset=sent.physical_offset)))


class AsyncQueues(AsyncPart):
    """Queues of the Indexer."""

    def list(self, topic: str = "", *, with_times: bool = False) -> AsyncIterator[Queue]:
        """Yield all queues, or the queues of a topic, by topic and queue id.

        With times, the log reads the first and the last message of each queue.
        """
        request = queue_service_pb2.ListQueuesRequest(topic=topic, page_size=PAGE_SIZE, wants_times=with_times)
        return self._channels.pages(request, lambda page: map(queue_of, page.queues))

    async def range(self, topic: str, queue_id: int) -> Queue:
        """Return the bounds of a queue. Raises NotFoundError."""
        request = queue_service_pb2.GetQueueRangeRequest(topic=topic, queue_id=queue_id)
        return await self._channels.run(Call(request, lambda answer: queue_of(answer.queue)))

    async def offset_by_time(
        self, topic: str, queue_id: int, time: TimeLike, *, boundary: Literal["lower", "upper"] = "lower"
    ) -> int:
        """Return the offset of the first entry at or after the time (lower), or of the last at or before (upper)."""
        request = queue_service_pb2.GetOffsetByTimeRequest(
            topic=topic,
            queue_id=queue_id,
            time=to_timestamp(time),
            boundary=queue_service_pb2.BOUNDARY_UPPER if boundary == "upper" else queue_service_pb2.BOUNDARY_LOWER,
        )
        return await self._channels.run(Call(request, lambda answer: int(answer.queue_offset)))

    async def pull(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        count: int = 0,
        size_bytes: int = 0,
        tags: str = "*",
        where: str = "",
        wait_s: float = 0.0,
    ) -> PullResult:
        """Read messages from a queue offset on, and wait for the first message up to `wait_s` seconds (30 at most).

        `tags` is "*" or tags separated by "||". `where` is a condition on their properties (docs/filters.md). If no
        message passed, continue at `next_queue_offset`. A `count` or `size_bytes` of 0 is the server's default (32
        messages, 256 KiB).
        """
        request = queue_service_pb2.PullRequest(
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            message_count_max=count,
            size_bytes_max=size_bytes,
            tag_expression=tags,
            where=where,
            wants_records=are_wanted(),
            wait=Duration(seconds=int(wait_s), nanos=int(wait_s % 1 * 1e9)),
        )
        return await self._channels.run(Call(request, pulled, extra_timeout_s=wait_s))


class AsyncGroups(AsyncPart):
    """Committed offsets of consumer groups."""

    def list(self) -> AsyncIterator[ConsumerGroup]:
        """Yield all groups by name, with their offsets and lag."""
        request = consumer_offset_service_pb2.ListConsumerGroupsRequest(page_size=PAGE_SIZE)
        return self._channels.pages(request, lambda page: map(group_of, page.groups))

    async def get(self, group: str, topic: str, queue_id: int) -> ConsumerOffset:
        """Return the committed offset of a group in a queue: the next to read. Raises NotFoundError."""
        request = consumer_offset_service_pb2.GetConsumerOffsetRequest(group=group, topic=topic, queue_id=queue_id)
        return await self._channels.run(Call(request, lambda answer: offset_of(answer.offset)))

    async def commit(self, group: str, offsets: Iterable[ConsumerOffset]) -> None:
        """Commit the next offsets of a group, up to 1,000 in each call. They are durable within 5 seconds."""
        entries = [
            consumer_offset_service_pb2.ConsumerOffset(
                topic=offset.topic, queue_id=offset.queue_id, queue_offset=offset.queue_offset
            )
            for offset in offsets
        ]
        for first in range(0, len(entries), COMMIT_COUNT_MAX):
            some = entries[first : first + COMMIT_COUNT_MAX]
            request = consumer_offset_service_pb2.CommitConsumerOffsetRequest(group=group, offsets=some)
            await self._channels.run(Call(request, done))

    async def reset(self, group: str, topic: str, to: Place) -> tuple[ConsumerOffset, ...]:
        """Move all of a group's offsets of a topic. They are durable when it returns."""
        check_place(to)
        where: dict[str, Any] = {to: True} if isinstance(to, str) else {"time": to_timestamp(to)}
        request = consumer_offset_service_pb2.ResetConsumerOffsetRequest(group=group, topic=topic, **where)
        return await self._channels.run(Call(request, lambda answer: tuple(map(offset_of, answer.offsets))))

    async def delete(self, group: str, *, topic: str = "") -> int:
        """Delete a group's offsets: all, or only the offsets of a topic. Returns their number. Durable when it returns.

        A later commit of a consumer of the group creates the group again.
        """
        request = consumer_offset_service_pb2.DeleteConsumerGroupRequest(group=group, topic=topic)
        return await self._channels.run(Call(request, lambda answer: int(answer.deleted_offset_count)))
