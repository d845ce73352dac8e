# SPDX-License-Identifier: Apache-2.0
"""Python client of Reput: Producer, Writer, Consumer, ShareConsumer and Query.

`connect()` returns a synchronous client, which is thread-safe. `reput_client.aio.connect()` returns its asyncio twin
with the same methods. `connect_shards()` returns a client of all shards of a gateway, of either kind. The synchronous
modules are generated from the asyncio modules, except where threads and tasks differ. A name is imported at its first
use: a program that needs only an error class does not wait for gRPC.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from reput_client.core.errors import (
        AbortedError,
        AlreadyExistsError,
        AuthenticationError,
        BodyError,
        BodyTooLargeError,
        DataLossError,
        DeadlineExceededError,
        FailedPreconditionError,
        InvalidArgumentError,
        NotFoundError,
        OutcomeUnknownError,
        OutOfRangeError,
        ReputError,
        ResourceExhaustedError,
        ServerError,
        UnavailableError,
    )
    from reput_client.core.options import Options, ProducerOptions
    from reput_client.core.retry import RetryPolicy
    from reput_client.core.shards.receiving import ShardReceived
    from reput_client.core.sharing.delayed import DelayedMessage, DelayLevel
    from reput_client.core.sharing.holding import Received
    from reput_client.core.sharing.transactions import OpenTransaction
    from reput_client.core.sharing.values import (
        DeadLetter,
        MessageState,
        Replay,
        ReplayedTopic,
        ShareFilter,
        ShareGroup,
        ShareMove,
        SharePolicy,
        ShareQueue,
    )
    from reput_client.core.telemetry.metrics import ConsumerMetrics, Latencies, ProducerMetrics, ShareConsumerMetrics
    from reput_client.core.types import (
        ChildQueue,
        ConsumerGroup,
        ConsumerOffset,
        Durability,
        KeyMessages,
        Message,
        NewMessage,
        PullResult,
        PullStatus,
        Queue,
        QueuePlace,
        QueueRange,
        SendResult,
        ShareChange,
        Topic,
        TopicQueue,
        TopicShare,
    )
    from reput_client.core.writing import Written
    from reput_client.sync.admin import Admin
    from reput_client.sync.client import Client, connect
    from reput_client.sync.consumer import Consumer
    from reput_client.sync.parts import Groups, Queries, Queues, Topics
    from reput_client.sync.producer import Producer
    from reput_client.sync.shards.client import ShardedClient, connect_shards
    from reput_client.sync.shards.consumer import ShardedShareConsumer
    from reput_client.sync.shards.producer import ShardedProducer
    from reput_client.sync.shards.queries import Found, ShardedQueries
    from reput_client.sync.sharing.admin import DeadLetters, ShareGroups
    from reput_client.sync.sharing.consumer import ShareConsumer
    from reput_client.sync.sharing.delayed import DelayedMessages
    from reput_client.sync.transactions import Check, Transaction, Transactions
    from reput_client.sync.writer import Writer

    __version__: str

__all__ = [
    "AbortedError",
    "Admin",
    "AlreadyExistsError",
    "AuthenticationError",
    "BodyError",
    "BodyTooLargeError",
    "Check",
    "ChildQueue",
    "Client",
    "Consumer",
    "ConsumerGroup",
    "ConsumerMetrics",
    "ConsumerOffset",
    "DataLossError",
    "DeadLetter",
    "DeadLetters",
    "DeadlineExceededError",
    "DelayLevel",
    "DelayedMessage",
    "DelayedMessages",
    "Durability",
    "FailedPreconditionError",
    "Found",
    "Groups",
    "InvalidArgumentError",
    "KeyMessages",
    "Latencies",
    "Message",
    "MessageState",
    "NewMessage",
    "NotFoundError",
    "OpenTransaction",
    "Options",
    "OutOfRangeError",
    "OutcomeUnknownError",
    "Producer",
    "ProducerMetrics",
    "ProducerOptions",
    "PullResult",
    "PullStatus",
    "Queries",
    "Queue",
    "QueuePlace",
    "QueueRange",
    "Queues",
    "Received",
    "Replay",
    "ReplayedTopic",
    "ReputError",
    "ResourceExhaustedError",
    "RetryPolicy",
    "SendResult",
    "ServerError",
    "ShardReceived",
    "ShardedClient",
    "ShardedProducer",
    "ShardedQueries",
    "ShardedShareConsumer",
    "ShareChange",
    "ShareConsumer",
    "ShareConsumerMetrics",
    "ShareFilter",
    "ShareGroup",
    "ShareGroups",
    "ShareMove",
    "SharePolicy",
    "ShareQueue",
    "Topic",
    "TopicQueue",
    "TopicShare",
    "Topics",
    "Transaction",
    "Transactions",
    "UnavailableError",
    "Writer",
    "Written",
    "connect",
    "connect_shards",
]

_HOMES = {
    "core.errors": (
        "AbortedError AlreadyExistsError AuthenticationError BodyError BodyTooLargeError DataLossError "
        "DeadlineExceededError FailedPreconditionError InvalidArgumentError NotFoundError OutcomeUnknownError "
        "OutOfRangeError ReputError ResourceExhaustedError ServerError UnavailableError"
    ),
    "core.options": "Options ProducerOptions",
    "core.retry": "RetryPolicy",
    "core.sharing.delayed": "DelayedMessage DelayLevel",
    "core.sharing.holding": "Received",
    "core.shards.receiving": "ShardReceived",
    "core.sharing.values": (
        "DeadLetter MessageState Replay ReplayedTopic ShareFilter ShareGroup ShareMove SharePolicy ShareQueue"
    ),
    "core.telemetry.metrics": "ConsumerMetrics Latencies ProducerMetrics ShareConsumerMetrics",
    "core.sharing.transactions": "OpenTransaction",
    "core.types": (
        "ChildQueue ConsumerGroup ConsumerOffset Durability KeyMessages Message NewMessage PullResult PullStatus Queue "
        "QueuePlace QueueRange SendResult ShareChange Topic TopicQueue TopicShare"
    ),
    "core.writing": "Written",
    "sync.client": "Client connect",
    "sync.consumer": "Consumer",
    "sync.admin": "Admin",
    "sync.parts": "Groups Queries Queues Topics",
    "sync.producer": "Producer",
    "sync.shards.client": "ShardedClient connect_shards",
    "sync.shards.consumer": "ShardedShareConsumer",
    "sync.shards.producer": "ShardedProducer",
    "sync.shards.queries": "Found ShardedQueries",
    "sync.sharing.admin": "DeadLetters ShareGroups",
    "sync.sharing.consumer": "ShareConsumer",
    "sync.sharing.delayed": "DelayedMessages",
    "sync.transactions": "Check Transaction Transactions",
    "sync.writer": "Writer",
}
"""The module of each name, for programs; the imports above say the same to type checkers."""

_HOME_OF = {name: home for home, names in _HOMES.items() for name in names.split()}

if not TYPE_CHECKING:  # a type checker would accept every name

    def __getattr__(name: str) -> Any:
        """Import and return a name of the package, or look up its version."""
        if name == "__version__":
            from importlib.metadata import version

            return version("reput-client")
        if name not in _HOME_OF:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(f"{__name__}.{_HOME_OF[name]}"), name)
        return value

    def __dir__() -> list[str]:
        """Return all names, imported or not."""
        return sorted({*globals(), *__all__})
