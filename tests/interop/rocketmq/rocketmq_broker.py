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
"""How long nothing may come where nothing is expected."""
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
    """How a group retries, as RocketMQ's SubscriptionGroupManager has it."""

    retry_count_max: int
    backoffs_ms: list[int]


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
        """The next offset of a group in each queue of a topic."""
        offsets: dict[str, int] = (await self.ask("offsets", dict[str, Any], group=group, topic=topic))["offsets"]
        return offsets

    async def retries(self, group: str) -> Retries:
        """How a group retries."""
        retries: Retries = await self.ask("retries", Retries, group=group)
        return retries

    async def read(self, topic: str) -> list[Seen]:
        """All messages of a topic, by queue."""
        seen: list[Seen] = (await self.ask("read", _Seen, topic=topic)).messages
        return seen

    async def consume(self, group: str, topic: str, count: int = 1_000, *, wait_ms: int = QUIET_MS) -> Sequence[str]:
        """Receive so many messages for a group, or what comes in this time, commit them, and return their bodies."""
        order = {"group": group, "topic": topic, "count": count, "wait_ms": wait_ms}
        return [message.body for message in (await self.ask("consume", _Seen, **order)).messages]

    async def send(self, topic: str, body: str, **fields: int) -> str:
        """Send a message, at `deliver_ms` if there is one. Returns its id."""
        name: str = (await self.ask("send", dict[str, str], topic=topic, body=body, **fields))["id"]
        return name

    async def begin(self, group: str, topic: str, body: str) -> str:
        """Send a half message, and say nothing of how it ends. Returns its transaction's id."""
        name: str = (await self.ask("begin", dict[str, str], group=group, topic=topic, body=body))["id"]
        return name

    async def answer(self, group: str, topic: str, *, commit: str) -> list[str]:
        """Be a producer until it was asked of this transaction, and commit it. Returns of which ones it was asked."""
        order = {"group": group, "topic": topic, "commit": commit, "wait_ms": WAIT_MS}
        asked: list[str] = (await self.ask("answer", dict[str, list[str]], **order))["asked"]
        return asked
