# SPDX-License-Identifier: Apache-2.0
"""Load: sends, receives and acknowledges messages by RocketMQ's protocol at a gateway."""

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.duration_pb2 import Duration

from services.gateway.rpc.messaging_servicer import SERVED_AS
from services.gateway.rpc.wire import messaging_pb2 as wire

TOPIC, GROUP, KEY_COUNT = "orders", "workers", 1_000
RECEIVE_COUNT = 32
METADATA = (("x-mq-client-id", "bench"),)
TIMEOUT_S = 60.0


class Load:
    """A client of a gateway, which starts calls at an even rate."""

    def __init__(self, target: str) -> None:
        options = (("grpc.use_local_subchannel_pool", 1), ("grpc.enable_http_proxy", 0))
        self._channel = grpc.aio.insecure_channel(target, options=options)
        self._numbers = itertools.count()
        self._body = bytes(1_024)
        self.late_part = 0.0
        """How much later than planned a load ended at most, as a part of its time."""

    async def close(self) -> None:
        """Close the connection."""
        await self._channel.close()

    async def send(self, calls_per_s: float, seconds: float, *, at_once: int = 1) -> int:
        """Send messages of many keys, `at_once` messages of a key in a call. Returns the number of messages."""

        async def call() -> int:
            key = f"key-{next(self._numbers) % KEY_COUNT}"
            messages = [self._message(key) for _ in range(at_once)]
            answer = await self._call("SendMessage", wire.SendMessageRequest(messages=messages))
            assert answer.status.code == wire.CODE_OK, answer.status
            return at_once

        return await self._started(call, calls_per_s, seconds)

    async def receive(self, calls_per_s: float, seconds: float) -> int:
        """Receive and acknowledge messages. Returns the number of messages."""

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

        return await self._started(call, calls_per_s, seconds)

    async def _started(self, call: Callable[[], Awaitable[int]], calls_per_s: float, seconds: float) -> int:
        """Start calls at an even rate, and wait for their ends. Returns the number of messages of all calls."""
        begin_s, running = time.perf_counter(), []
        for number in range(round(calls_per_s * seconds)):
            await asyncio.sleep(max(begin_s + number / calls_per_s - time.perf_counter(), 0.0))
            running.append(asyncio.ensure_future(call()))
        done = sum(await asyncio.gather(*running))
        self.late_part = max(self.late_part, (time.perf_counter() - begin_s - seconds) / seconds)
        return done

    def _message(self, key: str) -> wire.Message:
        number = next(self._numbers)
        system = wire.SystemProperties(
            message_id=f"01{number:032X}",
            body_encoding=wire.ENCODING_IDENTITY,
            message_type=wire.MESSAGE_TYPE_FIFO,
            message_group=key,
            born_host="bench",
        )
        return wire.Message(topic=_named(TOPIC), body=self._body, system_properties=system)

    async def _call(self, method: str, request: Any) -> Any:
        kind = getattr(wire, f"{method}Response")
        stub = self._channel.unary_unary(f"/{SERVED_AS}/{method}", type(request).SerializeToString, kind.FromString)
        return await stub(request, metadata=METADATA, timeout=TIMEOUT_S)


def _named(name: str) -> wire.Resource:
    return wire.Resource(name=name)
