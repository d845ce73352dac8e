# SPDX-License-Identifier: Apache-2.0
"""AsyncShardedClient: a client of all shards behind a gateway: producer, share consumer and queries over the shards."""

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from reput_client.aio.client import AsyncClient
from reput_client.aio.closing import AsyncOwner
from reput_client.core.options import Options, ProducerOptions
from reput_client.core.retry import RetryPolicy
from reput_client.core.shards.names import shard_names

if TYPE_CHECKING:  # the method that makes a part imports it, so that a program imports only the parts that it uses
    from reput_client.aio.shards.consumer import AsyncShardedShareConsumer
    from reput_client.aio.shards.producer import AsyncShardedProducer
    from reput_client.aio.shards.queries import AsyncShardedQueries


class AsyncShardedClient(AsyncOwner):
    """A connection to all shards of a gateway. Made by `connect_shards`. Close it, or let `async with` do that.

    It has the calls that make sense over all shards; `shard(name)` is the client of a single shard, with all calls.
    """

    def __init__(self, options: Mapping[str, Options], retry: RetryPolicy) -> None:
        super().__init__()
        self._retry = retry
        self._clients = {shard: AsyncClient(one, retry) for shard, one in options.items()}
        for client in self._clients.values():
            self._closers.push_async_exit(client)

    def __repr__(self) -> str:
        return f"AsyncShardedClient({', '.join(self._clients)})"

    @property
    def shards(self) -> tuple[str, ...]:
        """The names of the shards."""
        return tuple(self._clients)

    def shard(self, name: str) -> AsyncClient:
        """Return the client of a single shard, which this client closes. Raises ValueError for another name."""
        if name not in self._clients:
            raise ValueError(f"{name!r} is none of the shards {', '.join(self._clients)}")
        return self._clients[name]

    @cached_property
    def query(self) -> "AsyncShardedQueries":
        """Finds messages by key, time or id, at all shards."""
        from reput_client.aio.shards.queries import AsyncShardedQueries

        return AsyncShardedQueries(self._clients)

    def producer(self, options: ProducerOptions | None = None) -> "AsyncShardedProducer":
        """Return a new producer, which sends to all shards. The client closes it if you do not.

        The window of the options (`window_bytes`) is that of all shards together.
        """
        from reput_client.aio.shards.producer import AsyncShardedProducer

        options = options or ProducerOptions()
        if options.retry is None:
            options = replace(options, retry=self._retry)
        channels = {shard: client.channels for shard, client in self._clients.items()}
        producer = AsyncShardedProducer(channels, options)
        self._closers.push_async_exit(producer)
        self._producers.append(producer)
        return producer

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
    ) -> "AsyncShardedShareConsumer":
        """Return a new consumer that shares the messages of a topic at all shards with all others of its group.

        The arguments are those of `share_consumer` of a single store. The client closes it if you do not.
        """
        from reput_client.aio.shards.consumer import AsyncShardedShareConsumer
        from reput_client.core.sharing.holding import ShareSettings

        wanted: dict[str, Any] = {
            "group": group,
            "tags": tags,
            "where": where,
            "invisible_s": invisible_s,
            "hold_s_max": hold_s_max,
            "poll_s": poll_s,
        }
        settings = ShareSettings(**wanted)
        parts = {name: client.share_consumer(topic, **wanted) for name, client in self._clients.items()}
        timeout_s = next(iter(self._clients.values())).channels.options.timeout_s
        consumer = AsyncShardedShareConsumer(parts, topic, settings, retry=self._retry, timeout_s=timeout_s)
        self._closers.push_async_exit(consumer)
        return consumer


def connect_shards(
    store: str | None = None,
    shards: str | Iterable[str] = (),
    *,
    ca_file: str | None = None,
    certificate_file: str | None = None,
    key_file: str | None = None,
    ca_pem: bytes | None = None,
    certificate_pem: bytes | None = None,
    key_pem: bytes | None = None,
    server_name: str | None = None,
    token: str | Callable[[], str] | None = None,
    timeout_s: float | None = None,
    retry: RetryPolicy | None = None,
) -> AsyncShardedClient:
    """Return a client for all shards of the gateway at this address: `connect_shards("localhost:8081", "a,b,c")`.

    `shards` are the names of the shards in the gateway's `shards_file`, as a sequence or with commas between. The other
    arguments are those of `connect`. Raises ValueError and TypeError for names that can't be right, and OSError for a
    file that can't be read.
    """
    arguments = {name: value for name, value in locals().items() if name not in ("shards", "retry")}
    options = {name: Options.load({**arguments, "shard": name}, os.environ) for name in shard_names(shards)}
    return AsyncShardedClient(options, retry or RetryPolicy())
