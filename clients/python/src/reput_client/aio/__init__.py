# SPDX-License-Identifier: Apache-2.0
"""The asyncio client of Reput: `connect()` and twins of the classes of `reput_client`. Values and errors are shared.

An object that was made on an event loop is used on this event loop only.
"""

from reput_client.aio.admin import AsyncAdmin
from reput_client.aio.client import AsyncClient, connect
from reput_client.aio.consumer import AsyncConsumer
from reput_client.aio.parts import AsyncGroups, AsyncQueries, AsyncQueues, AsyncTopics
from reput_client.aio.producer import AsyncProducer
from reput_client.aio.shards.client import AsyncShardedClient, connect_shards
from reput_client.aio.shards.consumer import AsyncShardedShareConsumer
from reput_client.aio.shards.producer import AsyncShardedProducer
from reput_client.aio.shards.queries import AsyncFound, AsyncShardedQueries
from reput_client.aio.sharing.admin import AsyncDeadLetters, AsyncShareGroups
from reput_client.aio.sharing.consumer import AsyncShareConsumer
from reput_client.aio.sharing.delayed import AsyncDelayedMessages
from reput_client.aio.transactions import AsyncCheck, AsyncTransaction, AsyncTransactions
from reput_client.aio.writer import AsyncWriter

__all__ = [
    "AsyncAdmin",
    "AsyncCheck",
    "AsyncClient",
    "AsyncConsumer",
    "AsyncDeadLetters",
    "AsyncDelayedMessages",
    "AsyncFound",
    "AsyncGroups",
    "AsyncProducer",
    "AsyncQueries",
    "AsyncQueues",
    "AsyncShardedClient",
    "AsyncShardedProducer",
    "AsyncShardedQueries",
    "AsyncShardedShareConsumer",
    "AsyncShareConsumer",
    "AsyncShareGroups",
    "AsyncTopics",
    "AsyncTransaction",
    "AsyncTransactions",
    "AsyncWriter",
    "connect",
    "connect_shards",
]
