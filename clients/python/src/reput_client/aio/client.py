# SPDX-License-Identifier: Apache-2.0
"""AsyncClient: the client of a store: topics, queries, queues, groups, producer, writer and consumer."""

import os
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING

from reput_client.aio.channels import AsyncChannels
from reput_client.aio.closing import AsyncOwner
from reput_client.core.options import SERVICES, Options, ProducerOptions
from reput_client.core.retry import RetryPolicy
from reput_client.core.types import Durability, NewMessage, Place, SendResult

if TYPE_CHECKING:  # the method that makes a part imports it, so that a program imports only the parts that it uses
    from reput_client.aio.admin import AsyncAdmin
    from reput_client.aio.consumer import AsyncConsumer
    from reput_client.aio.parts import AsyncGroups, AsyncQueries, AsyncQueues, AsyncTopics
    from reput_client.aio.producer import AsyncProducer
    from reput_client.aio.sharing.admin import AsyncDeadLetters, AsyncShareGroups
    from reput_client.aio.sharing.consumer import AsyncShareConsumer
    from reput_client.aio.sharing.delayed import AsyncDelayedMessages
    from reput_client.aio.sharing.settling import AsyncSettler
    from reput_client.aio.transactions import AsyncTransactions
    from reput_client.aio.writer import AsyncWriter


