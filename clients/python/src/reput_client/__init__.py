# SPDX-License-Identifier: Apache-2.0
"""Python client of Reput: Producer, Writer, Consumer and Query.

`connect()` makes a synchronous client, which is thread-safe; `reput_client.aio.connect()` its asyncio twin with the
same methods. The synchronous door is generated from the asyncio one, but for what threads do otherwise than tasks.
"""

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
from reput_client.core.telemetry.metrics import ConsumerMetrics, Latencies, ProducerMetrics
from reput_client.core.types import (
    ConsumerGroup,
    ConsumerOffset,
    Durability,
    Message,
    NewMessage,
    PullResult,
    PullStatus,
    Queue,
    SendResult,
    Topic,
    TopicQueue,
)
from reput_client.core.writing import Written
from reput_client.sync.client import Client, connect
from reput_client.sync.consumer import Consumer
from reput_client.sync.parts import Admin, Groups, Queries, Queues, Topics
from reput_client.sync.producer import Producer
from reput_client.sync.writer import Writer


def __getattr__(name: str) -> str:
    """Return the version of the package, which is looked up when somebody asks for it."""
    if name != "__version__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib.metadata import version

    return version("reput-client")


__all__ = [
    "AbortedError",
    "Admin",
    "AlreadyExistsError",
    "AuthenticationError",
    "BodyError",
    "BodyTooLargeError",
    "Client",
    "Consumer",
    "ConsumerGroup",
    "ConsumerMetrics",
    "ConsumerOffset",
    "DataLossError",
    "DeadlineExceededError",
    "Durability",
    "FailedPreconditionError",
    "Groups",
    "InvalidArgumentError",
    "Latencies",
    "Message",
    "NewMessage",
    "NotFoundError",
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
    "Queues",
    "ReputError",
    "ResourceExhaustedError",
    "RetryPolicy",
    "SendResult",
    "ServerError",
    "Topic",
    "TopicQueue",
    "Topics",
    "UnavailableError",
    "Writer",
    "Written",
    "connect",
]
