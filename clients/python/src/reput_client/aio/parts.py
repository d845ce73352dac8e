# SPDX-License-Identifier: Apache-2.0
"""The parts of a client by what they are about: topics, queries, queues, groups, and what operators ask."""

from collections.abc import AsyncIterator, Iterable
from typing import Any, Literal

from google.protobuf.duration_pb2 import Duration
from reput.commitlog.v1 import log_service_pb2, replication_service_pb2, segment_service_pb2, topic_service_pb2
from reput.indexer.v1 import (
    consumer_offset_service_pb2,
    index_service_pb2,
    query_service_pb2,
    queue_service_pb2,
    rebuild_service_pb2,
)
from reput.janitor.v1 import retention_service_pb2

from reput_client.aio.channels import AsyncChannels
from reput_client.core.answers import group_of, messages_in, offset_of, pulled, queue_of, topic_in, topic_of
from reput_client.core.call import PAGE_SIZE, Call, done
from reput_client.core.types import (
    ConsumerGroup,
    ConsumerOffset,
    Message,
    Place,
    PullResult,
    Queue,
    SendResult,
    TimeLike,
    Topic,
    check_place,
    to_timestamp,
)

COMMIT_COUNT_MAX = 1000
"""As in consumer_offset_service.proto."""

ADMIN_TIMEOUT_S = 600.0
"""A manual run deletes up to 200 segments with a pause after each; removing a queue costs some syncs."""


class _AsyncPart:
    """A part of the client: calls over its channels."""

    def __init__(self, channels: AsyncChannels) -> None:
        self._channels = channels