class AsyncClient(AsyncOwner):
    """A connection to a store. Made by `connect`. Close it, or let `async with` do that.

    A call that fails for a temporary reason is retried within the time-out. All methods raise ReputError.
    """

    def __init__(self, options: Options, retry: RetryPolicy) -> None:
        super().__init__()
        self._channels = AsyncChannels(options, retry)
        self._closers.push_async_callback(self._channels.close)

    def __repr__(self) -> str:
        targets = ", ".join(f"{name}={self._channels.target(name)!r}" for name in SERVICES)
        return f"AsyncClient({targets})"

    @property
    def channels(self) -> AsyncChannels:
        """The connections of this client, for the client of all shards."""
        return self._channels

    @cached_property
    def _settler(self) -> "AsyncSettler":
        """Settles for all share consumers of this client."""
        from reput_client.aio.sharing.settling import AsyncSettler

        return AsyncSettler(self._channels)

    @cached_property
    def topics(self) -> "AsyncTopics":
        """Topics of the CommitLog."""
        from reput_client.aio.parts import AsyncTopics

        return AsyncTopics(self._channels)

    @cached_property
    def query(self) -> "AsyncQueries":
        """Finds messages by key, time or id."""
        from reput_client.aio.parts import AsyncQueries

        return AsyncQueries(self._channels)

    @cached_property
    def queues(self) -> "AsyncQueues":
        """Queues of the Indexer."""
        from reput_client.aio.parts import AsyncQueues

        return AsyncQueues(self._channels)

    @cached_property
    def groups(self) -> "AsyncGroups":
        """Offsets of consumer groups."""
        from reput_client.aio.parts import AsyncGroups

        return AsyncGroups(self._channels)

    @cached_property
    def admin(self) -> "AsyncAdmin":
        """States, segments and retention, for operators."""
        from reput_client.aio.admin import AsyncAdmin

        return AsyncAdmin(self._channels)

    @cached_property
    def share_groups(self) -> "AsyncShareGroups":
        """Groups whose members share messages: policy, lag, reset."""
        from reput_client.aio.sharing.admin import AsyncShareGroups

        return AsyncShareGroups(self._channels)

    @cached_property
    def dead_letters(self) -> "AsyncDeadLetters":
        """Dead letters: messages that a group could not process. Lists and replays them."""
        from reput_client.aio.sharing.admin import AsyncDeadLetters

        return AsyncDeadLetters(self._channels)

    @cached_property
    def transactions(self) -> "AsyncTransactions":
        """Transactions: messages that consumers do not get before they are committed."""
        from reput_client.aio.transactions import AsyncTransactions

        return AsyncTransactions(self._channels)

    @cached_property
    def delayed(self) -> "AsyncDelayedMessages":
        """Delayed messages that are not delivered yet. Lists and cancels them."""
        from reput_client.aio.sharing.delayed import AsyncDelayedMessages

        return AsyncDelayedMessages(self._channels)

    def producer(self, options: ProducerOptions | None = None) -> "AsyncProducer":
        """Return a new producer. The client closes it if you do not."""
        from reput_client.aio.producer import AsyncProducer

        options = options or ProducerOptions()
        if options.retry is None:
            options = replace(options, retry=self._channels.retry)
        producer = AsyncProducer(self._channels, options)
        self._closers.push_async_exit(producer)
        self._producers.append(producer)
        return producer

    def writer(
        self,
        writer_id: str,
        *,
        first_sequence: int = 0,
        durability: Durability = Durability.DEFAULT,
        window_bytes: int = 8 << 20,
    ) -> "AsyncWriter":
        """Return a new writer, whose first batch has the number `first_sequence`. The client closes it if you do not.

        Only a single writer at a time uses a writer id: 1 to 200 printable ASCII characters without spaces. `append`
        waits while more than `window_bytes` bytes have no outcome.
        """
        from reput_client.aio.writer import AsyncAppendStream, AsyncWriter
        from reput_client.core.writing import WriteQueue

        batches = WriteQueue(writer_id, first_sequence=first_sequence, durability=durability, window_bytes=window_bytes)
        writer = AsyncWriter(lambda: AsyncAppendStream(self._channels), batches, self._channels.retry)
        self._closers.push_async_exit(writer)
        return writer

    def consumer(
        self,
        topics: str | Iterable[str],
        *,
        group: str | None = None,
        queue_ids: Iterable[int] | None = None,
        start: Place = "earliest",
        tags: str = "*",
        where: str = "",
        auto_commit_s: float | None = None,
    ) -> "AsyncConsumer":
        """Return a new consumer of a topic or several topics: all queues of each, or only the queues in `queue_ids`.

        It begins at the committed offsets of the group. Without a group, and in queues without a committed offset, it
        begins at `start`. With `auto_commit_s` a poll commits the messages that earlier polls returned, when this many
        seconds have passed since the last commit. The end of a block without an exception commits, too. After a crash
        the messages that were returned since the last commit come again. A message that was returned, committed, and
        not processed does not come again. `where` is a condition on the messages' properties (docs/filters.md): the
        consumer gets only messages that fulfil it. The client closes it if you do not.
        """
        from reput_client.aio.consumer import AsyncConsumer

        consumer = AsyncConsumer(
            self._channels,
            topics=topics,
            group=group,
            queue_ids=queue_ids,
            start=start,
            tags=tags,
            where=where,
            auto_commit_s=auto_commit_s,
        )
        self._closers.push_async_exit(consumer)
        return consumer

    def share_consumer(
        self,
        topic: str,
        *,
        group: str,
        tags: str = "*",
        where: str = "",
        invisible_s: float | None = None,
        hold_s_max: float = 3600.0,
        poll_s: float = 2.0,
    ) -> "AsyncShareConsumer":
        """Return a new consumer that shares the messages of a topic with all others of its group.

        Each message is held by a single consumer until it is settled, or until its lease is over: `invisible_s`
        seconds, None for the time of the group's policy. The consumer extends the lease by itself while it holds a
        message, at most until `hold_s_max` seconds after it received it. `tags` and `where` (docs/filters.md) apply to
        the whole group: a message that does not pass them is settled for all members. `run` and iteration wait
        `poll_s` seconds for a message in each call, and a close may take as long. The client closes it if you do not.
        """
        from reput_client.aio.sharing.consumer import AsyncShareConsumer
        from reput_client.core.sharing.holding import ShareSettings

        settings = ShareSettings(group, tags, where, invisible_s=invisible_s, hold_s_max=hold_s_max, poll_s=poll_s)
        consumer = AsyncShareConsumer(self._channels, self._settler, topic, settings)
        self._closers.push_async_exit(consumer)
        return consumer

    async def send_once(
        self, once_id: str, message: NewMessage, *, durability: Durability = Durability.DEFAULT
    ) -> SendResult:
        """Store a message a single time, even if it is sent several times under this id. Returns where it is stored.

        You choose the id, which is shared by all topics: 1 to 195 printable ASCII characters without spaces, for
        example `order-17`. A later message with the same id, from any client and at any time, is not stored. It is
        answered like the first message, as long as the store remembers the id: it keeps the last 32,768 ids
        (`once_count_max`), also after a restart or a failover. The answer to a repeated send has the queue id, the
        queue offset and the unique id of the first message; -1 and "" if the store can't read that message.
        Raises ReputError, and ValueError or TypeError for a message that can't be encoded.
        """
        from reput_client.aio.writer import send_once

        return await send_once(self._channels, once_id, message, durability)


def connect(
    store: str | None = None,
    *,
    commitlog: str | None = None,
    indexer: str | None = None,
    janitor: str | None = None,
    delivery: str | None = None,
    ca_file: str | None = None,
    certificate_file: str | None = None,
    key_file: str | None = None,
    ca_pem: bytes | None = None,
    certificate_pem: bytes | None = None,
    key_pem: bytes | None = None,
    server_name: str | None = None,
    shard: str | None = None,
    token: str | Callable[[], str] | None = None,
    timeout_s: float | None = None,
    retry: RetryPolicy | None = None,
) -> AsyncClient:
    """Return a client for the store at this address (host:port, or several with commas): `connect("localhost:8081")`.

    It is the address of a gateway, which serves all APIs. `commitlog`, `indexer`, `janitor` and `delivery` are the
    addresses of single services, for calls without the gateway between. Options has all other arguments but `retry`.
    An argument that is None comes from the environment (see Options.load), then from the defaults: 127.0.0.1 with ports
    7101 to 7104, without TLS and token. Services at the same address share a connection, which is made at its first
    use. Raises OSError for a file that can't be read.
    """
    arguments = {name: value for name, value in locals().items() if name != "retry"}
    return AsyncClient(Options.load(arguments, os.environ), retry or RetryPolicy())
