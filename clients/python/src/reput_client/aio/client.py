# SPDX-License-Identifier: Apache-2.0
"""AsyncClient: the door to a store: topics, queries, queues, groups, producer, writer and consumer."""

import os
from collections.abc import AsyncIterator, Iterable
from contextlib import AsyncExitStack
from types import TracebackType
from typing import Literal

from reput.commitlog.v1 import log_service_pb2, segment_service_pb2
from reput.indexer.v1 import index_service_pb2, rebuild_service_pb2
from reput.janitor.v1 import retention_service_pb2

from reput_client.aio.channels import AsyncChannels
from reput_client.aio.closing import AsyncClosing
from reput_client.aio.consumer import AsyncConsumer
from reput_client.aio.producer import AsyncProducer
from reput_client.aio.writer import AsyncAppendStream, AsyncWriter
from reput_client.core.calls import admin, groups, reads, topics
from reput_client.core.calls.groups import Place
from reput_client.core.options import Options
from reput_client.core.producing import ProducerOptions
from reput_client.core.retry import RetryPolicy
from reput_client.core.types import (
    ConsumerGroup,
    ConsumerOffset,
    Durability,
    Message,
    PullResult,
    Queue,
    TimeLike,
    Topic,
)
from reput_client.core.writing import WriteQueue


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
        """Make a topic; what is None is the store's default. Raises AlreadyExistsError."""
        return await self._channels.run(
            topics.create(
                name,
                read_queue_count=read_queue_count,
                write_queue_count=write_queue_count,
                is_readable=is_readable,
                is_writable=is_writable,
            )
        )

    async def update(
        self,
        name: str,
        *,
        read_queue_count: int | None = None,
        write_queue_count: int | None = None,
        is_readable: bool | None = None,
        is_writable: bool | None = None,
    ) -> Topic:
        """Change a topic; what is None stays. Raises NotFoundError."""
        return await self._channels.run(
            topics.update(
                name,
                read_queue_count=read_queue_count,
                write_queue_count=write_queue_count,
                is_readable=is_readable,
                is_writable=is_writable,
            )
        )

    async def get(self, name: str) -> Topic:
        """Return a topic. Raises NotFoundError."""
        return await self._channels.run(topics.get(name))

    def list(self, *, include_system: bool = False) -> AsyncIterator[Topic]:
        """All topics by name."""
        return self._channels.pages(topics.listing(include_system=include_system))

    async def delete(self, name: str) -> None:
        """Forget a topic; its messages stay until they expire. Raises NotFoundError."""
        await self._channels.run(topics.delete(name))


class AsyncQueries(_AsyncPart):
    """Finds messages by key, time or id."""

    def by_key(
        self,
        topic: str,
        key: str,
        *,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        page_size: int = 0,
    ) -> AsyncIterator[Message]:
        """Messages with a key, newest first, stored in [start, end). Further pages are fetched as they are needed."""
        return self._channels.pages(reads.by_key(topic, key, start, end, page_size=page_size))

    def by_time(
        self,
        topic: str,
        *,
        start: TimeLike | None = None,
        end: TimeLike | None = None,
        queue_id: int | None = None,
        page_size: int = 0,
    ) -> AsyncIterator[Message]:
        """Messages stored in [start, end), by queue id and queue offset."""
        return self._channels.pages(reads.by_time(topic, start, end, queue_id=queue_id, page_size=page_size))

    async def by_id(self, message_id: str, *, topic: str = "") -> Message:
        """The message with an offset message id, or with a unique id if a topic is given. Raises NotFoundError."""
        return await self._channels.run(reads.by_id(message_id, topic))