class AsyncTopics(_AsyncPart):
    """Topics of the CommitLog."""

    async def create(
        self,
        name: str,
        *,
        read_queue_count: int | None = None,
        write_queue_count: int | None = None,
        is_readable: bool | None = None,
        is_writable: bool | None = None,
    ) -> Topic:
        """Make a topic. What is None is the store's default. Raises AlreadyExistsError."""
        request = topic_service_pb2.CreateTopicRequest(
            name=name,
            read_queue_count=read_queue_count or 0,
            write_queue_count=write_queue_count or 0,
            is_readable=is_readable,
            is_writable=is_writable,
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
    ) -> Topic:
        """Change a topic. What is None stays. Raises NotFoundError."""
        request = topic_service_pb2.UpdateTopicRequest(
            name=name,
            read_queue_count=read_queue_count,
            write_queue_count=write_queue_count,
            is_readable=is_readable,
            is_writable=is_writable,
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
        """Forget a topic. Its messages stay until they expire. Raises NotFoundError."""
        await self._channels.run(Call(topic_service_pb2.DeleteTopicRequest(name=name), done, is_repeatable=False))


class AsyncQueries(_AsyncPart):
    """Finds messages by key, time or id."""

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
        """Yield the messages with a key, newest first, stored in [start, end). Fetches pages as they are needed.

        `where` is a condition of their properties (docs/filters.md).
        """
        request = query_service_pb2.QueryByKeyRequest(
            topic=topic,
            key=key,
            start_time=to_timestamp(start),
            end_time=to_timestamp(end),
            where=where,
            page_size=page_size,
        )
        return self._channels.pages(request, messages_in)

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
        """Yield the messages stored in [start, end), by queue id and queue offset. As to `where`, see `by_key`."""
        request = query_service_pb2.QueryByTimeRequest(
            topic=topic,
            queue_id=queue_id,
            start_time=to_timestamp(start),
            end_time=to_timestamp(end),
            where=where,
            page_size=page_size,
        )
        return self._channels.pages(request, messages_in)

    async def by_id(self, message_id: str, *, topic: str = "") -> Message:
        """Return the message with an offset message id, or a unique id if a topic is given. Raises NotFoundError."""
        request = query_service_pb2.QueryByIdRequest(message_id=message_id, topic=topic)
        return await self._channels.run(Call(request, lambda answer: Message(answer.message)))

    async def wait_indexed(self, sent: SendResult) -> None:
        """Return once this message is indexed, so that queries find it: some milliseconds after it was stored.

        Of several messages wait for the one with the largest physical offset. Raises UnavailableError with RECOVERING
        if the indexes do not reach it within the client's time-out.
        """
        await self._channels.run(Call(index_service_pb2.WaitIndexedRequest(physical_offset=sent.physical_offset)))


class AsyncQueues(_AsyncPart):
    """Queues of the Indexer."""

    def list(self, topic: str = "") -> AsyncIterator[Queue]:
        """Yield all queues, or those of one topic, by topic and queue id."""
        request = queue_service_pb2.ListQueuesRequest(topic=topic, page_size=PAGE_SIZE)
        return self._channels.pages(request, lambda page: map(queue_of, page.queues))

    async def range(self, topic: str, queue_id: int) -> Queue:
        """Return the bounds of a queue. Raises NotFoundError."""
        request = queue_service_pb2.GetQueueRangeRequest(topic=topic, queue_id=queue_id)
        return await self._channels.run(Call(request, lambda answer: queue_of(answer.queue)))

    async def offset_by_time(
        self, topic: str, queue_id: int, time: TimeLike, *, boundary: Literal["lower", "upper"] = "lower"
    ) -> int:
        """Return the first entry at or after the time (lower), or the last entry at or before it (upper)."""
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
        """Read messages from a queue offset on, and wait for the first one up to `wait_s` (30 at most).

        `tags` is "*" or tags separated by "||", `where` a condition of their properties (docs/filters.md): go on at
        `next_queue_offset` if nothing passed. Zero counts are the server's defaults (32 messages, 256 KiB).
        """
        request = queue_service_pb2.PullRequest(
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            message_count_max=count,
            size_bytes_max=size_bytes,
            tag_expression=tags,
            where=where,
            wait=Duration(seconds=int(wait_s), nanos=int(wait_s % 1 * 1e9)),
        )
        return await self._channels.run(Call(request, pulled, extra_timeout_s=wait_s))


class AsyncGroups(_AsyncPart):
    """Offsets of consumer groups."""

    def list(self) -> AsyncIterator[ConsumerGroup]:
        """Yield all groups by name, with their offsets and lag."""
        request = consumer_offset_service_pb2.ListConsumerGroupsRequest(page_size=PAGE_SIZE)
        return self._channels.pages(request, lambda page: map(group_of, page.groups))

    async def get(self, group: str, topic: str, queue_id: int) -> ConsumerOffset:
        """Return the next offset of a group in a queue. Raises NotFoundError."""
        request = consumer_offset_service_pb2.GetConsumerOffsetRequest(group=group, topic=topic, queue_id=queue_id)
        return await self._channels.run(Call(request, lambda answer: offset_of(answer.offset)))

    async def commit(self, group: str, offsets: Iterable[ConsumerOffset]) -> None:
        """Store the next offsets of a group, a thousand with each call. They are durable within 5 seconds."""
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
        """Forget a group's offsets, all or those of one topic. Returns how many it had. Durable when it returns.

        A consumer of the group that commits makes it anew.
        """
        request = consumer_offset_service_pb2.DeleteConsumerGroupRequest(group=group, topic=topic)
        return await self._channels.run(Call(request, lambda answer: int(answer.deleted_offset_count)))


class AsyncAdmin(_AsyncPart):
    """States, segments and retention, for operators. Answers are the API's own messages (protos/reput)."""

    async def commitlog_status(self) -> log_service_pb2.GetStatusResponse:
        """Return the state of the log."""
        return await self._channels.run(Call(log_service_pb2.GetStatusRequest()))

    async def indexer_status(self) -> index_service_pb2.GetStatusResponse:
        """Return how far the indexes are."""
        return await self._channels.run(Call(index_service_pb2.GetStatusRequest()))

    def rebuild_indexes(self) -> AsyncIterator[rebuild_service_pb2.RebuildIndexesResponse]:
        """Drop all indexes and build them again. Yields how far it is until it ends, which does not need a listener.

        Calls that need the indexes fail meanwhile. Raises FailedPreconditionError with RUN_IN_PROGRESS while another
        rebuild is under way.
        """
        return self._channels.stream(Call(rebuild_service_pb2.RebuildIndexesRequest(), is_repeatable=False))

    async def remove_expired_queues(self, *, dry_run: bool) -> index_service_pb2.RemoveQueuesResponse:
        """Remove queues all of whose messages have expired, or tell which they are.

        Durable when it returns. The answer names 1,000 queues at most.
        """
        return await self._remove_queues(index_service_pb2.QUEUE_SELECTION_EXPIRED, dry_run=dry_run)

    async def remove_unused_queues(self, *, dry_run: bool) -> index_service_pb2.RemoveQueuesResponse:
        """Remove the queues of topics that the CommitLog does not know any more, or tell which they are.

        Their messages stay until they expire, and are found by key and by id. Durable when it returns. The answer names
        1,000 queues at most.
        """
        return await self._remove_queues(index_service_pb2.QUEUE_SELECTION_UNUSED_TOPICS, dry_run=dry_run)

    async def janitor_status(self) -> retention_service_pb2.GetStatusResponse:
        """Return what the Janitor does."""
        return await self._channels.run(Call(retention_service_pb2.GetStatusRequest()))

    async def retention_policy(self) -> retention_service_pb2.GetPolicyResponse:
        """Return the retention policy in force."""
        return await self._channels.run(Call(retention_service_pb2.GetPolicyRequest()))

    async def run_retention(self, *, dry_run: bool, trust_clock: bool = False) -> retention_service_pb2.Run:
        """Decide now which segments expire, and delete them unless it is a dry run.

        `trust_clock` has the Janitor believe its clock from now on, or with `dry_run` for this run, whatever it did.
        """
        request = retention_service_pb2.RunOnceRequest(dry_run=dry_run, trust_clock=trust_clock)
        call: Call[retention_service_pb2.Run] = Call(
            request, lambda answer: answer.run, is_repeatable=dry_run, extra_timeout_s=ADMIN_TIMEOUT_S
        )
        return await self._channels.run(call)

    def retention_history(self) -> AsyncIterator[retention_service_pb2.Run]:
        """Yield past runs that deleted something or failed, newest first."""
        request = retention_service_pb2.ListHistoryRequest(page_size=100)
        return self._channels.pages(request, lambda page: page.runs)

    def segments(self) -> AsyncIterator[segment_service_pb2.Segment]:
        """Yield the segments of the log, oldest first."""
        request = segment_service_pb2.ListSegmentsRequest(page_size=PAGE_SIZE)
        return self._channels.pages(request, lambda page: page.segments)

    async def demote(self, replica_id: str, leader_target: str) -> replication_service_pb2.DemoteResponse:
        """Let the log hand over to one that follows it, and follow that at this address. That one has to be promoted.

        Raises UnavailableError with REPLICA_BEHIND if the other one lacks something; then nothing has changed.
        """
        request = replication_service_pb2.DemoteRequest(replica_id=replica_id, leader_target=leader_target)
        return await self._channels.run(Call(request, is_repeatable=False))

    async def promote(
        self,
        role: log_service_pb2.Role.ValueType,
        *,
        epoch: int = 0,
        end_physical_offset: int = 0,
        accept_data_loss: bool = False,
    ) -> replication_service_pb2.PromoteResponse:
        """Let a log that follows lead. Epoch and end prove that nothing is lost: `demote` of the old leader told them.

        Raises FailedPreconditionError with MAY_LOSE_DATA without a proof, unless `accept_data_loss` is set.
        """
        request = replication_service_pb2.PromoteRequest(
            role=role, epoch=epoch, end_physical_offset=end_physical_offset, accept_data_loss=accept_data_loss
        )
        return await self._channels.run(Call(request))

    async def _remove_queues(
        self, selection: index_service_pb2.QueueSelection.ValueType, *, dry_run: bool
    ) -> index_service_pb2.RemoveQueuesResponse:
        request = index_service_pb2.RemoveQueuesRequest(selection=selection, dry_run=dry_run)
        return await self._channels.run(Call(request, is_repeatable=dry_run, extra_timeout_s=ADMIN_TIMEOUT_S))
