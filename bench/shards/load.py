# SPDX-License-Identifier: Apache-2.0
"""Load: sends, receives and acknowledges messages by RocketMQ's protocol at a gateway."""

import asyncio
import itertools
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration

from services.gateway.rpc.messaging_servicer import SERVED_AS
from services.gateway.rpc.wire import messaging_pb2 as wire

TOPIC, GROUP, KEY_COUNT = "orders", "workers", 1_000
CALLER_COUNT, RECEIVE_COUNT = 16, 32
METADATA = (("x-mq-client-id", "bench"),)
TIMEOUT_S = 60.0


class Load:
    """A client of a gateway, with CALLER_COUNT calls at the same time for each shard."""

    def __init__(self, target: str, shard_count: int) -> None:
        options = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))
        self._channel = grpc.aio.insecure_channel(target, options=options)
        self._caller_count = CALLER_COUNT * shard_count
        self._numbers = itertools.count()
        self._body = bytes(1_024)

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()

    async def send(self, count: int, *, at_once: int = 1) -> None:
        """Send messages of many keys, `at_once` in a call."""

        async def call() -> int:
            messages = [self._message() for _ in range(at_once)]
            answer = await self._call("SendMessage", wire.SendMessageRequest(messages=messages))
            assert answer.status.code == wire.CODE_OK, answer.status
            return at_once

        await self._repeat(call, count)

    async def receive(self, count: int) -> None:
        """Receive and acknowledge messages."""

        async def call() -> int:
            request = wire.ReceiveMessageRequest(
                group=_named(GROUP),
                message_queue=wire.MessageQueue(topic=_named(TOPIC)),
                batch_size=RECEIVE_COUNT,
                invisible_duration=Duration(seconds=600),
                long_polling_timeout=Duration(seconds=5),
            )
            stub = self._channel.unary_stream(
                f"/{SERVED_AS}/ReceiveMessage",
                wire.ReceiveMessageRequest.SerializeToString,
                wire.ReceiveMessageResponse.FromString,
            )
            parts = [part async for part in stub(request, metadata=METADATA, timeout=TIMEOUT_S)]
            handles = [part.message.system_properties.receipt_handle for part in parts if part.HasField("message")]
            if handles:
                entries = [wire.AckMessageEntry(message_id="m", receipt_handle=handle) for handle in handles]
                await self._call(
                    "AckMessage", wire.AckMessageRequest(group=_named(GROUP), topic=_named(TOPIC), entries=entries)
                )
            return len(handles)

        await self._repeat(call, count)

    async def _repeat(self, call: Callable[[], Awaitable[int]], count: int) -> None:
        """Call until `count` messages are done."""
        left = count

        async def repeat() -> None:
            nonlocal left
            while left > 0:
                done = await call()
                left -= done  # not in the line before: it would read `left` before the wait

        await asyncio.gather(*(repeat() for _ in range(self._caller_count)))

    def _message(self) -> wire.Message:
        number = next(self._numbers)
        system = wire.SystemProperties(
            message_id=f"01{number:032X}",
            body_encoding=wire.ENCODING_IDENTITY,
            message_type=wire.MESSAGE_TYPE_FIFO,
            message_group=f"key-{number % KEY_COUNT}",
            born_host="bench",
        )
        return wire.Message(topic=_named(TOPIC), body=self._body, system_properties=system)

    async def _call(self, method: str, request: Any) -> Any:
        kind = getattr(wire, f"{method}Response")
        stub = self._channel.unary_unary(f"/{SERVED_AS}/{method}", type(request).SerializeToString, kind.FromString)
        return await stub(request, metadata=METADATA, timeout=TIMEOUT_S)


def _named(name: str) -> wire.Resource:
    return wire.Resource(name=name)
