# SPDX-License-Identifier: Apache-2.0
"""RocketMQ 5.3's own broker and clients as a process that obeys orders (java/…/Release5Broker.java)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import msgspec

from tests.interop.rocketmq.rocketmq_store import Servant
from tests.interop.rocketmq.stored import Sizes
from tests.support.surroundings import free_port

WAIT_MS = 60_000
QUIET_MS = 3_000
"""The time without a message after which no message is expected."""
FAST_PORT_DISTANCE = 2
"""A broker also listens this far below its port."""


class Seen(msgspec.Struct, frozen=True):
    """A message as RocketMQ shows it."""

    body: str
    queue_id: int
    queue_offset: int
    store_time_ms: int
    properties: dict[str, str]


class _Seen(msgspec.Struct, frozen=True):
    messages: list[Seen]


class Retries(msgspec.Struct, frozen=True):
    """The retry policy of a group, as RocketMQ's SubscriptionGroupManager has it."""

    retry_count_max: int
    backoffs_ms: list[int]


class Topic(msgspec.Struct, frozen=True):
    """A topic in the broker's table."""

    read_queue_count: int
    write_queue_count: int
    attributes: dict[str, str]


class _Topics(msgspec.Struct, frozen=True):
    topics: dict[str, Topic]


class RocketMqBroker(Servant):
    """A name server and a broker on a store. `open` makes it."""

    @classmethod
    async def open(cls, directory: Path, sizes: Sizes) -> Self:
        """Start both on a store. Raises RocketMqEnded."""
        broker = await cls.start("5", "Release5Broker")
        ports = {"names_port": free_port(), "port": free_port(below=FAST_PORT_DISTANCE)}
        places = {"directory": str(directory), "log_dirs": "", "index_safe": False}
        await broker.ask("open", dict[str, Any], **places, **ports, **msgspec.structs.asdict(sizes))
        return broker

    async def offsets(self, group: str, topic: str) -> dict[str, int]:
        """Return the next offset of a group in each queue of a topic."""
        offsets: dict[str, int] = (await self.ask("offsets", dict[str, Any], group=group, topic=topic))["offsets"]
        return offsets

    async def retries(self, group: str) -> Retries:
        """Return the retry policy of a group."""
        retries: Retries = await self.ask("retries", Retries, group=group)
        return retries

    async def topics(self) -> dict[str, Topic]:
        """Return the broker's topics by name."""
        topics: dict[str, Topic] = (await self.ask("topics", _Topics)).topics
        return topics

    async def bounds(self, topic: str, queue_count: int) -> list[tuple[int, int]]:
        """Return the least and the next offset of each queue, as RocketMQ's client asks for them."""
        answer = await self.ask("bounds", dict[str, list[tuple[int, int]]], topic=topic, queue_count=queue_count)
        bounds: list[tuple[int, int]] = answer["bounds"]
        return bounds

    async def change_topic(self, topic: str, *, queue_count: int) -> None:
        """Give a topic this number of queues to read and to write, as RocketMQ's tool for administrators does."""
        await self.ask("change_topic", dict[str, Any], topic=topic, queue_count=queue_count)

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic, as RocketMQ's tool for administrators does."""
        await self.ask("delete_topic", dict[str, Any], topic=topic)

    async def read(self, topic: str) -> list[Seen]:
        """Return all messages of a topic, by queue."""
        seen: list[Seen] = (await self.ask("read", _Seen, topic=topic)).messages
        return seen

    async def consume(self, group: str, topic: str, count: int = 1_000, *, wait_ms: int = QUIET_MS) -> Sequence[str]:
        """Receive messages for a group, commit them, and return their bodies.

        It receives this many messages, or fewer after `wait_ms`.
        """
        order = {"group": group, "topic": topic, "count": count, "wait_ms": wait_ms}
        return [message.body for message in (await self.ask("consume", _Seen, **order)).messages]

    async def send(self, topic: str, body: str, **fields: int) -> str:
        """Send a message, to be delivered at `deliver_ms` if given, to the queue `queue_id` if given. Return its id."""
        name: str = (await self.ask("send", dict[str, str], topic=topic, body=body, **fields))["id"]
        return name

    async def begin(self, group: str, topic: str, body: str) -> str:
        """Send a half message, without an end. Return its transaction's id."""
        name: str = (await self.ask("begin", dict[str, str], group=group, topic=topic, body=body))["id"]
        return name

    async def answer(self, group: str, topic: str, *, commit: str) -> list[str]:
        """Act as a producer until the broker asks for this transaction, and commit it.

        Return the transactions for which the broker asked.
        """
        order = {"group": group, "topic": topic, "commit": commit, "wait_ms": WAIT_MS}
        asked: list[str] = (await self.ask("answer", dict[str, list[str]], **order))["asked"]
        return asked