class AsyncQueues(_AsyncPart):
    """Queues of the Indexer."""

    def list(self, topic: str = "") -> AsyncIterator[Queue]:
        """All queues, or those of one topic, by topic and queue id."""
        return self._channels.pages(reads.queues(topic))

    async def range(self, topic: str, queue_id: int) -> Queue:
        """The bounds of a queue. Raises NotFoundError."""
        return await self._channels.run(reads.queue_range(topic, queue_id))

    async def offset_by_time(
        self, topic: str, queue_id: int, time: TimeLike, *, boundary: Literal["lower", "upper"] = "lower"
    ) -> int:
        """Lower: the first entry at or after the time. Upper: the last entry at or before it."""
        call = reads.offset_by_time(topic, queue_id, time, is_upper=boundary == "upper")
        return await self._channels.run(call)

    async def pull(
        self,
        topic: str,
        queue_id: int,
        queue_offset: int,
        *,
        count: int = 0,
        size_bytes: int = 0,
        tags: str = "*",
        wait_s: float = 0.0,
    ) -> PullResult:
        """Read messages from a queue offset on, and wait for the first one up to `wait_s` (30 at most).

        `tags` is "*" or tags separated by "||". Zero counts are the server's defaults (32 messages, 256 KiB).
        """
        call = reads.pull(topic, queue_id, queue_offset, count=count, size_bytes=size_bytes, tags=tags, wait_s=wait_s)
        return await self._channels.run(call)


class AsyncGroups(_AsyncPart):
    """Offsets of consumer groups."""

    def list(self) -> AsyncIterator[ConsumerGroup]:
        """All groups by name, with their offsets and lag."""
        return self._channels.pages(groups.listing())

    async def get(self, group: str, topic: str, queue_id: int) -> ConsumerOffset:
        """The next offset of a group in a queue. Raises NotFoundError."""
        return await self._channels.run(groups.get(group, topic, queue_id))

    async def commit(self, group: str, offsets: Iterable[ConsumerOffset]) -> None:
        """Store the next offsets of a group; durable within 5 seconds."""
        await self._channels.run(groups.commit(group, offsets))

    async def reset(self, group: str, topic: str, to: Place) -> tuple[ConsumerOffset, ...]:
        """Move all of a group's offsets of a topic; durable when it returns."""
        return await self._channels.run(groups.reset(group, topic, to))

    async def delete(self, group: str, *, topic: str = "") -> int:
        """Forget a group's offsets, all or those of one topic; how many it had. Durable when it returns.

        A consumer of the group that commits makes it anew.
        """
        return await self._channels.run(groups.delete(group, topic))


class AsyncAdmin(_AsyncPart):
    """States, segments and retention, for operators. Answers are the API's own messages (protos/reput)."""

    async def commitlog_status(self) -> log_service_pb2.GetStatusResponse:
        """The state of the log."""
        return await self._channels.run(admin.commitlog_status())

    async def indexer_status(self) -> index_service_pb2.GetStatusResponse:
        """How far the indexes are."""
        return await self._channels.run(admin.indexer_status())

    def rebuild_indexes(self) -> AsyncIterator[rebuild_service_pb2.RebuildIndexesResponse]:
        """Drop all indexes and build them again; tells how far it is until it ends, which does not need a listener.

        Calls that need the indexes fail meanwhile. Raises FailedPreconditionError with RUN_IN_PROGRESS while another
        rebuild is under way.
        """
        return self._channels.stream(admin.rebuild_indexes())

    async def remove_expired_queues(self, *, dry_run: bool) -> index_service_pb2.RemoveQueuesResponse:
        """Remove queues all of whose messages have expired, or tell which they are.

        Durable when it returns. The answer names 1,000 queues at most.
        """
        return await self._channels.run(admin.remove_queues(index_service_pb2.QUEUE_SELECTION_EXPIRED, dry_run=dry_run))

    async def remove_unused_queues(self, *, dry_run: bool) -> index_service_pb2.RemoveQueuesResponse:
        """Remove the queues of topics that the CommitLog does not know any more, or tell which they are.

        Their messages stay until they expire, and are found by key and by id. Durable when it returns. The answer names
        1,000 queues at most.
        """
        return await self._channels.run(
            admin.remove_queues(index_service_pb2.QUEUE_SELECTION_UNUSED_TOPICS, dry_run=dry_run)
        )

    async def janitor_status(self) -> retention_service_pb2.GetStatusResponse:
        """What the Janitor does."""
        return await self._channels.run(admin.janitor_status())

    async def retention_policy(self) -> retention_service_pb2.GetPolicyResponse:
        """The retention policy in force."""
        return await self._channels.run(admin.retention_policy())

    async def run_retention(self, *, dry_run: bool, trust_clock: bool = False) -> retention_service_pb2.Run:
        """Decide now which segments expire, and delete them unless it is a dry run.

        `trust_clock` has the Janitor believe its clock from now on, or with `dry_run` for this run, whatever it did.
        """
        return await self._channels.run(admin.run_retention(dry_run=dry_run, trust_clock=trust_clock))

    def retention_history(self) -> AsyncIterator[retention_service_pb2.Run]:
        """Past runs that deleted something or failed, newest first."""
        return self._channels.pages(admin.retention_history())

    def segments(self) -> AsyncIterator[segment_service_pb2.Segment]:
        """The segments of the log, oldest first."""
        return self._channels.pages(admin.segments())


