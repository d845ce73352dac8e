# SPDX-License-Identifier: Apache-2.0
"""A store with a Delivery, and helpers with which tests use it over the API."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import grpc
from google.protobuf.duration_pb2 import Duration
from reput.commitlog.v1.append_service_pb2 import AppendMessage, AppendRequest
from reput.delivery.v1 import delivery_service_pb2 as pb
from reput.delivery.v1 import group_service_pb2 as groups_pb

from tests.support import served_commitlog, served_delivery, served_indexer
from tests.support.patience import LIMIT_S
from tests.support.served_delivery import Client

GROUP, TOPIC = "billing", "orders"


def milliseconds(value: int) -> Duration:
    """Return this many milliseconds as protobuf's Duration."""
    return Duration(seconds=value // 1000, nanos=value % 1000 * 1_000_000)


class Stack:
    """A store with a Delivery."""

    def __init__(self, log: served_commitlog.Client, index: served_indexer.Client, client: Client) -> None:
        self.log, self.index, self.client = log, index, client

    async def append(self, *bodies: bytes, **fields: object) -> None:
        """Append messages."""
        messages = [AppendMessage(topic=TOPIC, body=body, **fields) for body in bodies]  # type: ignore[arg-type]
        await self.log.append.Append(AppendRequest(messages=messages))

    async def receive(
        self, count: int = 10, *, wait_ms: int = 30_000, **fields: object
    ) -> Sequence[pb.ReceivedMessage]:
        """Receive messages."""
        fields = {"group": GROUP, "topic": TOPIC, "wait": milliseconds(wait_ms), **fields}
        request = pb.ReceiveRequest(message_count_max=count, **fields)  # type: ignore[arg-type]
        return (await self.client.deliveries.Receive(request)).messages

    async def settle(self, action: str, *received: pb.ReceivedMessage, **fields: object) -> list[pb.SettleOutcome]:
        """Settle messages."""
        entries = [entry(action, one.handle, **fields) for one in received]
        return list((await self.client.deliveries.Settle(pb.SettleRequest(entries=entries))).outcomes)

    async def until_all_is_settled(self) -> None:
        """Wait until the group has settled everything.

        An ack whose answer was lost was applied, or its message is delivered again.
        """
        request = groups_pb.GetGroupRequest(group=GROUP)
        async with asyncio.timeout(LIMIT_S):
            while True:
                with contextlib.suppress(grpc.aio.AioRpcError):
                    if all(queue.lag == 0 for queue in (await self.client.groups.GetGroup(request)).group.queues):
                        return
                await asyncio.sleep(0.2)


def entry(action: str, handle: str, **fields: object) -> pb.SettleEntry:
    """Return the entry that settles a message with this action."""
    kinds = {"ack": pb.Ack, "nack": pb.Nack, "extend": pb.Extend, "terminate": pb.Terminate, "bury": pb.Bury}
    return pb.SettleEntry(handle=handle, **{action: kinds[action](**fields)})  # type: ignore[arg-type]


@contextlib.asynccontextmanager
async def delivery_stack(directory: Path) -> AsyncIterator[Stack]:
    """A store in a directory, and a Delivery as a process."""
    async with (
        served_commitlog.served(directory) as (commitlog, log),
        served_indexer.served(directory, f"127.0.0.1:{commitlog.server.port}") as (indexer, index),
        served_delivery.process(f"127.0.0.1:{commitlog.server.port}", f"127.0.0.1:{indexer.server.port}") as delivery,
        served_delivery.client_of(f"127.0.0.1:{delivery.port}") as client,
    ):
        yield Stack(log, index, client)