class AsyncClient(AsyncClosing):
    """A connection to a store. Made by `connect`; close it, or let `async with` do that.

    Calls that failed for a passing reason are repeated within the time-out. All methods raise ReputError.
    """

    def __init__(self, options: Options, retry: RetryPolicy) -> None:
        self._channels = AsyncChannels(options, retry)
        self._closers = AsyncExitStack()
        self._closers.push_async_callback(self._channels.close)
        self.topics = AsyncTopics(self._channels)
        self.query = AsyncQueries(self._channels)
        self.queues = AsyncQueues(self._channels)
        self.groups = AsyncGroups(self._channels)
        self.admin = AsyncAdmin(self._channels)

    def producer(self, options: ProducerOptions | None = None) -> AsyncProducer:
        """A new producer; the client closes it if you do not."""
        producer = AsyncProducer(self._channels, options or ProducerOptions())
        self._closers.push_async_exit(producer)
        return producer

    def writer(
        self,
        writer_id: str,
        *,
        first_sequence: int = 0,
        durability: Durability = Durability.DEFAULT,
        window_bytes: int = 8 << 20,
    ) -> AsyncWriter:
        """A new writer, whose first batch has the number `first_sequence`; the client closes it if you do not.

        One writer at a time uses an id: 1 to 200 printable ASCII characters without spaces. `append` waits while more
        than `window_bytes` have no outcome.
        """
        batches = WriteQueue(writer_id, first_sequence=first_sequence, durability=durability, window_bytes=window_bytes)
        writer = AsyncWriter(lambda: AsyncAppendStream(self._channels), batches, self._channels.retry)
        self._closers.push_async_exit(writer)
        return writer

    def consumer(
        self,
        topic: str,
        *,
        group: str | None = None,
        queue_ids: Iterable[int] | None = None,
        start: Place = "earliest",
        tags: str = "*",
    ) -> AsyncConsumer:
        """A new consumer of all queues of a topic, or of those in `queue_ids`; the client closes it if you do not.

        It begins where the group has committed, and at `start` in queues where it has not, or without a group.
        """
        consumer = AsyncConsumer(self._channels, topic=topic, group=group, queue_ids=queue_ids, start=start, tags=tags)
        self._closers.push_async_exit(consumer)
        return consumer

    async def close(self) -> None:
        """Close producers and writers (which waits for their messages), consumers and connections. May be repeated."""
        await self._closers.aclose()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._closers.__aexit__(kind, error, traceback)


def connect(
    *,
    commitlog: str | None = None,
    indexer: str | None = None,
    janitor: str | None = None,
    ca_file: str | None = None,
    certificate_file: str | None = None,
    key_file: str | None = None,
    token: str | None = None,
    timeout_s: float | None = None,
    retry: RetryPolicy | None = None,
) -> AsyncClient:
    """A client for the services at these targets (host:port).

    What is None comes from the environment (see Options.load), then from the defaults: 127.0.0.1 with ports 7101, 7102
    and 7103, without TLS and token. Connections are made when they are first used. Raises OSError for a file that can't
    be read.
    """
    arguments = {name: value for name, value in locals().items() if name != "retry"}
    return AsyncClient(Options.load(arguments, os.environ), retry or RetryPolicy())
